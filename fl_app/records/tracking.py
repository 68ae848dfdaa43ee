"""The run in a tool that others look into: scalars of every round, images of the matrices.

rounds.jsonl has everything in any case; a tracker that fails, or takes too long, is dropped and
the run goes on. It works in a thread of its own: an interrupt within its queues or locks would
hold the end of the run.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from logging import getLogger
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import UInt8
from matplotlib import colormaps

from fl_app.records.aside import Aside
from fl_app.types import Labels, Matrix, PositiveInt, Text

log = getLogger(__name__)
T = TypeVar("T")
Pixels = UInt8[np.ndarray, "h w 3"]
LEAST_PIXELS, MOST_PIXELS = 256, 1024
OF_CLIENTS = ("clients", "moved", "failed", "rejected")
"""Parts of a record with an entry per client: too many for scalars."""
PARAMETERS_AT_ONCE = 100
LONGEST_PARAMETER = 500
BUILT_S, CALLED_S, CLOSED_S = 120.0, 30.0, 10.0
"""How long a tracker may take to start (MLflow makes a database), for a call, and to end."""


@dataclass(frozen=True)
class Tracked:
    """The run that is tracked: its folder, the rounds it has behind it, and its settings."""

    folder: Path
    done: int
    identity: Mapping[str, Any]
    settings: Mapping[str, Any]


class Tracker(ABC):
    """A tool that keeps numbers and images by round."""

    @abstractmethod
    def scalars(self, server_round: int, values: Mapping[str, float]) -> None:
        """Keep the numbers of a round by name."""

    @abstractmethod
    def image(self, server_round: int, name: str, pixels: Pixels) -> None:
        """Keep an image (h, w, 3) of a round."""

    @abstractmethod
    def close(self, status: str) -> None:
        """End the run with the status of its summary."""


class NoTracker(Tracker):
    """Keeps nothing."""

    def __init__(self, run: Tracked) -> None:
        pass

    def scalars(self, server_round: int, values: Mapping[str, float]) -> None:
        """Keep nothing."""

    def image(self, server_round: int, name: str, pixels: Pixels) -> None:
        """Keep nothing."""

    def close(self, status: str) -> None:
        """Do nothing."""


class TensorBoard(Tracker):
    """Event files in the run's `tensorboard/`; a resumed run takes back what it replays."""

    def __init__(self, run: Tracked, *, flush_s: PositiveInt) -> None:
        from tensorboardX import SummaryWriter

        self.writer = SummaryWriter(
            str(run.folder / "tensorboard"),
            purge_step=run.done + 1 if run.done else None,
            flush_secs=flush_s,
        )

    def scalars(self, server_round: int, values: Mapping[str, float]) -> None:
        """Add each to the curve of its name."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, server_round)

    def image(self, server_round: int, name: str, pixels: Pixels) -> None:
        """Add the image to the slider of its name."""
        self.writer.add_image(name, pixels, server_round, dataformats="HWC")

    def close(self, status: str) -> None:
        """Write what is left."""
        self.writer.close()


class Mlflow(Tracker):
    """A run of MLflow, in the store at `uri`, by default `mlruns` beside the run's folder.

    The experiment is named `experiment`, by default as the run's own. Needs the extra mlflow.
    """

    def __init__(self, run: Tracked, *, uri: Text | None, experiment: Text | None) -> None:
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            raise ImportError("MLflow is not installed; pip install 'fl-app[mlflow]'") from error
        store = uri or f"sqlite:///{run.folder.parent.resolve() / 'mlflow.db'}"
        self.client = MlflowClient(tracking_uri=store)
        name = experiment or str(run.settings.get("experiment_name", "fl-app"))
        place = run.folder / "mlflow_run.txt"
        if run.done and place.exists():
            self.run_id = place.read_text()
            self.client.update_run(self.run_id, status="RUNNING")
            return
        known = self.client.get_experiment_by_name(name)
        where = known.experiment_id if known else self._create(name, run.folder.parent)
        self.run_id = self.client.create_run(where, run_name=run.folder.name).info.run_id
        place.write_text(self.run_id)
        self._describe(run)

    def _create(self, name: str, folder: Path) -> str:
        artifacts = (folder / "mlartifacts").resolve().as_uri()
        created: str = self.client.create_experiment(name, artifact_location=artifacts)
        return created

    def _describe(self, run: Tracked) -> None:
        """Keep the settings as parameters."""
        from mlflow.entities import Param

        settings = list(_leaves({**run.settings, **run.identity}))
        parameters = [Param(name, str(value)[:LONGEST_PARAMETER]) for name, value in settings]
        for start in range(0, len(parameters), PARAMETERS_AT_ONCE):
            some = parameters[start : start + PARAMETERS_AT_ONCE]
            self.client.log_batch(self.run_id, params=some)

    def scalars(self, server_round: int, values: Mapping[str, float]) -> None:
        """Keep each as a metric, the round as its step."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, server_round) for name, value in values.items()]
        self.client.log_batch(self.run_id, metrics=metrics)

    def image(self, server_round: int, name: str, pixels: Pixels) -> None:
        """Keep the image with the round as its step."""
        self.client.log_image(self.run_id, pixels, key=name, step=server_round)

    def close(self, status: str) -> None:
        """End the run as finished, killed or failed."""
        ends = {"completed": "FINISHED", "interrupted": "KILLED"}
        self.client.set_terminated(self.run_id, ends.get(status, "FAILED"))


