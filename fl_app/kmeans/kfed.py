"""k-FED: k-means in one round, from the clients' own centroids."""

from collections.abc import Sequence

import numpy as np
from scipy.spatial.distance import cdist

from fl_app.aggregation import lower_median
from fl_app.kmeans.central import centroids
from fl_app.kmeans.lloyd import Centroids, Points
from fl_app.rng import generator

POOL_STARTS = 5
"""Starts of k-means over the clients' centroids; the best is kept."""

FEWEST = 3
"""Clients from which on a majority can be right about the others."""
AWAY = 2.0
"""A client stands alone when all its centroids are this many times as far off as is usual."""


def initial_centroids(per_client: Sequence[Centroids], k: int, *, seed: int) -> Centroids:
    """Return k centroids (k, d) of the clients' own, each (k', d) with its own k'.

    By k-means over all of them, as Holzer et al., 2023, run k-FED. Dennis et al., ICML 2021,
    algorithm 2, take one step from the centroids of a single client and those farthest from
    them: right where each client sees few of the clusters, far off where each sends k. Where
    fewer than k differ, they are repeated. A client that stands alone brings one centroid (see
    `pooled`). Raises ValueError without any centroid.
    """
    sent = [each for each in per_client if len(each)]
    if not sent:
        raise ValueError(f"no client sent a centroid of {len(per_client)}; each needs points")
    everything, _ = pooled(sent, [np.ones(len(each)) for each in sent])
    different = np.unique(everything, axis=0)
    if len(different) <= k:
        return np.resize(different, (k, everything.shape[1]))
    state = int(generator(seed, purpose="k-FED start").integers(2**31))
    found: Centroids = centroids(everything, k, state=state, n_init=POOL_STARTS)
    return found


def pooled(
    per_client: Sequence[Centroids], counts: Sequence[np.ndarray]
) -> tuple[Centroids, np.ndarray]:
    """Return the centroids of all clients (p, d), each client (k', d), and their counts (p,).

    A client that stands alone (see `alone`) brings the mean of its centroids by their counts
    (k',), and the sum of these: enough for a cluster that only this client has, while k centroids
    of a liar would take up to k places.
    """
    centroids, weights = list[Centroids](), list[np.ndarray]()
    for own, count, single in zip(per_client, counts, alone(per_client), strict=True):
        mean = np.average(own, axis=0, weights=count)[None, :] if single else own
        centroids.append(mean)
        weights.append(np.array([count.sum()]) if single else count)
    return np.concatenate(centroids).astype(np.float64), np.concatenate(weights)


def alone(per_client: Sequence[Centroids]) -> np.ndarray:
    """Return which clients (m,) have only centroids, each (k', d), that are far from the others'.

    How far off a centroid is: its distance to the nearest centroid of another client, the
    `ceil((m - 1) / 4)`-th smallest of these over the other clients, so that few liars who
    agree are still alone. A client stands alone when its nearest centroid is more than AWAY
    times as far off as usual, which is the lower median of the clients' median centroids.
    Where the clients have few clusters in common, all are far off and nobody stands alone, and
    likewise among fewer than three clients.
    """
    if len(per_client) < FEWEST:
        return np.zeros(len(per_client), bool)
    off = [_far_off(per_client, client) for client in range(len(per_client))]
    usual = lower_median(np.array([np.median(each) for each in off]))
    nearest = np.array([each.min() for each in off])
    found: np.ndarray = nearest > (AWAY * usual if usual > 0 else np.inf)
    return found


def _far_off(per_client: Sequence[Centroids], client: int) -> np.ndarray:
    """Return how far off each centroid of a client is (k',)."""
    own = per_client[client].astype(np.float64)
    others = [each for place, each in enumerate(per_client) if place != client]
    apart = np.stack([cdist(own, each).min(axis=1) for each in others])
    place = -(-len(others) // 4) - 1
    far: np.ndarray = np.sort(apart, axis=0)[place]
    return far


def start_seed(seed: int, server_round: int) -> int:
    """Return the seed by which the start that begins with a round makes its first centroids."""
    return int(generator(seed, purpose="start", round=server_round).integers(2**31))


def local_centroids(points: Points, k: int, *, seed: int, client: int) -> Centroids:
    """Return a client's own centroids (min(k, p), d), by scikit-learn's k-means."""
    count = min(k, len(np.unique(points, axis=0)))
    if not count:
        return np.empty((0, points.shape[1]))
    state = int(generator(seed, purpose="k-FED local", client=client).integers(2**31))
    found: Centroids = centroids(points, count, state=state)
    return found
