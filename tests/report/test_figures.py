"""Figures come from whatever a run has written, and only where there is something to show."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

from fl_app.records.history import FIELDS, History
from fl_app.records.snapshot import write_snapshot
from fl_app.report import figures
from fl_app.report.curves import accuracy, communities, stabilisation
from fl_app.report.figures import write_figures
from fl_app.report.matrix import similarity
from fl_app.report.network import _centres, graph, spread_out, strong_edges
from fl_app.report.run import Run, first_right_round, planted_count, read_run
from fl_app.report.style import ink

CLUSTERED = 6
ALL = {"accuracy", "communities", "similarity", "graph", "stabilisation"}


def found(right: bool | None, count: int = 2, nodes: int = 12) -> dict[str, Any]:
    agreement = None if right is None else (1.0 if right else 0.4)
    names = ("ari", "pure_share", "majority_purity", "v_measure", "silhouette", "modularity")
    sizes = {"count": count, "sizes": [nodes // count] * count, "nodes": nodes, "right": right}
    return sizes | dict.fromkeys(names, agreement)


def rounds(
    last: int, *, clustered: int | None = CLUSTERED, count: int = 2, known: bool = True
) -> list[dict[str, Any]]:
    records = []
    for number in range(1, last + 1):
        right = number > 3 if known else None
        measured = {"mean": 0.1 * min(number, 9), "std": 0.3, "clients": {}}
        event = {"kind": "clustered", "detail": ""}
        changed = {
            "round": number,
            "train_loss": 1 / number,
            "accuracy": measured if number % 2 == 0 else None,
            "communities": found(right, count) if number > 1 else None,
            "events": [event] if number == clustered else [],
            "stability": 1 / number if number > 2 else None,
        }
        records.append(dict.fromkeys(FIELDS) | changed)
    return records


def snapshot(folder: Path, number: int, *, n: int = 12, count: int = 2, known: bool = True) -> None:
    groups = np.arange(n) % count
    noise = np.random.default_rng(number).uniform(0, 0.1, (n, n))
    matrix = 1.0 + 0.5 * (groups[:, None] == groups) + noise + noise.T
    np.fill_diagonal(matrix, 0.0)
    planted = groups if known else np.full(n, -1)
    write_snapshot(
        folder, round=number, ids=np.arange(n), similarity=matrix, labels=groups, groups=planted
    )


def names(paths: Sequence[Path]) -> set[str]:
    """Return the figures' names, having checked that both files of each are what they say."""
    for path in paths:
        start = path.read_bytes()[:5]
        assert start == (b"%PDF-" if path.suffix == ".pdf" else b"\x89PNG\r")
        assert path.stat().st_size > 2000
        assert path.parent.name == "figures"
    kinds = {(path.stem, path.suffix) for path in paths}
    stems = {path.stem for path in paths}
    assert kinds == {(stem, kind) for stem in stems for kind in (".png", ".pdf")}
    return stems


def test_a_whole_run_has_every_figure(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "strategy:\n  cluster_round: auto\n  stability_tolerance: 0.05\n"
    )
    History(tmp_path, rounds(10))
    for number in range(1, 9):
        snapshot(tmp_path, number)
    assert names(write_figures(tmp_path)) == ALL


def test_an_interrupted_run_needs_no_summary_and_no_whole_last_line(tmp_path: Path) -> None:
    History(tmp_path, rounds(5))
    with (tmp_path / "rounds.jsonl").open("a") as file:
        file.write('{"round": 6, "ph')
    assert names(write_figures(tmp_path)) == {"accuracy", "communities", "stabilisation"}


def test_a_run_stopped_after_one_round_is_drawn(tmp_path: Path) -> None:
    History(tmp_path, rounds(1))
    assert names(write_figures(tmp_path)) == {"stabilisation"}


def test_a_run_without_clustering_has_no_figures_of_communities(tmp_path: Path) -> None:
    plain = [record | {"communities": None, "stability": None} for record in rounds(6)]
    History(tmp_path, [record | {"events": []} for record in plain])
    assert names(write_figures(tmp_path)) == {"accuracy", "stabilisation"}


