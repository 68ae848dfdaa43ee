"""Figures of clients that come, go and spend their privacy; the table of such sweeps."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from fl_app.records.history import FIELDS, History
from fl_app.report.budget import privacy
from fl_app.report.clients import clients, validity
from fl_app.report.compare.aggregate import aggregate
from fl_app.report.compare.jobs import read_jobs
from fl_app.report.compare.tables import markdown
from fl_app.report.run import read_run


def _record(number: int, **changed: Any) -> dict[str, Any]:
    joined = {"kind": "joined", "detail": "clients [2]", "clients": [2]}
    present = {"0": 0.1 * number, "1": 0.3} | ({"2": 0.5} if number >= 3 else {})
    mean = sum(present.values()) / len(present)
    spent = {"max": float(number), "mean": number / 2, "clients": {}}
    values = {
        "round": number,
        "accuracy": {"mean": mean, "std": 0.1, "clients": present},
        "events": [joined] if number == 3 else [],
        "notes": {"dunn": None if number == 1 else 2.0 / number},
        "communities": {"count": number, "settled": {}, "right": None},
        "privacy": {
            "delta": 1e-5, "limit": 5.0, "epsilon": spent, "clip": 1.0, "noise_multiplier": 0.5,
        },
        "sampled": [0, 1],
        "bytes": {"down": 1, "up": 1},
    }  # fmt: skip
    return dict.fromkeys(FIELDS) | values | changed


def test_every_client_has_a_grey_line_from_where_it_joined(tmp_path: Path) -> None:
    History(tmp_path, [_record(number) for number in range(1, 6)])
    figure = clients(read_run(tmp_path))
    assert figure is not None
    lines = figure.axes[0].get_lines()
    drawn = {
        tuple(line.get_xdata()): line.get_color() for line in lines if len(line.get_xdata()) > 2
    }
    assert drawn == {(1, 2, 3, 4, 5): "black", (3, 4, 5): "#666666"}
    assert [line.get_marker() for line in lines if line.get_label() == "clients joined"] == ["^"]


def test_the_dunn_index_stands_below_the_number_of_communities(tmp_path: Path) -> None:
    History(tmp_path, [_record(number) for number in range(1, 6)])
    figure = validity(read_run(tmp_path))
    assert figure is not None
    assert figure.axes[1].get_lines()[0].get_xdata().tolist() == [2, 3, 4, 5]


def test_the_epsilon_of_a_single_round_is_a_dot(tmp_path: Path) -> None:
    History(tmp_path, [_record(1)])
    figure = privacy(read_run(tmp_path))
    assert figure is not None
    single = [line for axes in figure.axes for line in axes.lines if line.get_label() != "budget 5"]
    assert [line.get_marker() for line in single] == ["o"] * 4


def test_epsilon_is_drawn_up_to_its_budget(tmp_path: Path) -> None:
    History(tmp_path, [_record(number) for number in range(1, 6)])
    figure = privacy(read_run(tmp_path))
    assert figure is not None
    most, mean, budget = figure.axes[0].get_lines()[:3]
    assert most.get_ydata().tolist() == [1, 2, 3, 4, 5]
    assert mean.get_ydata().tolist() == [0.5, 1, 1.5, 2, 2.5]
    assert budget.get_label() == "budget 5"


def test_without_clients_index_or_budget_there_is_nothing_to_draw(tmp_path: Path) -> None:
    History(tmp_path, [_record(1, accuracy=None, notes={}, privacy=None)])
    run = read_run(tmp_path)
    assert clients(run) is validity(run) is privacy(run) is None


def _job(folder: Path, kind: str, rounds: list[dict[str, Any]]) -> None:
    folder.mkdir()
    (folder / "overrides.yaml").write_text(yaml.safe_dump([f"privacy={kind}", "seed=0"]))
    summary = {
        "status": "completed",
        "strategy": "dcfl",
        "seed": 0,
        "accuracy": {"mean": 0.5, "std": 0.1},
        "communities": {"ari": None, "silhouette": None, "count": 2},
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    History(folder, rounds)


def test_the_table_tells_average_settling_and_privacy_beside_the_papers_numbers(
    tmp_path: Path,
) -> None:
    sat = {"2": {"kind": "joined", "rounds": 2}}
    late = _record(5, communities={"count": 2, "settled": sat, "right": None})
    _job(tmp_path / "0", "local_dp", [*(_record(n) for n in range(1, 5)), late])
    _job(tmp_path / "1", "none", [_record(n, privacy=None) for n in range(1, 6)])
    columns = {"paper": {"privacy": {"none": "0.72"}}}
    measures = ["accuracy", "average", "joined_rounds", "joined_share", "epsilon", "noise"]
    compared = aggregate(read_jobs([tmp_path])[0], measures=measures)
    lines = markdown(compared, "command", title="DCFL", text="How.", columns=columns)
    assert lines[:3] == ["# DCFL", "", "How."]
    rows = [line for line in lines if line.startswith("| ")]
    assert rows[0].endswith("| epsilon spent | noise multiplier | paper |")
    average = (0.2 + 0.25 + (0.3 + 0.3 + 0.5) / 3 + 1.2 / 3 + 1.3 / 3) / 5
    assert rows[2] == f"| local_dp | 0.500 | {average:.3f} | 2.0 | 1.00 | 5.00 | 0.50 |  |"
    assert rows[3] == f"| none | 0.500 | {average:.3f} |  | 0.00 |  |  | 0.72 |"
    assert average == pytest.approx(0.33)
