"""Trackers get the numbers of every round and the matrices; one that fails costs no run."""

import logging
import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl_app.records import tracking
from fl_app.records.history import FIELDS, read_rounds
from fl_app.records.recorder import Recorder
from fl_app.records.tracking import (
    NoTracker,
    Pixels,
    Tracked,
    Tracker,
    Tracking,
    pixels,
    scalars,
)
from fl_app.wiring import made

tensorboard = partial(made, "tracking=tensorboard")
mlflow = partial(made, "tracking=mlflow")

RECORD = dict.fromkeys(FIELDS) | {
    "round": 3,
    "phase": "federated",
    "sampled": [0, 1],
    "failed": {"1": "gone"},
    "rejected": {},
    "train_loss": 0.5,
    "accuracy": {"mean": 0.75, "std": 0.1, "clients": {"0": 0.65, "1": 0.85}},
    "dominance": {"1": 0.75},
    "odd_updates": {"0": 4.0},
    "communities": {"count": 2, "right": True, "ari": None, "sizes": [1, 1], "moved": {"0": [0]},
                    "settled": {"1": {"rounds": 2}}},
    "privacy": {"epsilon": {"max": 2.0, "clients": {"0": 2.0}}, "released": {"0": {"steps": 9}},
                "answered": {"0": {"steps": 1}}, "placed": {"1": {"steps": 1}}},
    "notes": {"alpha_cross": {"0": -0.2}},
    "events": [],
}  # fmt: skip


def test_scalars_are_the_numbers_of_the_record_but_for_those_of_each_client() -> None:
    assert scalars(RECORD) == {
        "train_loss": 0.5,
        "accuracy/mean": 0.75,
        "accuracy/std": 0.1,
        "communities/count": 2.0,
        "communities/right": 1.0,
        "notes/alpha_cross/0": -0.2,
        "privacy/epsilon/max": 2.0,
        "replies/failed": 1.0,
        "replies/rejected": 0.0,
    }


def test_pixels_are_ordered_by_community_and_large_enough_to_see() -> None:
    similarity = np.array([[0, 0.1, 0.9], [0.1, 0, 0.1], [0.9, 0.1, 0]])
    image = pixels(similarity, np.array([0, 1, 0]))
    assert image.shape == (258, 258, 3)
    assert image.dtype == np.uint8
    high, low = image[0, 86], image[0, 257]  # the pair of one community, and another pair
    assert high.tolist() == [253, 231, 36]
    assert low.tolist() == [68, 1, 84]
    assert pixels(np.zeros((1, 1)), np.zeros(1, int)).shape == (256, 256, 3)
    assert pixels(np.zeros((2500, 2500)), np.zeros(2500, int)).shape == (834, 834, 3)


class Broken(Tracker):
    """Works once, then never again."""

    def __init__(self, run: Tracked) -> None:
        self.told = 0

    def scalars(self, server_round: int, values: Mapping[str, float]) -> None:
        self.told += 1
        if self.told > 1:
            raise OSError("disk full")

    def image(self, server_round: int, name: str, pixels: Pixels) -> None:
        raise OSError("disk full")

    def close(self, status: str) -> None:
        raise OSError("disk full")


def _unusable(run: Tracked) -> Tracker:
    raise ConnectionError("no server there")


@pytest.mark.parametrize(("track", "reason"), [(Broken, "disk full"), (_unusable, "no server")])
def test_a_tracker_that_fails_is_logged_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, track: Any, reason: str
) -> None:
    with caplog.at_level(logging.WARNING):
        recorder = _recorder(tmp_path, track)
        for number in (1, 2, 3):
            recorder.round(RECORD | {"round": number})
        recorder.snapshot(3, np.arange(2), np.eye(2), np.arange(2), np.arange(2), None)
        recorder.tracking.close("completed")
    warnings = [message for message in caplog.messages if "tracking stops" in message]
    assert len(warnings) == 1
    assert reason in warnings[0]
    assert [record["round"] for record in read_rounds(tmp_path)] == [1, 2, 3]


