"""Spectral clustering of an affinity, with as many parts as fit best, or one."""

import numpy as np

from fl_app.graph.communities import canonical
from fl_app.kmeans.central import cluster
from fl_app.types import Between, Labels, Matrix

SAME = 1e-6
"""Affinities that differ by no more are equal: their eigenvectors are rounding."""


def spectral_parts(affinity: Matrix, *, most: int, below: float, seed: int) -> Labels:
    """Return the part (n,) of each client by the number of parts with the least Davies-Bouldin
    index, from 2 to `most`; all 0 if none is under `below`.

    `affinity` (n, n) is symmetric, in [0, 1], with diagonal 1. Numbered as by `louvain`. A part
    that is a single client counts as one. Equal affinities are one part, as are fewer than three
    clients. Ng, Jordan and Weiss, NeurIPS 2001; Davies and Bouldin, IEEE PAMI 1979.
    """
    from sklearn.metrics import davies_bouldin_score

    n = len(affinity)
    best, found = below, np.zeros(n, int)
    if n < 3 or np.ptp(affinity[~np.eye(n, dtype=bool)]) <= SAME:
        return found
    vectors = leading_vectors(affinity, min(most, n - 1))
    for count in range(2, min(most, n - 1) + 1):
        points = vectors[:, :count]
        lengths = np.linalg.norm(points, axis=1, keepdims=True)
        points = np.divide(points, lengths, out=np.zeros_like(points), where=lengths > 0)
        labels = cluster(points, count, state=seed % 2**32, n_init=10).labels_
        if len(np.unique(labels)) < count:
            continue
        index = float(davies_bouldin_score(points, labels))
        if index < best:
            best, found = index, canonical(labels.astype(int))
    return found


def leading_vectors(affinity: Matrix, count: int) -> Between:
    """Return the eigenvectors (n, count) of `D^-1/2 A D^-1/2` with the largest eigenvalues.

    A is the affinity (n, n) with diagonal 1, D the diagonal matrix of its row sums.
    """
    scale = 1 / np.sqrt(affinity.sum(axis=1))
    scaled = scale[:, None] * affinity.astype(np.float64) * scale
    vectors: Between = np.linalg.eigh(scaled)[1][:, ::-1][:, :count]
    return vectors
