"""Training and test rows of a table: shares, and what further rows and owners change."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_app.data.split import split_rows

OWNERS = st.lists(st.sampled_from(["a", "b", "ly'on", "x\u2028y"]), min_size=1, max_size=60)


@given(owners=OWNERS, share=st.floats(0.05, 0.95), seed=st.integers(0, 5))
def test_each_owner_has_its_share_for_test(owners: list[str], share: float, seed: int) -> None:
    train, test = split_rows(len(owners), share, seed=seed, owners=owners)
    assert sorted([*train, *test]) == list(range(len(owners)))
    tested = Counter(owners[row] for row in test)
    for owner, rows in Counter(owners).items():
        assert tested[owner] == min(max(round(rows * share), 1), rows - 1)


@given(owners=OWNERS, share=st.floats(0.05, 0.95), place=st.integers(0, 60))
def test_rows_of_another_owner_move_none_of_the_others(
    owners: list[str], share: float, place: int
) -> None:
    more = [*owners[:place], "a new one", "a new one", *owners[place:]]
    _, test = split_rows(len(owners), share, seed=1, owners=owners)
    _, later = split_rows(len(more), share, seed=1, owners=more)
    kept = [row for row in range(len(more)) if more[row] != "a new one"]
    assert [kept.index(row) for row in later if row in kept] == test.tolist()


def test_most_rows_of_an_owner_keep_their_kind_when_it_gets_more() -> None:
    _, test = split_rows(1000, 0.2, seed=0, owners=["a"] * 1000)
    _, later = split_rows(1100, 0.2, seed=0, owners=["a"] * 1100)
    assert len(set(test) & set(later)) >= 0.95 * len(test)
    assert len([row for row in later if row < 1000 and row not in test]) <= 10


@pytest.mark.parametrize("owners", [None, ["a", "b", "a"]])
def test_without_a_share_all_rows_are_for_training(owners: list[str] | None) -> None:
    train, test = split_rows(3, 0.0, seed=0, owners=owners)
    assert (train.tolist(), test.tolist()) == ([0, 1, 2], [])
    assert not np.concatenate(split_rows(0, 0.5, seed=0, owners=owners and [])).size
