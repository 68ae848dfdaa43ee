"""k-FED: k-means in one round, from the clients' local centroids."""

from collections.abc import Sequence

import numpy as np
from scipy.spatial.distance import cdist

from fl_app.aggregation import lower_median
from fl_app.kmeans.central import centroids
from fl_app.kmeans.lloyd import Centroids, Points
from fl_app.rng import generator

POOL_STARTS = 5
"""Starts of k-means on the clients' centroids; the best one is used."""

FEWEST = 3
"""Smallest number of clients in which a majority exists that can judge the others."""
AWAY = 3.0
"""A centroid is far away if it is farther than this multiple of the usual."""


def initial_centroids(per_client: Sequence[Centroids], k: int, *, seed: int) -> Centroids:
    """Return k centroids (k, d) from the clients' local ones, each (k', d) with its own k'.

    Computed by k-means on all of them, as in Holzer et al., 2023. Dennis et al., ICML 2021,
    algorithm 2, do one step from the centroids of a single client and those farthest from them.
    This is accurate if each client has few of the clusters, and inaccurate if each sends k
    centroids. If fewer than k are different, they are repeated. Those of a client that are far away
    count as one (see `pooled`). Raises ValueError without any centroid.
    """
    sent = [each for each in per_client if len(each)]
    if not sent:
        raise ValueError(
            f"at least one of {len(per_client)} clients must send a centroid, got none; give the "
            "clients points"
        )
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

    Of the centroids of a client that are far away (see `remote`) only the mean is used, weighted by
    their counts (k',), with the sum of the counts. This suffices for a cluster that only this
    client has, while k far centroids of a malicious client could determine up to k clusters.
    """
    centroids, weights = list[Centroids](), list[np.ndarray]()
    for own, count, far in zip(per_client, counts, remote(per_client), strict=True):
        centroids.append(own[~far])
        weights.append(count[~far])
        if far.any():
            centroids.append(np.average(own[far], axis=0, weights=count[far])[None, :])
            weights.append(np.array([count[far].sum()]))
    return np.concatenate(centroids).astype(np.float64), np.concatenate(weights)


def remote(per_client: Sequence[Centroids]) -> list[np.ndarray]:
    """Return of each of m clients which of its centroids (k', d) are far from those of the others.

    The remoteness of a centroid: take its distance to the nearest centroid of each other client;
    of these m - 1 distances, it is the `ceil((m - 1) / 4)`-th smallest. Therefore a few malicious
    clients that agree are still far away. A centroid is far away if its remoteness is more than
    AWAY times the usual one, which is the lower median over the clients of the median over their
    centroids. If clients have few clusters in common, all are remote and none is far away. With
    fewer than three clients none is far away.
    """
    if len(per_client) < FEWEST:
        return [np.zeros(len(each), bool) for each in per_client]
    off = [_far_off(per_client, client) for client in range(len(per_client))]
    usual = lower_median(np.array([np.median(each) for each in off]))
    return [each > (AWAY * usual if usual > 0 else np.inf) for each in off]


def _far_off(per_client: Sequence[Centroids], client: int) -> np.ndarray:
    """Return the remoteness of each centroid of a client (k',)."""
    own = per_client[client].astype(np.float64)
    others = [each for place, each in enumerate(per_client) if place != client]
    apart = np.stack([cdist(own, each).min(axis=1) for each in others])
    place = -(-len(others) // 4) - 1
    far: np.ndarray = np.sort(apart, axis=0)[place]
    return far


def start_seed(seed: int, server_round: int) -> int:
    """Return the seed of the initial centroids of a start that begins in a round."""
    return int(generator(seed, purpose="start", round=server_round).integers(2**31))


def local_centroids(points: Points, k: int, *, seed: int, client: int) -> Centroids:
    """Return a client's local centroids by scikit-learn's k-means.

    Their shape is (min(k, number of different points), d).
    """
    count = min(k, len(np.unique(points, axis=0)))
    if not count:
        return np.empty((0, points.shape[1]))
    state = int(generator(seed, purpose="k-FED local", client=client).integers(2**31))
    found: Centroids = centroids(points, count, state=state)
    return found