@pytest.mark.parametrize(("count", "known"), [(1, False), (12, True)])
def test_one_community_singletons_and_unknown_groups(
    tmp_path: Path, count: int, known: bool
) -> None:
    History(tmp_path, rounds(8, count=count, known=known))
    snapshot(tmp_path, CLUSTERED, count=count, known=known)
    assert names(write_figures(tmp_path)) == ALL


def test_groups_are_drawn_whatever_their_numbers(tmp_path: Path) -> None:
    snapshot(tmp_path, 1, n=6)
    (found,) = read_run(tmp_path).snapshots
    groups = np.where(found.groups == 0, 17, 2**31 - 1)
    named = replace(found, groups=np.where(found.ids == 5, -1, groups))
    figure = similarity(replace(read_run(tmp_path), snapshots=[named]))
    assert figure is not None
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["group 17", f"group {2**31 - 1}"]
    strip = figure.axes[0].child_axes[0].images[0].get_array()
    assert strip is not None
    assert sorted(strip[:, 0].compressed().tolist()) == [0, 0, 0, 1, 1]


def test_a_graph_of_one_client_is_not_drawn(tmp_path: Path) -> None:
    snapshot(tmp_path, 1, n=1, count=1)
    assert write_figures(tmp_path) == []
    snapshot(tmp_path, 2, n=2, count=1)
    assert names(write_figures(tmp_path)) == {"similarity", "graph"}


def test_an_empty_folder_has_no_figures(tmp_path: Path) -> None:
    assert write_figures(tmp_path) == []
    assert not (tmp_path / "figures").exists()


def test_accuracy_tells_before_and_end(tmp_path: Path) -> None:
    History(tmp_path, rounds(10))
    figure = accuracy(read_run(tmp_path))
    assert figure is not None
    texts = {text.get_text() for text in figure.axes[0].texts}
    assert texts == {"clustering", "before 60.0%", "end 90.0%"}


def test_the_legend_is_no_text_on_a_low_curve(tmp_path: Path) -> None:
    low = [r | {"accuracy": {"mean": 0.1, "std": 0.1, "clients": {}}} for r in rounds(10)]
    for name, records in (("low", low), ("high", rounds(10))):
        History(tmp_path / name, records)
        figure = accuracy(read_run(tmp_path / name))
        assert figure is not None
        figure.draw_without_rendering()
        legend = figure.axes[0].get_legend()
        assert legend is not None
        box = legend.get_window_extent()
        curve = figure.axes[0].get_lines()[0]
        places = figure.axes[0].transData.transform(np.asarray(curve.get_xydata()))
        assert not [xy for xy in places.tolist() if box.contains(*xy)], name


def test_communities_mark_the_first_right_round_and_the_planted_count(tmp_path: Path) -> None:
    History(tmp_path, rounds(30, clustered=20))
    figure = communities(read_run(tmp_path))
    assert figure is not None
    top, bottom = figure.axes
    assert {text.get_text() for text in top.texts} == {"clustering", "right from round 4"}
    legend = bottom.get_legend()
    assert legend is not None
    assert [t.get_text() for t in legend.get_texts()] == ["communities found", "planted groups: 2"]


@pytest.mark.parametrize(("cluster_round", "lines"), [("auto", 1), ("25", 0)])
def test_the_tolerance_is_drawn_where_it_decides(
    tmp_path: Path, cluster_round: str, lines: int
) -> None:
    (tmp_path / "config.yaml").write_text(
        f"strategy:\n  cluster_round: {cluster_round}\n  stability_tolerance: 0.05\n"
    )
    History(tmp_path, rounds(10))
    figure = stabilisation(read_run(tmp_path))
    assert figure is not None
    labels = [line.get_label() for line in figure.axes[1].lines]
    assert labels.count("tolerance 0.05") == lines


