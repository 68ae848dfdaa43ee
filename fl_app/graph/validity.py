"""Validity of a clustering without ground truth."""

import numpy as np
from sklearn.metrics import silhouette_score

from fl_app.types import Labels, Matrix, Some

BLOCK_ROWS = 256
"""Rows processed at a time, so that copies are small compared with the matrix."""


def silhouette(distance: Matrix, labels: Labels) -> float | None:
    """Return the mean silhouette in [-1, 1] of labels (n,) on distances (n, n).

    None if it is undefined: for one community, or as many communities as clients.
    Rousseeuw, J. Comput. Appl. Math. 1987.
    """
    count = len(np.unique(labels))
    if not 1 < count < len(labels):
        return None
    return float(silhouette_score(distance, labels, metric="precomputed"))


def modularity(similarity: Matrix, labels: Labels, resolution: float = 1.0) -> float:
    """Return `sum_c (e_cc - gamma a_c^2)` of labels (n,) on weights (n, n), at most 1.

    e_cc is the share of the weight within community c, a_c the share of the weight at its
    members. 0 without any weight. Newman, Phys. Rev. E 2004, eq. 5, with gamma as `resolution`.
    """
    total = float(similarity.sum())
    if total == 0:
        return 0.0
    inside = labels[:, None] == labels[None, :]
    degrees = similarity.sum(axis=1)
    expected = np.outer(degrees, degrees) / total
    return float(((similarity - resolution * expected) * inside).sum() / total)


def dunn_index(distance: Matrix, labels: Some, among: Some | None = None) -> float:
    """Return the smallest distance between communities divided by the largest within one.

    For labels (m,) on distances (n, n) of the rows `among` (m,), by default all. Above 1, every
    client is nearer to its own community than to any other. If all distances within communities
    are 0, it is infinite, or 0 if two communities have distance 0. NaN for one community.
    Dunn, J. Cybernetics 1974.
    """
    if len(np.unique(labels)) < 2:
        return float("nan")
    rows = np.arange(len(distance)) if among is None else among
    between, within = np.inf, 0.0
    for start in range(0, len(rows), BLOCK_ROWS):
        some = slice(start, start + BLOCK_ROWS)
        block = distance[np.ix_(rows[some], rows)]
        same = labels[some, None] == labels[None, :]
        within = max(within, float(block.max(where=same, initial=0.0)))
        between = min(between, float(block.min(where=~same, initial=np.inf)))
    if within > 0:
        return between / within
    return float("inf") if between > 0 else 0.0
