"""The live view: a bar with words on a terminal, name=value lines anywhere else."""

import io
import json
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from fl_app import progress, terminal
from fl_app.evaluation.agreement import adjusted_rand, pure_share
from fl_app.progress import (
    Live,
    _communities,
    _one_group,
    _right_and_wrong,
    _state,
    live,
    show_result,
)
from fl_app.records.history import FIELDS, History
from fl_app.records.names import RESUMED, ROUNDS, SUMMARY


def _record(number: int, **changes: Any) -> dict[str, Any]:
    base = {"round": number, "phase": "federated", "train_loss": 0.5, "events": []}
    return dict.fromkeys(FIELDS) | base | {"failed": {}, "rejected": {}} | changes


MEASURED = _record(2, accuracy={"mean": 0.75}, communities={"count": 3}, failed={"4": "gone"})
CLUSTERED = _record(
    3, phase="clustered", events=[{"kind": "clustered", "detail": "2 communities of sizes [3, 1]"}]
)


def _console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    output = io.StringIO()
    return Console(file=output, force_terminal=terminal, width=120), output


def test_outside_a_terminal_a_round_is_one_line_of_names_and_values(tmp_path: Path) -> None:
    console, output = _console(terminal=False)
    with live(tmp_path, rounds=3, console=console):
        history = History(tmp_path)
        for record in (_record(1), MEASURED, CLUSTERED):
            history.append(record)
    assert output.getvalue().splitlines() == [
        "round=1 rounds=3 phase=federated loss=0.500",
        "round=2 rounds=3 phase=federated loss=0.500 accuracy=0.750 communities=3 missing=1",
        "round=3 rounds=3 phase=clustered loss=0.500",  # which evaluated nothing
    ]


def test_the_metrics_of_a_task_are_shown_beside_the_accuracy_or_without_one(tmp_path: Path) -> None:
    errors = {"mae": {"mean": 4.25}, "r2": {"mean": 0.5}}
    console, output = _console(terminal=False)
    with live(tmp_path, rounds=2, console=console):
        history = History(tmp_path)
        history.append(_record(1, metrics=errors))
        history.append(_record(2, metrics=errors, accuracy={"mean": 0.75}))
    assert output.getvalue().splitlines() == [
        "round=1 rounds=2 phase=federated loss=0.500 mae=4.250 r2=0.500",
        "round=2 rounds=2 phase=federated loss=0.500 accuracy=0.750 mae=4.250 r2=0.500",
    ]
    console, output = _console(terminal=True)
    view = Live(tmp_path, rounds=2, console=console)
    view.shown = 0
    with view.bar:
        view.tick()
    assert "accuracy 0.750  mae 4.250  r2 0.500" in output.getvalue()


def test_small_numbers_are_not_shown_as_nothing() -> None:
    spent = {"epsilon": {"max": 0.003751}}
    state = _state(_record(1, train_loss=0.00016, privacy=spent), {"accuracy": 0.9996})
    assert (state["loss"], state["accuracy"], state["epsilon"]) == ("0.00016", "0.9996", "0.00376")


def test_an_epsilon_without_noise_is_not_shown_as_the_one_before() -> None:
    assert _state(_record(1, privacy={"epsilon": {"max": None}}), {})["epsilon"] == "inf"


def test_a_terminal_shows_round_accuracy_communities_events_and_the_time_left(
    tmp_path: Path,
) -> None:
    console, output = _console(terminal=True)
    history = History(tmp_path)
    with live(tmp_path, rounds=4, console=console) as view:
        for record in (_record(1), CLUSTERED, MEASURED):
            history.append(record)
            view.tick()
        assert view.bar.tasks[0].time_remaining is not None
    text = output.getvalue()
    assert "round 3: clustered, 2 communities of sizes [3, 1]" in text
    assert "2/4" in text
    assert "accuracy 0.750  communities 3" in text
    assert "left" in text


def test_a_record_that_cannot_be_shown_neither_ends_the_view_nor_hides_the_error_of_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "POLL_S", 0.05)
    console, output = _console(terminal=False)
    file = tmp_path / ROUNDS

    def fails() -> None:
        with live(tmp_path, rounds=3, console=console), file.open("a", buffering=1) as lines:
            for line in ('{"round": 1, "phase"', "none", json.dumps(_record(4)), "[]]"):
                lines.write(f"{line}\n")
                time.sleep(0.2)  # until the thread that watches has read it
            raise RuntimeError("the run's own")

    with pytest.raises(RuntimeError, match="the run's own"):
        fails()
    assert output.getvalue().startswith("round=4 rounds=3")
    assert caplog.text.count("the progress of some rounds is not shown") == 1