def test_a_matrix_of_nobody_is_no_image(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recorder = _recorder(tmp_path, Broken)
    nobody = np.zeros(0, int)
    recorder.snapshot(3, nobody, np.zeros((0, 0)), nobody, nobody, None)
    assert caplog.messages == []


def test_a_tracker_that_hangs_is_left_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    class Hanging(NoTracker):
        def close(self, status: str) -> None:
            go_on.wait(600)

    monkeypatch.setattr(tracking, "CLOSED_S", 0.05)
    with caplog.at_level(logging.WARNING):
        Tracking(lambda: Hanging(_tracked(tmp_path))).close("interrupted")
    go_on.set()
    (warning,) = caplog.messages
    assert warning.endswith("no answer in 0.05 s")


def _recorder(folder: Path, track: Any) -> Recorder:
    return Recorder(
        folder,
        identity={"strategy": "flic", "engine": "inprocess", "seed": 0},
        config_yaml="experiment_name: digits\nclient:\n  epochs: 5\n",
        checkpoint_every=1,
        snapshot_rounds=[],
        resume=False,
        track=track,
    )


def _tracked(folder: Path, done: int = 0) -> Tracked:
    settings = {"experiment_name": "digits", "client": {"epochs": 5}}
    return Tracked(folder, done, {"strategy": "flic"}, settings)


def _tell(tracking: Tracking) -> None:
    tracking.round(RECORD)
    tracking.matrix(3, np.array([[0, 0.5], [0.5, 0]]), np.array([0, 1]))
    tracking.close("completed")


def _events(folder: Path) -> list[Any]:
    from tensorboardX.proto.event_pb2 import Event

    events = []
    for path in sorted((folder / "tensorboard").iterdir()):
        data = path.read_bytes()
        while data:  # length (8 bytes), its checksum (4), the event, its checksum (4)
            length = int.from_bytes(data[:8], "little")
            events.append(Event.FromString(data[12 : 12 + length]))
            data = data[16 + length :]
    return events


def test_tensorboard_finds_scalars_and_images_in_the_folder(tmp_path: Path) -> None:
    _tell(Tracking(lambda: tensorboard(_tracked(tmp_path))))
    values = {v.tag: (e.step, v) for e in _events(tmp_path) for v in e.summary.value}
    step, mean = values["accuracy/mean"]
    assert (step, mean.simple_value) == (3, 0.75)
    step, image = values["similarity"]
    assert (step, image.image.height, image.image.width) == (3, 256, 256)


def test_a_resumed_run_takes_back_what_it_replays(tmp_path: Path) -> None:
    _tell(Tracking(lambda: tensorboard(_tracked(tmp_path, done=2))))
    starts = [e.step for e in _events(tmp_path) if e.HasField("session_log")]
    assert starts == [3]


def test_mlflow_keeps_a_run_in_a_local_store(tmp_path: Path) -> None:
    package = pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    (tmp_path / "run").mkdir()
    _tell(Tracking(lambda: mlflow(_tracked(tmp_path / "run"))))
    client = package.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    where = client.get_experiment_by_name("digits").experiment_id
    (run,) = client.search_runs([where])
    assert run.info.status == "FINISHED"
    settings = {"experiment_name": "digits", "client/epochs": "5", "strategy": "flic"}
    assert run.data.params == settings
    (mean,) = client.get_metric_history(run.info.run_id, "accuracy/mean")
    assert (mean.step, mean.value) == (3, 0.75)
    _tell(Tracking(lambda: mlflow(_tracked(tmp_path / "run", done=2))))  # resumed: the same run
    assert len(client.search_runs([where])) == 1
    images = client.list_artifacts(run.info.run_id, "images")
    assert any("similarity" in image.path for image in images)


def test_without_mlflow_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ImportError, match="install the extra mlflow of fl-app"):
        mlflow(_tracked(tmp_path))
