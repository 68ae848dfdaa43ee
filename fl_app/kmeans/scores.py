"""Scores of federated centroids: distance on each client, agreement over all clients."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Real

from fl_app.aggregation import lower_median, sample_weights
from fl_app.kmeans.lloyd import Centroids, Points, assign

Contingency = Int[np.ndarray, "k c"]
Weighted = Real[np.ndarray, "k c"]
"""Points of each class nearest to each centroid, with the weights of their clients."""


@dataclass(frozen=True)
class Agreement:
    """Agreement of clusters with classes, each in [0, 1]."""

    accuracy: float
    homogeneity: float
    completeness: float
    v_measure: float


def contingency(
    points: Points, labels: Int[np.ndarray, " p"], centroids: Centroids, *, classes: int
) -> tuple[Contingency, float]:
    """Return the number of points of each class nearest to each centroid (k, c), and the mean
    squared distance of a point to its centroid."""
    nearest, squares = assign(points, centroids)
    table = np.zeros((len(centroids), classes), int)
    np.add.at(table, (nearest, labels), 1)
    return table, float(squares.mean()) if len(squares) else 0.0


def agreement(table: Weighted) -> Agreement:
    """Return the agreement of a contingency table (k, c), summed over all clients.

    Accuracy labels each cluster with its most frequent class. Homogeneity and completeness are
    those of Rosenberg and Hirschberg, EMNLP 2007; the v-measure is their harmonic mean. Raises
    ValueError for an empty table.
    """
    total = table.sum()
    if total == 0:
        raise ValueError("the table must count points, got none; evaluate on at least one client")
    shares = table / total
    clusters, classes = shares.sum(axis=1), shares.sum(axis=0)
    both, of_classes, of_clusters = map(_entropy, (shares.ravel(), classes, clusters))
    homogeneity = 1.0 - (both - of_clusters) / of_classes if of_classes > 0 else 1.0
    completeness = 1.0 - (both - of_classes) / of_clusters if of_clusters > 0 else 1.0
    product, together = homogeneity * completeness, homogeneity + completeness
    return Agreement(
        accuracy=float(table[np.arange(len(table)), majority(table)].sum() / total),
        homogeneity=float(homogeneity),
        completeness=float(completeness),
        v_measure=float(2 * product / together) if together > 0 else 0.0,
    )


@dataclass
class Scored:
    """A client's score of the received centroids: table (k, c), distance, number of points."""

    client_id: int
    table: Contingency
    distance: float
    points: int


def pooled(
    scored: Sequence[Scored], *, cap: float, far: float
) -> tuple[dict[str, float], dict[int, float]]:
    """Return the agreement over all clients by name, and the accuracy of each client.

    Each cluster gets the majority class of all its points, and each client is scored by this map.
    A client's points weigh as `cap` times the usual number of a client at most, and a distance
    counts at most `far` times the usual one, since clients report both. Without classes there is
    only a distance.
    """
    scored = sorted(scored, key=lambda each: each.client_id)
    points = np.array([each.points for each in scored], float)
    weights = sample_weights(points, how="capped", cap=cap)
    distances = np.array([each.distance for each in scored])
    usual = lower_median(distances)
    most = far * usual if usual > 0 else np.inf
    found = {"distance": float(np.average(np.minimum(distances, most), weights=weights))}
    shares = weights / points
    table = np.sum([each.table * s for each, s in zip(scored, shares, strict=True)], axis=0)
    if table.shape[1] == 1:
        return found, {}
    right, rows = majority(table), np.arange(len(table))
    accuracy = {
        each.client_id: float(each.table[rows, right].sum() / each.points) for each in scored
    }
    return found | vars(agreement(table)), accuracy


def improvement(
    before: Float[np.ndarray, " n"],
    now: Float[np.ndarray, " n"],
    points: Float[np.ndarray, " n"],
    *,
    cap: float,
) -> float:
    """Return by how much the clients' distances (n,) fall: a trimmed mean of their weighted falls.

    A client weighs by its points, at most `cap` times the usual number. A quarter of the clients at
    each end does not count, of three at least one, since clients report their distances: what a
    liar reports can at most replace one fall of an honest client by another.
    """
    falls = np.sort(sample_weights(points, how="capped", cap=cap) * (before - now))
    out = max(len(falls) // 4, 1) if len(falls) > 2 else 0
    return float(falls[out : len(falls) - out].mean())


def majority(table: Weighted) -> Int[np.ndarray, " k"]:
    """Return the most frequent class of each cluster (k,), the first of equals."""
    found: Int[np.ndarray, " k"] = table.argmax(axis=1)
    return found


def _entropy(shares: Float[np.ndarray, " s"]) -> float:
    positive = shares[shares > 0]
    return float(-(positive * np.log(positive)).sum())
