"""k-FED: k-means in one round, from the clients' own centroids."""

from collections.abc import Sequence

import numpy as np

from fl_app.kmeans.central import centroids
from fl_app.kmeans.lloyd import Centroids, Points
from fl_app.rng import generator

POOL_STARTS = 5
"""Starts of k-means over the clients' centroids; the best is kept."""


def initial_centroids(per_client: Sequence[Centroids], k: int, *, seed: int) -> Centroids:
    """Return k centroids (k, d) of the clients' own, each (k', d) with its own k'.

    By k-means over all of them, as Holzer et al., 2023, run k-FED. Dennis et al., ICML 2021,
    algorithm 2, take one step from the centroids of a single client and those farthest from
    them: right where each client sees few of the clusters, far off where each sends k. Where
    fewer than k differ, they are repeated. Raises ValueError without any centroid.
    """
    pool = [each for each in per_client if len(each)]
    if not pool:
        raise ValueError(f"no client sent a centroid of {len(per_client)}; each needs points")
    everything = np.concatenate(pool).astype(np.float64)
    different = np.unique(everything, axis=0)
    if len(different) <= k:
        return np.resize(different, (k, everything.shape[1]))
    state = int(generator(seed, purpose="k-FED start").integers(2**31))
    found: Centroids = centroids(everything, k, state=state, n_init=POOL_STARTS)
    return found


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
