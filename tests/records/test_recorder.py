"""A recorder goes on from the newest whole checkpoint, and what it cannot write costs no run."""

import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fl_app.params import Layout
from fl_app.records import checkpoint, recorder
from fl_app.records.checkpoint import DAMAGED, FILE, PREVIOUS, CheckpointError, read
from fl_app.records.history import FIELDS, read_rounds
from fl_app.records.models import read_models
from fl_app.records.names import RESUMED
from fl_app.records.reading import read_names
from fl_app.records.recorder import OPEN_ROUND, Recorder
from fl_app.records.summary import read_summary
from fl_app.records.tracking import NoTracker, Tracked

MODELS = {"models": np.ones((1, 3), np.float32)}
LAYOUT = Layout(("w", "b"), ((2,), (1,)), 2)


def _recorder(folder: Path, *, resume: bool = False, **options: Any) -> Recorder:
    return Recorder(
        folder,
        identity={"strategy": "flic", "engine": "inprocess", "seed": 0},
        config_yaml="seed: 0\n",
        checkpoint_every=1,
        snapshot_rounds=[],
        resume=resume,
        **options,
    )


def _record(number: int) -> dict[str, Any]:
    empty = {"failed": {}, "rejected": {}, "events": []}
    time = {"total_s": 1.0, "training_s": 0.5, "server_s": 0.5}
    return dict.fromkeys(FIELDS) | empty | {"round": number, "time": time}


def _play(run: Recorder, *numbers: int) -> None:
    for number in numbers:
        run.round(_record(number))
        run.checkpoint(MODELS, {"members": {}})