class Tracking:
    """Tells a tracker of the rounds, until it fails: that is logged once and costs no run."""

    def __init__(self, build: Callable[[], Tracker]) -> None:
        self._aside = Aside("tracker")
        self._tracker: Tracker | None = None
        self._tracker = self._attempt(build, BUILT_S)

    def round(self, record: Mapping[str, Any]) -> None:
        """Pass on the numbers of a round's record."""
        self._tell(lambda tracker: tracker.scalars(int(record["round"]), scalars(record)))

    def matrix(self, server_round: int, similarity: Matrix, labels: Labels) -> None:
        """Pass on the similarity (n, n), ordered by community (n,), as an image."""
        self._tell(
            lambda tracker: tracker.image(server_round, "similarity", pixels(similarity, labels))
        )

    def close(self, status: str) -> None:
        """End the tracked run."""
        self._tell(lambda tracker: tracker.close(status), CLOSED_S)
        self._aside.end()

    def _tell(self, call: Callable[[Tracker], None], limit_s: float = CALLED_S) -> None:
        tracker = self._tracker
        if tracker is not None:
            self._attempt(lambda: call(tracker), limit_s)

    def _attempt(self, call: Callable[[], T], limit_s: float) -> T | None:
        try:
            return self._aside.call(call, limit_s)
        except Exception as error:  # whatever a tool of others may raise
            why = f"no answer in {limit_s:g} s" if isinstance(error, TimeoutError) else error
            log.warning("tracking stops, the run goes on (rounds.jsonl has it all): %s", why)
            self._tracker = None
            return None


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a record by their path, and how many replies were missing."""
    shown = {name: value for name, value in record.items() if name != "round"}
    found = {
        name: float(value)
        for name, value in _leaves(shown)
        if isinstance(value, int | float) and math.isfinite(value)
    }
    return found | {f"replies/{name}": float(len(record[name])) for name in ("failed", "rejected")}


def _leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if name in OF_CLIENTS:
            continue
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{name}/")
        else:
            yield f"{path}{name}", value


def pixels(similarity: Matrix, labels: Labels) -> Pixels:
    """Return similarity (n, n), ordered by community (n,), as colours (h, w, 3).

    The scale is the middle 98 % of what stands off the diagonal. Few clients are enlarged to
    some 256 pixels; of more than 1,024 every so many are shown.
    """
    n = len(labels)
    order = np.argsort(labels, kind="stable")[:: math.ceil(n / MOST_PIXELS) or 1]
    shown = similarity[np.ix_(order, order)]
    off = shown[~np.eye(len(shown), dtype=bool)]
    low, high = np.percentile(off, [1, 99]) if off.size else (0.0, 1.0)
    scaled = np.clip((shown - low) / max(high - low, 1e-9), 0.0, 1.0)
    times = math.ceil(LEAST_PIXELS / len(shown))
    large = np.repeat(np.repeat(scaled, times, axis=0), times, axis=1)
    colours: Pixels = colormaps["viridis"](large, bytes=True)[..., :3]
    return colours