def test_names_with_ends_of_lines_are_shown_and_so_is_the_result(tmp_path: Path) -> None:
    name = "a\u2028b\u2029c\x85d"
    console, output = _console(terminal=False)
    view = Live(tmp_path, rounds=1, console=console)
    History(tmp_path).append(_record(1, failed={"4": f"{name} is gone"}))
    view.tick()
    assert output.getvalue() == "round=1 rounds=1 phase=federated loss=0.500 missing=1\n"
    summary: dict[str, Any] = {"status": "completed", "strategy": "x", "engine": "y", "rounds": 1}
    summary |= {"communities": {"assignment": {}, "ari": None}, "metrics": {}}
    summary |= {"clients": {"removed": []}, "time": {"total_s": 1.0}, "accuracy": {"mean": None}}
    (tmp_path / SUMMARY).write_text(json.dumps(summary))
    show_result(tmp_path, console)
    assert "completed: x on y, 1 round," in output.getvalue()


def test_the_result_names_who_is_not_connected_any_more(tmp_path: Path) -> None:
    summary: dict[str, Any] = {"status": "completed", "strategy": "x", "engine": "y", "rounds": 2}
    summary |= {"communities": {"assignment": {}, "ari": None}, "metrics": {}}
    summary |= {"clients": {"removed": []}, "time": {"total_s": 1.0}, "accuracy": {"mean": None}}
    (tmp_path / SUMMARY).write_text(json.dumps(summary))
    history, (console, output) = History(tmp_path), _console(terminal=False)
    for number, lost, times in ((1, [], 0), (2, [1, 3], 1)):
        history.append(_record(number, lost=lost))
        show_result(tmp_path, console)
        assert output.getvalue().count("lost by the end: clients 1 3\n") == times


def test_lines_and_result_tell_of_rounds_that_trained_no_model(tmp_path: Path) -> None:
    summary: dict[str, Any] = {"status": "completed", "strategy": "x", "engine": "y", "rounds": 3}
    summary |= {"communities": {"assignment": {}, "ari": None}, "metrics": {}}
    summary |= {"clients": {"removed": []}, "time": {"total_s": 1.0}, "accuracy": {"mean": None}}
    (tmp_path / SUMMARY).write_text(json.dumps(summary))
    history, (console, output) = History(tmp_path), _console(terminal=False)
    view = Live(tmp_path, rounds=3, console=console)
    history.append(_record(1))
    show_result(tmp_path, console)
    assert "trained no model" not in output.getvalue()
    for number in (2, 3):
        events = [{"kind": "skipped", "detail": f"round {number} has too few replies"}]
        history.append(_record(number, train_loss=None, events=events))
    view.tick()
    assert "round=3 rounds=3 phase=federated skipped=yes\n" in output.getvalue()
    show_result(tmp_path, console)
    told = "2 of 3 rounds trained no model, the last because: round 3 has too few replies\n"
    assert told in output.getvalue()


def test_the_result_says_of_how_few_clients_and_of_which_round_a_score_is(tmp_path: Path) -> None:
    summary: dict[str, Any] = {"status": "completed", "strategy": "x", "engine": "y", "rounds": 2}
    summary |= {"communities": {"assignment": {}, "ari": None}, "time": {"total_s": 1.0}}
    summary |= {
        "clients": {"total": 3, "removed": []},
        "metrics": {"f1": {"mean": 0.5, "std": 0.0}},
    }
    summary |= {"accuracy": {"mean": 0.5, "std": 0.0, "before_clustering": None}}
    (tmp_path / SUMMARY).write_text(json.dumps(summary))
    spread = {"mean": 0.5, "std": 0.0}
    scores = [{**spread, "clients": dict.fromkeys(clients, 0.5)} for clients in ("01", "012", "")]
    history, told = History(tmp_path), []
    for turn, each in enumerate([*scores, None]):
        history.append(_record(turn + 1, accuracy=each, metrics=each and {"f1": each}))
        console, output = _console(terminal=False)
        show_result(tmp_path, console)
        told.append([line for line in output.getvalue().splitlines() if "+-" in line])
    assert told == [
        [f"accuracy 0.500 +- 0.000{more}", f"f1 0.500 +- 0.000, over {over}"]
        for more, over in (
            (", over 2 of 3 clients", "2 of 3 clients"),
            ("", "the clients"),
            ("", "the clients"),  # under secure aggregation nobody knows which
            (", over the clients in round 3", "the clients in round 3"),
        )
    ]


def test_a_resumed_run_begins_where_it_stopped_and_shows_what_it_replays(tmp_path: Path) -> None:
    History(tmp_path, [_record(1), _record(2), _record(3)])
    console, output = _console(terminal=False)
    view = Live(tmp_path, rounds=5, console=console)
    assert view.bar.tasks[0].completed == 3
    history = History(tmp_path, [_record(1), _record(2)])  # the checkpoint was of round 2
    view.tick()
    history.append(_record(3))
    view.tick()
    assert output.getvalue().splitlines() == ["round=3 rounds=5 phase=federated loss=0.500"]


