"""Names of communities that live on from round to round."""

import numpy as np

from fl_app.evaluation.lineage import Lineage


def _follow(lineage: Lineage, labels: dict[int, int]) -> dict[int, tuple[int | None, int]]:
    return lineage.follow(np.array(list(labels)), np.array(list(labels.values())))


def test_renumbered_communities_are_the_same_and_nobody_moved() -> None:
    lineage = Lineage()
    assert _follow(lineage, {0: 0, 1: 0, 2: 1}) == {0: (None, 0), 1: (None, 0), 2: (None, 1)}
    assert _follow(lineage, {0: 1, 1: 1, 2: 0}) == {}


def test_a_split_gives_the_smaller_part_a_new_name_and_a_merger_loses_one() -> None:
    lineage = Lineage()
    _follow(lineage, {0: 0, 1: 0, 2: 0, 3: 1})
    assert _follow(lineage, {0: 0, 1: 0, 2: 2, 3: 1}) == {2: (0, 2)}
    assert _follow(lineage, {0: 0, 1: 0, 2: 0, 3: 0}) == {2: (2, 0), 3: (1, 0)}
    assert _follow(lineage, {0: 0, 1: 1, 2: 0, 3: 0}) == {1: (0, 3)}


def test_it_is_taken_up_from_the_records() -> None:
    lineage, records = Lineage(), []
    for labels in ({0: 0, 1: 0}, {0: 0, 1: 1, 2: 1}, {0: 1, 1: 0, 2: 1}):
        moved = {str(c): list(names) for c, names in _follow(lineage, labels).items()}
        records.append({"communities": {"moved": moved}})
    again = Lineage.of([*records, {"communities": None}])
    assert again.names == lineage.names
    assert _follow(again, {0: 0, 1: 1, 2: 2}) == _follow(lineage, {0: 0, 1: 1, 2: 2})
