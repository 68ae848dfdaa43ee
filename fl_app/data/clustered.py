"""Populations split by clusters of points, for federated k-means."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from fl_app.data import partition
from fl_app.data.datasets import Dataset
from fl_app.data.population import Population
from fl_app.kmeans.central import cluster
from fl_app.kmeans.lloyd import nearest_centroids
from fl_app.rng import generator
from fl_app.types import Count

MOST_STEPS = 5
"""Steps of the k-means that splits the points; Holzer et al. use so few to keep it coarse."""


def non_iid(
    dataset: Dataset,
    *,
    seed: int,
    clients: Count,
    train_samples: Count | None,
    test_samples: Count | None,
) -> Population:
    """Return clients that each have one cluster of a k-means with as many clusters as clients.

    `train_samples` and `test_samples` are means per client; None: all samples. Test samples are
    assigned to the nearest cluster. Holzer et al., 2023, experiments.
    """
    return _split(dataset, seed, clients, train_samples, test_samples, iid_share=0.0)


def half_iid(
    dataset: Dataset,
    *,
    seed: int,
    clients: Count,
    train_samples: Count | None,
    test_samples: Count | None,
) -> Population:
    """Return clients that share one half of the points equally and the other by clusters.

    The second half is assigned as by `non_iid`. Holzer et al., 2023, experiments; the halves are
    as in the published code of the authors.
    """
    return _split(dataset, seed, clients, train_samples, test_samples, iid_share=0.5)


def _split(
    dataset: Dataset,
    seed: int,
    clients: int,
    train_samples: int | None,
    test_samples: int | None,
    *,
    iid_share: float,
) -> Population:
    split = ClusterSplit(dataset, seed, clients, train_samples, test_samples, iid_share)
    # there are no planted groups of clients
    return Population(dataset, Part(split, 0), Part(split, 1), np.full(clients, -1))


class ClusterSplit:
    """The samples of each client, computed when they are first needed."""

    def __init__(
        self,
        dataset: Dataset,
        seed: int,
        clients: int,
        train_samples: int | None,
        test_samples: int | None,
        iid_share: float,
    ) -> None:
        self.dataset, self.seed, self.clients, self.iid_share = dataset, seed, clients, iid_share
        available = (len(dataset.train_labels), len(dataset.test_labels))
        self.counts = [
            count if each is None else clients * partition.samples_each(count, clients, each)
            for count, each in zip(available, (train_samples, test_samples), strict=True)
        ]
        self._lock = threading.Lock()
        self._lists: tuple[list[np.ndarray], list[np.ndarray]] | None = None
        if self.counts[0] * (1 - iid_share) < clients:
            raise ValueError(
                f"{clients} clusters need at least {clients} points, the data set has "
                f"{self.counts[0]}; lower population.clients"
            )
        if not iid_share:
            self._check_points(available[0])

    def _check_points(self, available: int) -> None:
        """Raise ValueError if some clusters would have no points, since too many are the same."""
        _, rows = self._halves(available, self.counts[0], "train split")
        needed = self.clients
        found = self._different(rows[: 4 * needed])  # a few suffice as a rule
        if found < needed:
            found = self._different(rows)
        if found < needed:
            raise ValueError(
                f"{needed} clusters need at least {needed} different points, the data set has "
                f"{found}; lower population.clients"
            )

    def _different(self, rows: np.ndarray) -> int:
        return len(np.unique(_points(self.dataset.train_images, rows), axis=0))

    @property
    def lists(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Training and test samples of each client."""
        with self._lock:
            if self._lists is None:
                self._lists = self._split()
        return self._lists

    def _split(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        data, (train, test) = self.dataset, self.counts
        dealt, clustered = self._halves(len(data.train_labels), train, "train split")
        test_dealt, test_clustered = self._halves(len(data.test_labels), test, "test split")
        state = int(generator(self.seed, purpose="clusters").integers(2**31))
        points = _points(data.train_images, clustered)
        parts = cluster(points, self.clients, state=state, max_iter=MOST_STEPS)
        near = np.empty(0, int)
        if len(test_clustered):
            near = nearest_centroids(
                _points(data.test_images, test_clustered), parts.cluster_centers_
            )
        return (
            self._together(dealt, clustered, parts.labels_),
            self._together(test_dealt, test_clustered, near),
        )

    def _halves(self, available: int, count: int, purpose: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the samples that are shared equally, and those that are split by clusters."""
        order = generator(self.seed, purpose=purpose).permutation(available)[:count]
        cut = round(count * self.iid_share)
        return order[:cut], np.sort(order[cut:])

    def _together(
        self, dealt: np.ndarray, clustered: np.ndarray, labels: np.ndarray
    ) -> list[np.ndarray]:
        hands = np.array_split(dealt, self.clients)
        own = [clustered[labels == client] for client in range(self.clients)]
        return [np.concatenate(both) for both in zip(hands, own, strict=True)]


class Part(Sequence[np.ndarray]):
    """Training or test samples of a split, by client."""

    def __init__(self, split: ClusterSplit, place: int) -> None:
        self.split, self.place = split, place

    def __len__(self) -> int:
        return self.split.clients

    def __getitem__(self, client: Any) -> Any:
        return self.split.lists[self.place][client]


def _points(images: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return some images as points (s, d); a common scale of all pixels changes no cluster."""
    points: np.ndarray = images[indices].reshape(len(indices), -1).astype(np.float32)
    return points
