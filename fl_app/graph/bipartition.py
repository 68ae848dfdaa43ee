"""The bipartition by which CFL splits a cluster: similarities in, two parts out."""

from math import sqrt

import numpy as np

from fl_app.graph.communities import canonical
from fl_app.types import Matrix, Some

BLOCK_ROWS = 256
"""Rows summed at a time, so that copies are small compared with the matrix."""


def bipartition(similarity: Matrix, among: Some | None = None) -> tuple[Some, float]:
    """Return the two parts (m,) with the smallest maximal cross similarity, and this similarity.

    The solution is exact: removing the weakest edge (the first of equal ones) from the maximum
    spanning tree of `similarity` (n, n) leaves the two parts. Only the rows `among` (m,) are used,
    by default all, without a copy. Label 0 is the larger part; for equal sizes, the part with the
    smallest member. Raises ValueError for fewer than two clients.
    Sattler et al., ICASSP 2020, eq. 4.
    """
    rows = np.arange(len(similarity)) if among is None else among
    n = len(rows)
    if n < 2:
        raise ValueError(f"a bipartition needs at least 2 clients, got {n}; do not split them")
    joined, parent = _spanning_tree(similarity, rows)
    weights = similarity[rows[joined[1:]], rows[parent[joined[1:]]]]
    cut = int(weights.argmin()) + 1
    labels = np.zeros(n, int)
    labels[joined[cut]] = 1
    for client in joined[cut + 1 :].tolist():  # parents come before their children
        labels[client] = labels[parent[client]]
    return canonical(labels), float(weights[cut - 1])


def mean_similarities(
    similarity: Matrix, labels: Some, among: Some | None = None
) -> tuple[float, float]:
    """Return the mean similarity of pairs within the two parts and of pairs across them.

    `labels` (m,) are 0 or 1, for the rows `among` (m,) of `similarity` (n, n). The diagonal is
    ignored. NaN if there is no such pair.
    """
    rows = np.arange(len(similarity)) if among is None else among
    part = np.stack([labels == 0, labels == 1], axis=1).astype(np.float64)
    sums = np.zeros((2, 2))
    for start in range(0, len(rows), BLOCK_ROWS):
        some = rows[start : start + BLOCK_ROWS]
        block = similarity[np.ix_(some, rows)].astype(np.float64)
        block[np.arange(len(some)), np.arange(start, start + len(some))] = 0.0
        sums += part[start : start + BLOCK_ROWS].T @ block @ part
    one, two = part.sum(axis=0)
    inside, across = one * (one - 1) + two * (two - 1), 2 * one * two
    within = float(np.trace(sums)) / inside if inside else float("nan")
    between = float(sums[0, 1] + sums[1, 0]) / across if across else float("nan")
    return within, between


def norm_of_mean(shifted: Matrix, norms: np.ndarray, among: Some) -> float:
    """Return the norm of the mean of vectors from their norms (m,) and `1 + cos` (n, n).

    `|mean|^2 = sum_ij |u_i| |u_j| cos_ij / m^2` over the rows `among` (m,) of the matrix, whose
    diagonal is 0. With float32 cosines the error is about 3e-4 of the norms.
    """
    total = 0.0
    for start in range(0, len(among), BLOCK_ROWS):
        some = slice(start, start + BLOCK_ROWS)
        cosine = shifted[np.ix_(among[some], among)].astype(np.float64) - 1.0
        rows = np.arange(len(cosine))
        cosine[rows, start + rows] = 1.0
        total += float(norms[some] @ cosine @ norms)
    return sqrt(max(total, 0.0)) / len(among)


def _spanning_tree(similarity: Matrix, rows: Some) -> tuple[Some, Some]:
    """Return the clients in the order in which Prim's algorithm joins them, and their parents."""
    n = len(rows)
    parent, order = np.zeros(n, int), np.zeros(n, int)
    outside = np.ones(n, bool)
    outside[0] = False
    # the best link of each client to the tree; -inf for clients in the tree
    best = np.where(outside, similarity[rows[0]][rows], -np.inf)
    for place in range(1, n):
        chosen = int(best.argmax())
        order[place], outside[chosen], best[chosen] = chosen, False, -np.inf
        links = similarity[rows[chosen]][rows]
        nearer = outside & (links > best)
        best[nearer], parent[nearer] = links[nearer], chosen
    return order, parent