def test_a_round_without_a_loss_is_a_gap_and_a_skipped_one_has_a_mark(tmp_path: Path) -> None:
    played = rounds(6, clustered=None)
    played[2] |= {"train_loss": None, "events": [{"kind": "skipped", "detail": "none"}]}
    played[4]["train_loss"] = None
    History(tmp_path, played)
    figure = stabilisation(read_run(tmp_path))
    assert figure is not None
    line, *marks = figure.axes[0].lines
    assert np.isnan(line.get_ydata()).tolist() == [False, False, True, False, True, False]
    assert line.get_markevery() == [3, 5]  # rounds without a neighbour
    (skipped,) = [each for each in marks if each.get_label() == "round skipped"]
    assert list(skipped.get_xdata()) == [3]


def test_a_single_round_is_a_dot_above_its_number(tmp_path: Path) -> None:
    History(tmp_path, rounds(1))
    figure = stabilisation(read_run(tmp_path))
    assert figure is not None
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert axes.lines[0].get_markevery() == [0]
    low, high = axes.get_xlim()
    assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [1]


def test_communities_of_a_single_round_are_dots(tmp_path: Path) -> None:
    History(tmp_path, rounds(2))
    figure = communities(read_run(tmp_path))
    assert figure is not None
    drawn = [line for axes in figure.axes for line in axes.lines if len(line.get_xdata()) == 1]
    assert len(drawn) == 4
    assert {line.get_marker() for line in drawn} == {"o"}


def test_six_matrices_at_most_from_first_to_last(tmp_path: Path) -> None:
    for number in range(1, 12):
        snapshot(tmp_path, number)
    figure = similarity(read_run(tmp_path))
    assert figure is not None
    titles = [t for axes in figure.axes if (t := axes.get_title(loc="center"))]
    assert [title.split(":")[0] for title in titles] == [
        f"round {number}" for number in (1, 3, 5, 7, 9, 11)
    ]
    assert titles[0].endswith("2 communities, 12 clients")


