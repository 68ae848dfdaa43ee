"""Similarity in [0, 1] from distances: (n, n) in, (n, n) out."""

import numpy as np

from fl_app.types import Matrix

OUT_OF_SCALE = 2.0
"""A client is out of scale when its median distance is above this multiple of the others' reach."""
REACH = 2 / 3
"""Share of the other clients that the reach of a client covers: liars are fewer than the rest."""
BLOCK_ROWS = 256
"""Rows sorted at a time: their copies stay small beside the matrix."""


def normalised_similarity(
    distance: Matrix, *, exponent: float, odd: np.ndarray | None = None
) -> Matrix:
    """Return `(1 - (v - min) / (max - min))^exponent` (n, n) of distances v, in [0, 1].

    Minimum and maximum are over the pairs of different clients that count; where these are equal
    every such pair is 1. Distances beyond them count as the minimum or the maximum. Diagonal
    0: a client is no neighbour of its own. Raises ValueError for an exponent that is not
    positive. Bettinelli et al., IEEE Big Data 2024.

    The paper takes minimum and maximum over all pairs. One client far from all others then
    brings all other pairs near to 1, and their communities merge. So those clients do not count
    whose last update was `odd` (n,) and who are out of scale besides: `in_scale`. A far group
    of clients that train as the others do sets the scale as in the paper, of which the result
    is where there are no odd ones, or none are told.
    """
    if exponent <= 0:
        raise ValueError(f"exponent must be positive, got {exponent}; the paper's is 3")
    counted = np.ones(len(distance), bool)
    if odd is not None and odd.any():
        counted = ~odd | in_scale(distance)
    pairs = np.outer(counted, counted) & ~np.eye(len(distance), dtype=bool)
    apart = distance[pairs]
    low, high = (apart.min(), apart.max()) if apart.size else (0.0, 0.0)
    similarity: Matrix = nearness(distance, low, high) ** exponent
    np.fill_diagonal(similarity, 0.0)
    return similarity


def nearness(distance: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return `1 - (v - low) / (high - low)` of distances v of any shape, held in [0, 1].

    Where low and high are equal it is 1 up to them and 0 beyond.
    """
    spread = high - low
    near: np.ndarray = (distance <= high).astype(float)
    if spread > 0:
        near = 1.0 - (np.clip(distance, low, high) - low) / spread
    return near


def in_scale(distance: Matrix) -> np.ndarray:
    """Return which clients (n,) are on the scale of the others, by distances (n, n).

    A client is out of scale when its median distance to the others is above OUT_OF_SCALE
    times the median reach of all clients; the reach of a client is the distance that covers
    REACH of the others. The reach spans two groups of like size, which a median would not:
    with seven clients against six it is the distance between the groups. Fewer than a third of
    the clients cannot set it, near each other or not. Medians are the lower of two. Where the
    reach is 0 there is no scale, and every client is on it, as with two clients.
    """
    n = len(distance)
    if n < 3:
        return np.ones(n, bool)
    middle, far = (n - 2) // 2, int(REACH * (n - 2))
    medians, reaches = np.empty((2, n))
    for start in range(0, n, BLOCK_ROWS):
        block = np.array(distance[start : start + BLOCK_ROWS])
        block[np.arange(len(block)), np.arange(start, start + len(block))] = np.inf
        block.partition((middle, far), axis=1)
        medians[start : start + len(block)] = block[:, middle]
        reaches[start : start + len(block)] = block[:, far]
    reach = np.sort(reaches)[(n - 1) // 2]
    within: np.ndarray = medians <= OUT_OF_SCALE * reach
    return within if reach > 0 else np.ones(n, bool)
