"""Partitions of a similarity (n, n) in [0, 1], of which `significant` keeps the splits."""

from functools import partial

import numpy as np

from fl_app.graph.communities import (
    CommunityDetection,
    Linkage,
    affinity_propagation,
    canonical,
    louvain,
)
from fl_app.graph.significant import Partition
from fl_app.types import Labels, Matrix


def by_modularity(clients: int, *, how: CommunityDetection) -> Partition:
    """Return `louvain` for the communities of so many clients, for many by a fast backend.

    Their communities are looked into with the same backend, although they are smaller: there are
    many of them.
    """
    backend = how.backend if clients <= how.sparse_above else how.quick
    return partial(louvain, backend=backend, resolution=how.resolution, seed=how.seed)


def by_exemplars(
    similarity: Matrix, *, damping: float, preference: float | None, seed: int
) -> Labels:
    """Return the communities (n,) of `affinity_propagation` on the distance 1 - similarity."""
    distance = 1.0 - similarity
    np.fill_diagonal(distance, 0.0)
    return affinity_propagation(distance, damping=damping, preference=preference, seed=seed)


def by_merging(similarity: Matrix, *, linkage: Linkage, resolution: float) -> Labels:
    """Return the communities (n,) of the merge tree of 1 - similarity, cut by modularity.

    Of the n partitions of the tree it is the one with the largest
    `sum_c (w_c / w - resolution (d_c / w)^2)`, with w the sum of the similarities (n, n), w_c of
    those inside community c, and d_c of the rows of its members; the coarsest of equals. A
    threshold of distance has no fixed meaning, since noise moves all distances towards 1. Numbered
    as by `canonical`.
    """
    from scipy.cluster import hierarchy

    n, rows = len(similarity), np.triu_indices(len(similarity), 1)
    if n < 2 or not similarity[rows].any():
        return np.zeros(n, int)
    merges = hierarchy.linkage(1.0 - similarity[rows], linkage)
    gains = _gains(similarity, merges[:, :2].astype(int), resolution)
    heights = np.concatenate([[0.0], np.cumsum(gains)])
    # rounding does not decide between equals
    made = int(np.flatnonzero(heights >= heights.max() - 1e-12)[-1])
    labels = np.arange(n)
    for place, (one, other) in enumerate(merges[:made, :2].astype(int)):
        labels[(labels == one) | (labels == other)] = n + place
    return canonical(labels)


def _gains(similarity: Matrix, merges: np.ndarray, resolution: float) -> np.ndarray:
    """Return what each of the merges (n - 1, 2) adds to the modularity (n - 1,)."""
    n = len(similarity)
    shares = similarity.astype(np.float64)
    np.fill_diagonal(shares, 0.0)
    shares /= shares.sum()
    degrees, place = shares.sum(axis=1), {row: row for row in range(n)}
    gains = np.empty(n - 1)
    for step, (one, other) in enumerate(merges.tolist()):
        a, b = place.pop(one), place.pop(other)
        gains[step] = 2 * (shares[a, b] - resolution * degrees[a] * degrees[b])
        shares[a] += shares[b]
        shares[:, a] += shares[:, b]
        degrees[a] += degrees[b]
        place[n + step] = a
    return gains
