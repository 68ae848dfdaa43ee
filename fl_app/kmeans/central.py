"""Central k-means by scikit-learn, with reproducible results."""

from functools import cache
from typing import Any

import numpy as np

from fl_app.kmeans.lloyd import Points


def cluster(
    points: Points, k: int, *, state: int, n_init: int = 1, max_iter: int = 300
) -> Any:  # a KMeans, fitted
    """Return scikit-learn's KMeans fitted to points (p, d): the best of `n_init` starts.

    It runs in one thread, because with several threads the order of summation varies.
    """
    from sklearn.cluster import KMeans

    with _threads().limit(limits=1, user_api="openmp"):
        return KMeans(k, n_init=n_init, max_iter=max_iter, random_state=state).fit(points)


def centroids(points: Points, k: int, *, state: int, n_init: int = 1, max_iter: int = 300) -> Any:
    """Return the centroids (k, d) that `cluster` finds, in float64."""
    found = cluster(points, k, state=state, n_init=n_init, max_iter=max_iter)
    return np.asarray(found.cluster_centers_, np.float64)


@cache
def _threads() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
