"""k-FED: k-means in one round, from the clients' own centroids."""

from collections.abc import Sequence

import numpy as np

from fl_app.kmeans.lloyd import Centroids, Points, assign
from fl_app.rng import generator


def initial_centroids(per_client: Sequence[Centroids], k: int, *, seed: int) -> Centroids:
    """Return k centroids (k, d) of the clients' own, each (k', d) with its own k'.

    Starts from the centroids of a client drawn by the seed, adds the one farthest from those
    chosen until there are k, and takes the means of all that are nearest to each. Where
    fewer than k differ, the last are repeated. Raises ValueError without any centroid.
    Dennis et al., ICML 2021, algorithm 2.
    """
    pool = [each for each in per_client if len(each)]
    if not pool:
        raise ValueError(f"no client sent a centroid of {len(per_client)}; each needs points")
    everything = np.concatenate(pool).astype(np.float64)
    first = pool[int(generator(seed, purpose="k-FED start").integers(len(pool)))]
    chosen = _farthest(everything, first[:k].astype(np.float64), k)
    labels, _ = assign(everything, chosen)
    counts = np.bincount(labels, minlength=k)
    sums = np.zeros_like(chosen)
    np.add.at(sums, labels, everything)
    return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], chosen)


def _farthest(everything: Centroids, chosen: Centroids, k: int) -> Centroids:
    squares = assign(everything, chosen)[1]
    while len(chosen) < k:
        farthest = everything[int(squares.argmax())][None, :]
        chosen = np.concatenate([chosen, farthest])
        squares = np.minimum(squares, assign(everything, farthest)[1])
    return chosen


def local_centroids(points: Points, k: int, *, seed: int, client: int) -> Centroids:
    """Return a client's own centroids (min(k, p), d), by scikit-learn's k-means."""
    from sklearn.cluster import KMeans

    count = min(k, len(np.unique(points, axis=0)))
    if not count:
        return np.empty((0, points.shape[1]))
    state = int(generator(seed, purpose="k-FED local", client=client).integers(2**31))
    found: Centroids = KMeans(count, n_init=1, random_state=state).fit(points).cluster_centers_
    return found.astype(np.float64)
