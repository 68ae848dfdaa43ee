"""Sends the scalars of every round and images of the matrices to TensorBoard or MLflow.

rounds.jsonl has all data in any case. A tracker that fails or takes too long is no longer used,
and the run continues. A tracker runs in a separate thread, because an interrupt within its queues
or locks could block the end of the run.
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

from fl_app.extras import installation
from fl_app.records.aside import Aside
from fl_app.types import Labels, Matrix, PositiveInt, Text

log = getLogger(__name__)
T = TypeVar("T")
Pixels = UInt8[np.ndarray, "h w 3"]
TENSORBOARD = "tensorboard"
"""The folder of the event files."""
LEAST_PIXELS, MOST_PIXELS = 256, 1024
OF_CLIENTS = (
    "clients", "moved", "settled", "failed", "rejected", "dominance", "odd_updates",
    "released", "answered", "placed",
)  # fmt: skip
"""Parts of a record with an entry per client, which are too many for scalars."""
PARAMETERS_AT_ONCE = 100
LONGEST_PARAMETER = 500
BUILT_S, CALLED_S, CLOSED_S = 120.0, 30.0, 10.0
"""Time limits to start a tracker (MLflow creates a database), for a call, and to close it."""


@dataclass(frozen=True)
class Tracked:
    """The tracked run: its folder, the number of completed rounds, and its settings."""

    folder: Path
    done: int
    identity: Mapping[str, Any]
    settings: Mapping[str, Any]


class Tracker(ABC):
    """A tool that stores numbers and images by round."""

    @abstractmethod
    def scalars(self, server_round: int, values: Mapping[str, float]) -> None:
        """Store the numbers of a round by name."""

    @abstractmethod
    def image(self, server_round: int, name: str, pixels: Pixels) -> None:
        """Store an image (h, w, 3) of a round."""

    @abstractmethod
    def close(self, status: str) -> None:
        """End the run with the status of its summary."""


class NoTracker(Tracker):
    """Stores nothing."""

    def __init__(self, run: Tracked) -> None:
        pass

    def scalars(self, server_round: int, values: Mapping[str, float]) -> None:
        """Store nothing."""

    def image(self, server_round: int, name: str, pixels: Pixels) -> None:
        """Store nothing."""

    def close(self, status: str) -> None:
        """Do nothing."""


class TensorBoard(Tracker):
    """Event files in the run's `tensorboard/`; a resumed run replaces the replayed rounds."""

    def __init__(self, run: Tracked, *, flush_s: PositiveInt) -> None:
        from tensorboardX import SummaryWriter

        self.writer = SummaryWriter(
            str(run.folder / TENSORBOARD),
            purge_step=run.done + 1 if run.done else None,
            flush_secs=flush_s,
        )

    def scalars(self, server_round: int, values: Mapping[str, float]) -> None:
        """Add each number to the curve of its name."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, server_round)

    def image(self, server_round: int, name: str, pixels: Pixels) -> None:
        """Add the image to the slider of its name."""
        self.writer.add_image(name, pixels, server_round, dataformats="HWC")

    def close(self, status: str) -> None:
        """Write the remaining data."""
        self.writer.close()


class Mlflow(Tracker):
    """A run of MLflow, in the store at `uri`, by default `mlflow.db` next to the run's folder.

    The name of the experiment is `experiment`, by default that of the run. Needs the extra mlflow.
    """

    def __init__(self, run: Tracked, *, uri: Text | None, experiment: Text | None) -> None:
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            raise ImportError(
                f"tracking=mlflow needs the package mlflow; {installation('mlflow')}"
            ) from error
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
        """Store the settings as parameters."""
        from mlflow.entities import Param

        settings = list(_leaves({**run.settings, **run.identity}))
        parameters = [Param(name, str(value)[:LONGEST_PARAMETER]) for name, value in settings]
        for start in range(0, len(parameters), PARAMETERS_AT_ONCE):
            some = parameters[start : start + PARAMETERS_AT_ONCE]
            self.client.log_batch(self.run_id, params=some)

    def scalars(self, server_round: int, values: Mapping[str, float]) -> None:
        """Store each number as a metric, with the round as its step."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, server_round) for name, value in values.items()]
        self.client.log_batch(self.run_id, metrics=metrics)

    def image(self, server_round: int, name: str, pixels: Pixels) -> None:
        """Store the image with the round as its step."""
        self.client.log_image(self.run_id, pixels, key=name, step=server_round)

    def close(self, status: str) -> None:
        """End the run as finished, killed or failed."""
        ends = {"completed": "FINISHED", "interrupted": "KILLED"}
        self.client.set_terminated(self.run_id, ends.get(status, "FAILED"))


class Tracking:
    """Sends the rounds to a tracker until it fails; a failure is logged once."""

    def __init__(self, build: Callable[[], Tracker]) -> None:
        self._aside = Aside("tracker")
        self._tracker: Tracker | None = None
        self._tracker = self._attempt(build, BUILT_S)

    def round(self, record: Mapping[str, Any]) -> None:
        """Send the numbers of a round's record."""
        self._tell(lambda tracker: tracker.scalars(int(record["round"]), scalars(record)))

    def matrix(self, server_round: int, similarity: Matrix, labels: Labels) -> None:
        """Send the similarity (n, n), ordered by community (n,), as an image; of nobody, none."""
        if not len(labels):
            return
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
        except Exception as error:  # an external tool can raise anything
            why = f"no answer in {limit_s:g} s" if isinstance(error, TimeoutError) else error
            log.warning("tracking stops, the run continues (rounds.jsonl has all data): %s", why)
            self._tracker = None
            return None


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a record by path, and the numbers of missing replies."""
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

    The scale is the middle 98 % of the off-diagonal values. The image of few clients is enlarged to
    about 256 pixels; of more than 1,024 clients, a regular subset is shown.
    """
    from matplotlib import colormaps

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
