"""A client of federated k-means: centroids are the model, Lloyd's iterations the training."""

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from fl_app.client.learner import Learner, TrainingJob, TrainingResult
from fl_app.client.training import Score
from fl_app.kmeans.kfed import local_centroids
from fl_app.kmeans.lloyd import Centroids, LastAssignment, Points, assign, local_update
from fl_app.kmeans.scores import contingency
from fl_app.types import Vector


@dataclass
class Kept:
    """A client's points (p, d) and its last round, stored as long as its data are in memory."""

    points: Points
    memory: LastAssignment
    settings: tuple[int, float]


_kept: Any = WeakTensorKeyDictionary()  # of images to Kept


class CentroidLearner(Learner):
    """Runs Lloyd's algorithm from the received centroids (k, d); see CentroidModel."""

    model_kind = "centroids"
    classifies = False
    scores_training_data = True
    no_privacy = "a clip bound does not fit centroids and counts of points"

    def train(self, job: TrainingJob) -> TrainingResult:
        """Return the client's centroids after its local steps, with their counts as weights.

        `job.task` has `steps`, `tolerance` and `own`. With `own` the client's own centroids are
        found instead, as in the round of k-FED. The loss is the mean squared distance to the
        received centroids.
        """
        began = perf_counter()
        kept, task = _keep(job), job.task
        current = self._centroids(job.start)
        points = kept.points
        labels, squares = assign(points, current)
        if task["own"]:
            seed = int(job.generator.initial_seed() % 2**31)
            centroids, counts = _own(points, len(current), points.shape[1], seed)
        else:
            centroids, counts = local_update(
                points, current, steps=int(task["steps"]), tolerance=float(task["tolerance"]),
                labels=labels, memory=kept.memory,
            )  # fmt: skip
        loss = float(squares.mean()) if len(points) else 0.0
        vector = np.concatenate([centroids.ravel(), counts]).astype(np.float32)
        return TrainingResult(vector, loss, perf_counter() - began)

    def score(self, model: Vector, images: Tensor, labels: Tensor) -> Score:
        """Return mean squared distance, accuracy under the client's own majority, and the table."""
        table, distance = contingency(
            as_points(images), labels.cpu().numpy(), self._centroids(model), classes=self.classes
        )
        right = int(table.max(axis=1).sum())
        return Score(distance, right / max(len(labels), 1), len(labels), table)

    def _centroids(self, model: Vector) -> Centroids:
        """Return the centroids (k, d) in a model, which the counts follow."""
        self.flat.layout.check(model)
        k, length = self.flat.layout.shapes[0]
        return model[: k * length].reshape(k, length).astype(np.float64)


def _keep(job: TrainingJob) -> Kept:
    """Return the stored points of a client's images; its memory is new if settings changed."""
    settings = int(job.task["steps"]), float(job.task["tolerance"])
    kept = _kept.get(job.images)
    if kept is None or kept.settings != settings:
        kept = Kept(as_points(job.images), LastAssignment(), settings)
        _kept[job.images] = kept
    found: Kept = kept
    return found


def _own(points: Points, k: int, length: int, seed: int) -> tuple[Centroids, np.ndarray]:
    """Return the client's local centroids (k, d), padded with zeros, and their counts (k,)."""
    found = local_centroids(points, k, seed=seed, client=0)
    centroids, counts = np.zeros((k, length)), np.zeros(k, int)
    centroids[: len(found)] = found
    if len(found):
        counts[: len(found)] = np.bincount(assign(points, found)[0], minlength=len(found))
    return centroids, counts


def as_points(images: Tensor) -> Points:
    """Return images (s, C, H, W) as points (s, C * H * W)."""
    points: Points = images.contiguous().flatten(1).cpu().numpy().astype(np.float64)
    return points