def test_rounds_that_were_named_are_drawn_without_those_kept_beside_them(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("records:\n  snapshot_rounds: [3]\n")
    History(tmp_path, rounds(8))
    for number in (1, 3, CLUSTERED, 8):
        snapshot(tmp_path, number)
    figure = similarity(read_run(tmp_path))
    assert figure is not None
    titles = [axes.get_title(loc="center") for axes in figure.axes]
    drawn = [title.partition(":")[0] for title in titles if title]
    assert drawn == ["round 3", f"round {CLUSTERED}"]


def test_the_graph_is_that_of_the_clustering_round(tmp_path: Path) -> None:
    History(tmp_path, rounds(10))
    for number in (2, CLUSTERED, 9):
        snapshot(tmp_path, number)
    figure = graph(read_run(tmp_path))
    assert figure is not None
    assert figure.axes[0].get_title().startswith(f"round {CLUSTERED}:")


def test_removed_clients_are_no_community_in_matrix_and_graph(tmp_path: Path) -> None:
    records = rounds(4, clustered=None)
    records[2]["events"] = [{"kind": "removed", "detail": "", "clients": [1, 3, 5, 7, 9, 11]}]
    History(tmp_path, records)
    for number in (2, 4):
        snapshot(tmp_path, number)
    run = read_run(tmp_path)
    matrix, drawn = similarity(run), graph(run)
    assert matrix is not None
    assert drawn is not None
    titles = [t for axes in matrix.axes if (t := axes.get_title(loc="center"))]
    assert titles == [
        "round 2: 2 communities, 12 clients",
        "round 4: 1 community, 12 clients,\n6 of them removed",
    ]
    named = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert named[:2] == ["community 0 (6 clients)", "removed (6 clients)"]


def test_strong_edges_join_each_client_to_its_most_alike() -> None:
    row = np.arange(8)
    near = 2.0 - np.abs(row[:, None] - row) / 10
    np.fill_diagonal(near, 0.0)
    edges = {tuple(edge) for edge in strong_edges(near).tolist()}
    assert {(0, j) for j in range(1, 4)} <= edges
    assert (0, 7) not in edges
    assert all(i < j for i, j in edges)
    assert strong_edges(np.zeros((1, 1))).shape == (0, 2)
    assert strong_edges(np.full((2, 2), 0.5)).tolist() == [[0, 1]]


@pytest.mark.parametrize("across", [0.0, 0.4])
def test_strong_edges_of_few_clients_do_not_join_their_groups(across: float) -> None:
    group = np.arange(6) % 2
    alike = np.where(group[:, None] == group, 0.8, across)
    alike[0, 3] = alike[3, 0] = across + 0.1
    edges = strong_edges(alike)
    assert len(edges) >= 6
    assert sum(group[i] != group[j] for i, j in edges.tolist()) <= 1


def test_strong_edges_leave_out_the_least_similar_pairs() -> None:
    group = np.arange(12) % 4
    alike = np.where(group[:, None] == group, 0.8, 0.0)  # as contrast, which tells no more of them
    edges = strong_edges(alike)
    assert (group[edges[:, 0]] == group[edges[:, 1]]).all()
    assert len(edges) == 4 * 3


def test_discs_of_separate_parts_do_not_overlap() -> None:
    radii = [5.0, 4.0, 4.0, 2.0, 1.0, 1.0, 1.0]
    discs = list(zip(radii, _centres(radii), strict=True))
    for (r, a), (s, b) in itertools.combinations(discs, 2):
        assert np.hypot(a[0] - b[0], a[1] - b[1]) >= r + s


def test_clients_of_one_kind_lie_together_whatever_edges_join_them() -> None:
    edges = np.array([[0, 3], [1, 4], [2, 5], [0, 1]])
    places = spread_out(6, edges, [7, 7, 7, 2, 2, 2])
    apart = np.linalg.norm(places[:3].mean(axis=0) - places[3:].mean(axis=0))
    for part in (places[:3], places[3:]):
        assert np.linalg.norm(part - part.mean(axis=0), axis=1).max() < apart / 2


def test_ink_is_read_on_its_colour() -> None:
    assert [ink(colour) for colour in ("#0072B2", "#F0E442", "#000000")] == [
        "white",
        "black",
        "white",
    ]


def test_the_same_records_give_the_same_bytes_and_leave_matplotlib_alone(tmp_path: Path) -> None:
    History(tmp_path, rounds(8))
    snapshot(tmp_path, CLUSTERED)
    before = dict(mpl.rcParams)
    first = {path: path.read_bytes() for path in write_figures(tmp_path)}
    assert {path: path.read_bytes() for path in write_figures(tmp_path)} == first
    assert dict(mpl.rcParams) == before


def test_a_figure_that_fails_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(run: object) -> None:
        raise ZeroDivisionError("no pen")

    History(tmp_path, rounds(8))
    monkeypatch.setattr(figures, "FIGURES", (broken, accuracy))
    with pytest.raises(ExceptionGroup, match="1 of 2 figures failed") as caught:
        write_figures(tmp_path)
    assert "while drawing the figure broken" in caught.value.exceptions[0].__notes__
    assert (tmp_path / "figures" / "accuracy.pdf").exists()


@pytest.mark.parametrize(
    ("right", "expected"),
    [
        ([], None),
        ([None, None], None),
        ([False, True, True], 2),
        ([True, True], 1),
        ([True, False, True, None, True], 3),
        ([False, None, True, None], 3),
        ([True, True, False], None),
    ],
)
def test_first_right_round(right: list[bool | None], expected: int | None) -> None:
    """None stands for a round without communities; the others are right or wrong."""
    records = [
        {"round": number, "communities": None if value is None else {"right": value}}
        for number, value in enumerate(right, start=1)
    ]
    assert first_right_round(records) == expected


def test_removed_clients_are_a_planted_group_if_that_is_right() -> None:
    removed = [{"kind": "removed"}]
    played = [{"communities": found(True, 1), "events": removed}]
    assert planted_count(Run(played, [], {})) == 2
    assert planted_count(Run([played[0] | {"events": []}], [], {})) == 1


def test_without_planted_groups_no_round_is_right() -> None:
    assert first_right_round([{"round": 1, "communities": {"right": None}}]) is None


def test_the_planted_groups_can_become_more_when_clients_drift() -> None:
    rounds = [{"communities": {"right": True, "count": n}, "events": []} for n in (1, 3)]
    assert planted_count(Run(rounds, [], {})) == 3
