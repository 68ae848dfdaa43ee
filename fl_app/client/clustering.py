"""A client of federated k-means: its centroids are the model, Lloyd's steps its training."""

from time import perf_counter

import numpy as np
import torch
from torch import Tensor, nn

from fl_app.client.trainer import Job, Outcome
from fl_app.client.training import Score
from fl_app.kmeans.kfed import local_centroids
from fl_app.kmeans.lloyd import Centroids, Points, assign, local_update
from fl_app.kmeans.scores import contingency


class CentroidModel(nn.Module):
    """Centroids (k, d) as parameters, and as a buffer how many points weigh each of them (k,).

    Forward gives minus the squared distance (s, k): the nearest centroid is the answer.
    """

    def __init__(self, k: int, length: int) -> None:
        super().__init__()
        self.classes = k
        self.centroids = nn.Parameter(torch.randn(k, length))
        self.register_buffer("counts", torch.zeros(k))

    def forward(self, images: Tensor) -> Tensor:
        return -torch.cdist(images.flatten(1), self.centroids).square()


def train_centroids(module: CentroidModel, job: Job) -> Outcome:
    """Return the client's centroids after its local steps, with the counts that weigh them.

    `job.task` holds `steps` and `tolerance`, and `own`: then the client's own centroids are
    found instead, as k-FED's only round needs them. The loss is the mean squared distance to
    the centroids that came in.
    """
    began = perf_counter()
    points, task = as_points(job.images), job.task
    k, length = module.centroids.shape
    current = job.start[: k * length].reshape(k, length)
    loss = float(assign(points, current.astype(np.float64))[1].mean()) if len(points) else 0.0
    if task["own"]:
        seed = int(job.generator.initial_seed() % 2**31)
        centroids, counts = _own(points, k, length, seed)
    else:
        centroids, counts = local_update(
            points, current, steps=int(task["steps"]), tolerance=float(task["tolerance"])
        )
    vector = np.concatenate([centroids.ravel(), counts]).astype(np.float32)
    return Outcome(vector, loss, perf_counter() - began)


def _own(points: Points, k: int, length: int, seed: int) -> tuple[Centroids, np.ndarray]:
    """Return the client's own centroids, filled up with zeros (k, d), and their points (k,)."""
    found = local_centroids(points, k, seed=seed, client=0)
    centroids, counts = np.zeros((k, length)), np.zeros(k, int)
    centroids[: len(found)] = found
    if len(found):
        counts[: len(found)] = np.bincount(assign(points, found)[0], minlength=len(found))
    return centroids, counts


def score_centroids(
    module: CentroidModel, images: Tensor, labels: Tensor, *, classes: int
) -> Score:
    """Return mean squared distance, accuracy under the client's own majority, and the table."""
    centroids = module.centroids.detach().cpu().numpy().astype(np.float64)
    table, distance = contingency(
        as_points(images), labels.cpu().numpy(), centroids, classes=classes
    )
    right = int(table.max(axis=1).sum())
    return Score(distance, right / max(len(labels), 1), len(labels), table)


def as_points(images: Tensor) -> Points:
    """Return images (s, C, H, W) as points (s, C * H * W)."""
    points: Points = images.contiguous().flatten(1).cpu().numpy().astype(np.float64)
    return points
