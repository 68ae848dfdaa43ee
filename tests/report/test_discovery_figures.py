"""Figures of methods that find communities every round, and of attacks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fl_app.records.history import FIELDS, History
from fl_app.records.snapshot import write_snapshot
from fl_app.report.defence import defence, splits
from fl_app.report.histogram import similarities
from fl_app.report.migration import migration
from fl_app.report.run import memberships, numbers, read_run


def _record(number: int, **changes: Any) -> dict[str, Any]:
    return dict.fromkeys(FIELDS) | {"round": number, "events": []} | changes


def _moved(number: int, moved: dict[str, list[int | None]]) -> dict[str, Any]:
    communities = {"count": 2, "right": None, "moved": moved}
    return _record(number, communities=communities)


ROUNDS = [
    _moved(1, {"0": [None, 0], "1": [None, 0], "2": [None, 1]}),
    _moved(2, {}),
    _record(3),
    _moved(4, {"1": [0, 1], "3": [None, 2]}),
]


def test_memberships_follow_the_moves() -> None:
    assert memberships(ROUNDS) == {
        1: {0: 0, 1: 0, 2: 1},
        2: {0: 0, 1: 0, 2: 1},
        4: {0: 0, 1: 1, 2: 1, 3: 2},
    }


def test_migration_has_a_bar_per_community_and_a_band_per_flow(tmp_path: Path) -> None:
    History(tmp_path, ROUNDS)
    figure = migration(read_run(tmp_path))
    assert figure is not None
    (axes,) = figure.axes
    written = [text.get_text() for text in axes.texts]
    assert written == ["1", "2", "2", "1", "1"]
    legend = figure.legends[0].get_texts()
    assert [text.get_text() for text in legend] == ["community 0", "community 1", "community 2"]
    bands = [patch for patch in axes.patches if type(patch).__name__ == "Polygon"]
    assert len(bands) == 3
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "4"]


def test_migration_numbers_communities_as_the_summary_does(tmp_path: Path) -> None:
    History(tmp_path, ROUNDS)
    run = read_run(tmp_path)
    last = list(memberships(run.rounds).values())[-1]
    rank = {name: number for number, name in enumerate(sorted({*last.values()}, reverse=True))}
    ended = replace(run, assignment={client: rank[name] for client, name in last.items()})
    figure = migration(ended)
    assert figure is not None
    assert {name: numbers(memberships(run.rounds), ended.assignment)[name] for name in rank} == rank


def test_where_nobody_moves_there_is_no_migration_to_draw(tmp_path: Path) -> None:
    History(tmp_path, ROUNDS[:3])
    assert migration(read_run(tmp_path)) is None


def test_histograms_count_every_pair_once(tmp_path: Path) -> None:
    distance = np.random.default_rng(0).uniform(1, 2, (6, 6))
    distance = (distance + distance.T) / 2
    groups = np.arange(6) % 2
    write_snapshot(
        tmp_path, round=3, ids=np.arange(6), similarity=1 / distance, labels=groups,
        groups=groups, distance=distance,
    )  # fmt: skip
    figure = similarities(read_run(tmp_path))
    assert figure is not None
    for axes in figure.axes:
        assert sum(bar.get_height() for bar in axes.patches) == 15


def _attacked(number: int, alpha: float, events: list[dict[str, Any]]) -> dict[str, Any]:
    attack = {"recall": 0.5, "precision": 1.0, "loyal_accuracy": 0.9, "success": 0.1}
    notes = {"alpha_cross": {"0": alpha}}
    return _record(number, notes=notes, events=events, attack=attack)


def test_splits_are_counted_by_whether_they_met_the_malicious_alone(tmp_path: Path) -> None:
    good = {"kind": "removed", "detail": "", "clients": [1, 2], "right": True}
    bad = {"kind": "removed", "detail": "", "clients": [3], "right": False}
    other = {"kind": "trains no more", "detail": "", "clients": [4], "right": None}
    (tmp_path / "config.yaml").write_text("strategy:\n  alpha_threshold: 0.02\n")
    History(tmp_path, [_attacked(1, -0.3, [good, other]), _attacked(2, 0.01, [bad]),
                       _attacked(3, -0.1, [good])])  # fmt: skip
    run = read_run(tmp_path)
    figure = splits(run)
    assert figure is not None
    names = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert names == [
        "split off: only malicious (2)", "split off: some loyal (1)", "threshold 0.02",
    ]  # fmt: skip
    drawn = defence(run)
    assert drawn is not None
    assert len(drawn.axes[0].get_lines()) == 2


def test_without_an_attack_there_is_no_defence_to_draw(tmp_path: Path) -> None:
    History(tmp_path, ROUNDS)
    assert splits(read_run(tmp_path)) is None
    assert defence(read_run(tmp_path)) is None