def _finish(run: Recorder, models: np.ndarray) -> None:
    run.finish(
        "completed", clients=2, assignment={}, agreement={}, groups={}, removed=[], models=models,
        layout=LAYOUT,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _warnings_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Leave out what a run logs at INFO, which an earlier test may have switched on."""
    caplog.set_level(logging.WARNING, "fl_app")


def test_the_round_of_a_checkpoint_is_that_of_the_history(tmp_path: Path) -> None:
    run = _recorder(tmp_path)
    run.checkpoint(MODELS, {})
    assert read(tmp_path / "checkpoint").round == 0
    _play(run, 1, 2)
    assert read(tmp_path / "checkpoint").round == 2


def test_a_round_is_written_once_and_the_one_before_is_of_an_earlier_round(tmp_path: Path) -> None:
    run = _recorder(tmp_path)
    _play(run, 1, 2)
    run.checkpoint(MODELS, {"members": {}})  # at the end of the run
    (tmp_path / "checkpoint" / FILE).unlink()
    assert read(tmp_path / "checkpoint").round == 1


def test_the_line_of_a_round_tells_the_metrics_of_a_task_without_accuracy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fl_app.records")
    run, spread = _recorder(tmp_path), {"mean": 4.25, "std": 0.5, "clients": {"0": 4.25}}
    run.round(_record(1) | {"phase": "federated", "metrics": {"mae": spread}})
    _finish(run, MODELS["models"])
    assert caplog.messages == [
        "round 1 is done: phase=federated mae=4.250",
        "completed: rounds=1 mae=4.250",
    ]
    assert caplog.records[0].fields["metrics"] == {"mae": 4.25}


def test_a_round_without_scores_is_in_the_checkpoint_until_it_has_them(tmp_path: Path) -> None:
    run = _recorder(tmp_path)
    _play(run, 1)
    run.checkpoint(MODELS, {}, {"record": {"round": 2}, "clients": [0]})
    found = read(tmp_path / "checkpoint")
    assert (found.round, len(found.state["history"])) == (2, 1)
    assert found.state[OPEN_ROUND] == {"record": {"round": 2}, "clients": [0]}
    again = _recorder(tmp_path, resume=True)
    assert [record["round"] for record in again.history.rounds] == [1]
    _play(again, 2)
    found = read(tmp_path / "checkpoint")
    assert (found.round, len(found.state["history"])) == (2, 2)
    assert OPEN_ROUND not in found.state


def test_resuming_says_which_checkpoint_it_took(tmp_path: Path) -> None:
    _play(_recorder(tmp_path), 1, 2)
    run = _recorder(tmp_path, resume=True)
    saved = run.restored()
    assert saved is not None
    assert saved.round == 2
    assert not (tmp_path / RESUMED).exists()  # the method may refuse it
    run.begin()
    said = "resuming after round 2 from checkpoint.safetensors\n"
    assert (tmp_path / RESUMED).read_text() == said


def test_no_client_of_a_resumed_run_becomes_another(tmp_path: Path) -> None:
    run = _recorder(tmp_path, use={"client_names": ["berlin", "lyon"]})
    run.begin()
    _play(run, 1)
    assert read_names(tmp_path) == ["berlin", "lyon"]
    with pytest.raises(ValueError, match="client 0 of a resumed run must stay berlin, got aachen"):
        _recorder(tmp_path, resume=True, use={"client_names": ["aachen", "berlin", "lyon"]})
    again = _recorder(tmp_path, resume=True, use={"client_names": ["berlin", "lyon", "aachen"]})
    again.begin()
    assert read_names(tmp_path) == ["berlin", "lyon", "aachen"]


def test_the_configuration_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(path: Path, text: str, **_: object) -> None:
        path.write_bytes(text.encode()[:3])
        _full()

    run = _recorder(tmp_path)
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    monkeypatch.setattr(Path, "write_text", cut)
    with pytest.raises(OSError, match="No space left"):
        run.begin()
    assert (tmp_path / "config.yaml").read_text() == "seed: 1\n"


def test_the_checkpoint_is_handed_over_once_and_not_held(tmp_path: Path) -> None:
    _play(_recorder(tmp_path), 1)
    run = _recorder(tmp_path, resume=True)
    assert run.restored() is not None
    assert run.restored() is None


def test_from_the_previous_checkpoint_rounds_and_tracking_go_back_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _play(_recorder(tmp_path), 1, 2, 3)
    current = tmp_path / "checkpoint" / FILE
    current.write_bytes(current.read_bytes()[:-1])
    tracked: list[Tracked] = []

    def track(run: Tracked) -> NoTracker:
        tracked.append(run)
        return NoTracker(run)

    run = _recorder(tmp_path, resume=True, track=track)
    assert tracked[0].done == 2
    assert [record["round"] for record in read_rounds(tmp_path)] == [1, 2]
    run.begin()
    said = (tmp_path / RESUMED).read_text()
    assert said.startswith("checkpoint.safetensors is truncated or damaged (")
    assert said.endswith(f"): resuming after round 2 from {PREVIOUS}\n")
    assert caplog.messages[0].endswith("; it was renamed to checkpoint.damaged.safetensors")
    assert sorted(os.listdir(current.parent)) == [DAMAGED, PREVIOUS, "resumed.txt"]
    _play(run, 3)
    assert [record["round"] for record in read(current.parent).state["history"]] == [1, 2, 3]
    current.unlink()
    assert read(current.parent).round == 2  # the damaged one did not take its place


def test_a_run_without_a_whole_checkpoint_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    _play(_recorder(tmp_path), 1)
    (tmp_path / "checkpoint" / FILE).write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="is intact"):
        _recorder(tmp_path, resume=True)
    assert os.listdir(tmp_path / "checkpoint") == [FILE]
    assert len(read_rounds(tmp_path)) == 1


def test_a_fresh_run_in_an_old_folder_keeps_no_checkpoint_of_the_old_run(tmp_path: Path) -> None:
    _play(_recorder(tmp_path), 1, 2)
    fresh = _recorder(tmp_path)
    _play(fresh, 1)
    assert os.listdir(tmp_path / "checkpoint") == [FILE]
    _play(fresh, 2)
    assert sorted(os.listdir(tmp_path / "checkpoint")) == [PREVIOUS, FILE]


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_run_whose_first_checkpoint_is_refused_says_that_it_cannot_be_resumed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "save", _full)
    _play(_recorder(tmp_path), 1)
    told = "no checkpoint of round 1; the run continues, but cannot be resumed until one can be "
    assert caplog.messages == [f"{told}written: [Errno 28] No space left on device"]


def test_a_disk_that_refuses_costs_neither_the_run_nor_the_last_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _recorder(tmp_path)
    _play(run, 1)
    monkeypatch.setattr(checkpoint, "save", _full)
    _play(run, 2, 3)
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert "no checkpoint of round 2; the run continues, older ones remain" in caplog.messages[0]
    assert "No space left on device" in caplog.messages[0]
    assert read(tmp_path / "checkpoint").round == 1
    monkeypatch.undo()
    _play(run, 4)
    assert read(tmp_path / "checkpoint").round == 4


def test_a_state_that_is_not_finite_is_named_and_never_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = _recorder(tmp_path)
    _play(run, 1)
    run.round(_record(2))
    run.checkpoint({"models": np.array([[np.nan]])}, {})
    run.checkpoint(MODELS, {"losses": [0.5, float("inf")]})
    assert "array 'models' must be finite, got nan" in caplog.messages[0]
    assert "losses[1] of the state must be finite, got inf" in caplog.messages[1]
    assert read(tmp_path / "checkpoint").round == 1
    _finish(run, np.ones((1, 3), np.float32))
    assert (read_summary(tmp_path) or {})["status"] == "completed"


def test_models_that_are_not_finite_end_no_run_and_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = _recorder(tmp_path)
    _finish(run, np.array([[1, 2, 3], [1, np.nan, 3]], np.float32))
    assert caplog.messages == ["the model community_1 is not finite; do not use it"]
    first, second = read_models(tmp_path)
    assert (first["w"].tolist(), first["b"].tolist()) == ([1, 2], [3])
    assert np.isnan(second["w"]).tolist() == [False, True]
    assert (read_summary(tmp_path) or {})["status"] == "completed"


def test_models_that_cannot_be_written_leave_the_summary(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _recorder(tmp_path)
    monkeypatch.setattr(recorder, "write_models", _full)
    _finish(run, np.ones((1, 3), np.float32))
    assert "models.safetensors could not be written" in caplog.messages[0]
    summary = read_summary(tmp_path) or {}
    assert summary["status"] == "failed"
    assert summary["ended"].startswith("models.safetensors could not be written: ")
    assert summary["ended"].endswith("; resume the run to write it")


def test_the_metrics_endpoint_is_told_each_round_and_the_end(tmp_path: Path) -> None:
    told: list[object] = []

    class Told:
        metrics = SimpleNamespace(round=lambda record: told.append(record["round"]))

        def close(self, status: str) -> None:
            told.append(status)

    run = _recorder(tmp_path, monitor=lambda folder: Told())
    _play(run, 1, 2)
    _finish(run, MODELS["models"])
    assert told == [1, 2, "completed"]


def test_a_run_goes_on_without_an_endpoint_whose_port_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def taken(folder: Path) -> Any:
        raise OSError("address already in use")

    run = _recorder(tmp_path, monitor=taken)
    _play(run, 1)
    _finish(run, MODELS["models"])
    assert "no metrics endpoint, the run continues" in caplog.text
    assert read_summary(tmp_path)["status"] == "completed"
