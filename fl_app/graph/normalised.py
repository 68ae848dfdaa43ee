"""Similarity in [0, 1] from distances: (n, n) in, (n, n) out."""

import numpy as np

from fl_app.types import Matrix

OUT_OF_SCALE = 2.0
"""A client is out of scale if its median distance is above this multiple of the usual reach."""
REACH = 2 / 3
"""Share of the other clients within the reach of a client; malicious clients are a minority."""
BLOCK_ROWS = 256
"""Rows sorted at a time, so that copies are small compared with the matrix."""


def normalised_similarity(
    distance: Matrix, *, exponent: float, odd: np.ndarray | None = None
) -> Matrix:
    """Return `(1 - (v - min) / (max - min))^exponent` (n, n) of distances v, in [0, 1].

    Minimum and maximum are over the pairs of different clients that are counted; if they are
    equal, every such pair is 1. Other distances are clipped to this range. The diagonal is 0.
    Raises ValueError for an exponent that is not positive. Bettinelli et al., IEEE Big Data 2024.

    In the paper, minimum and maximum are over all pairs. One client far from all others then
    makes the similarity of all other pairs nearly 1, and their communities merge: see
    `sets_scale`. Without odd clients, or with `odd` None, the result is that of the paper.
    """
    if exponent <= 0:
        raise ValueError(f"exponent must be positive, got {exponent}; use 3 as in the paper")
    counted = np.ones(len(distance), bool) if odd is None else sets_scale(distance, odd)
    pairs = np.outer(counted, counted) & ~np.eye(len(distance), dtype=bool)
    apart = distance[pairs]
    low, high = (apart.min(), apart.max()) if apart.size else (0.0, 0.0)
    similarity: Matrix = nearness(distance, low, high) ** exponent
    np.fill_diagonal(similarity, 0.0)
    return similarity


def nearness(distance: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return `1 - (v - low) / (high - low)` of distances v of any shape, clipped to [0, 1].

    If low and high are equal, it is 1 for distances up to them and 0 beyond.
    """
    spread = high - low
    near: np.ndarray = (distance <= high).astype(float)
    if spread > 0:
        near = 1.0 - (np.clip(distance, low, high) - low) / spread
    return near


def sets_scale(distance: Matrix, odd: np.ndarray) -> np.ndarray:
    """Return which clients (n,) are counted in the scale of distances (n, n).

    A client is not if its last update was `odd` (n,) and it is also out of scale: see `in_scale`. A
    distant group of clients without odd updates affects the scale as in the paper.
    """
    return ~odd | in_scale(distance) if odd.any() else ~odd


def in_scale(distance: Matrix) -> np.ndarray:
    """Return which clients (n,) are in scale, by distances (n, n).

    A client is out of scale if its median distance to the others is above OUT_OF_SCALE times the
    median reach of all clients. The reach of a client is the smallest distance within which REACH
    of the others are. With two groups of similar size, such as seven and six clients, the reach
    is the distance between the groups; a median would be a distance within a group. Fewer than a
    third of the clients cannot determine the reach. Medians are lower medians. If the median
    reach is 0, or with fewer than three clients, all clients are in scale.
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