def test_damaged_records_from_before_a_resume_are_only_counted(tmp_path: Path) -> None:
    (tmp_path / ROUNDS).write_text("{damaged\n")
    console, output = _console(terminal=False)
    view = Live(tmp_path, rounds=5, console=console)
    assert view.bar.tasks[0].completed == 1
    History(tmp_path, [_record(1)]).append(_record(2))
    view.tick()
    assert output.getvalue().startswith("round=2 rounds=5 ")


def test_a_resumed_run_says_once_from_which_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    console, output = _console(terminal=False)
    view = Live(tmp_path, rounds=5, console=console)
    view.tick()
    (tmp_path / RESUMED).parent.mkdir()
    (tmp_path / RESUMED).write_text("resuming after round 2 from checkpoint.safetensors\n")
    with caplog.at_level(logging.INFO):
        view.tick()
        view.tick()
    said = "resuming after round 2 from checkpoint.safetensors"
    assert output.getvalue().splitlines() == caplog.messages == [said]


@pytest.mark.parametrize(
    ("labels", "groups", "one"),
    [
        ([0, 0, 0], [0, 0, 0], True),
        ([0, 0, 1], [0, 0, 0], True),
        ([0, 0, 0], [0, 1, 1], False),
        ([0, 0, 1], [0, 0, 1], False),
        ([0, 0, 1, 2], [0, 0, 1, 1], False),
        ([0, 1, 1], [0, 0, 1], False),
        ([0, 1, 2], [0, 0, 1], False),
    ],
)
def test_a_single_planted_group_is_told_from_several(
    labels: list[int], groups: list[int], one: bool
) -> None:
    found, planted = np.array(labels), np.array(groups)
    measures = {"ari": adjusted_rand(found, planted), "pure_share": pure_share(found, planted)}
    sizes = np.bincount(found).tolist()
    assert _one_group({"count": len(sizes), "sizes": sizes} | measures) == one
    if len(sizes) == 2:  # without the removed clients, which are the last cluster
        assert _one_group({"count": 1, "sizes": sizes[:1]} | measures, removed=True) == one


def test_who_was_removed_and_who_was_malicious_is_told() -> None:
    found = {"ari": 0.0, "count": 1, "sizes": [13], "pure_share": 1.0}
    summary = {"communities": found, "clients": {"total": 16, "removed": [3, 5, 9]}}
    attack = {"recall": 1.0, "malicious": 2, "loyal_lost": 1, "loyal_accuracy": 0.9}
    assert list(_right_and_wrong(summary, attack)) == [
        "removed from training: 3 of 16 clients: 3 5 9",
        "malicious clients: 2 of 2 suspected, and 1 of the others",
        "accuracy of the loyal clients: 0.900",
    ]
    half = {"communities": found, "clients": {"total": 6, "removed": [1, 3, 5]}}
    assert list(_right_and_wrong(half, None)) == [
        "removed from training: 3 of 6 clients: 1 3 5",
        "if these are no attackers, strategy=cfl_clusters trains them with one another",
    ]
    usual = {"communities": found | {"ari": 0.25}, "clients": {"total": 16, "removed": []}}
    assert list(_right_and_wrong(usual, None)) == ["agreement with the planted groups: ARI 0.250"]


def test_the_result_tells_what_the_fallback_made_of_the_communities(tmp_path: Path) -> None:
    summary: dict[str, Any] = {"status": "completed", "strategy": "x", "engine": "y", "rounds": 1}
    summary |= {"communities": {"assignment": {}, "ari": None}, "metrics": {}}
    summary |= {"clients": {"removed": []}, "time": {"total_s": 1.0}, "accuracy": {"mean": None}}
    (tmp_path / SUMMARY).write_text(json.dumps(summary))
    undone = {"kind": "undone", "detail": f"3 communities are one again{' for them' * 9}"}
    History(tmp_path).append(_record(1, events=[undone, {"kind": "joined", "detail": "x"}]))
    console, output = _console(terminal=False)
    show_result(tmp_path, console)
    assert f"by validation in round 1: {undone['detail']}\n" in output.getvalue()
    assert "joined" not in output.getvalue()


def test_a_model_without_clients_is_no_community(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"sizes": [0, 1], "assignment": {"0": 1}}
    terminal.console().print(_communities(found, {"0": 0.5}, {}))
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[4:-1]] == ["1"]


def test_a_name_that_looks_like_markup_is_shown_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = {"sizes": [2], "assignment": {"0": 0, "1": 0}}
    terminal.console().print(_communities(found, {}, {"0": "[/b] ward", "1": "[red]"}))
    shown = capsys.readouterr().out
    assert "0 ([/b] ward) 1 ([red])" in shown


def test_without_an_accuracy_the_communities_are_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = {"sizes": [2], "assignment": {"0": 0, "1": 0}}
    terminal.console().print(_communities(found, {}, {}))
    shown = capsys.readouterr().out
    assert "members" in shown
    assert "accuracy" not in shown
