"""Bound on how far a client's centroids are from those that it received."""

import numpy as np
from jaxtyping import Float

from fl_app.aggregation import lower_median
from fl_app.kmeans.kfed import AWAY, FEWEST
from fl_app.kmeans.lloyd import Centroids
from fl_app.kmeans.weighting import Local, Shares


def bounded(local: Local, counts: Shares, start: Centroids, *, multiple: float) -> Local:
    """Return the clients' centroids (m, k, d), those far from `start` (k, d) moved nearer to it.

    A centroid is far if it is farther from the start than `multiple` times the usual movement, and
    than AWAY times the usual reach. Of a client with points, by the `counts` (m, k), both are the
    largest of its centroids with points: the movement from the start, the reach from the middle of
    the clients. Usual is the lower median of these clients; of fewer than three there is none. The
    reach tells the spread of the data, to which centroids of honest clients belong; the norm of a
    centroid would tell where the data are. The array is the same if no centroid is far.
    """
    known, full = counts.any(axis=1), counts > 0
    if known.sum() < FEWEST:
        return local
    moved = np.linalg.norm(local - start, axis=2)
    reach = np.linalg.norm(local - _middle(local[known], counts[known]), axis=2)
    limit = max(
        multiple * lower_median(moved.max(axis=1, where=full, initial=0.0)[known]),
        AWAY * lower_median(reach.max(axis=1, where=full, initial=0.0)[known]),
    )
    if limit == 0 or not (moved > limit).any():
        return local
    shares = limit / np.maximum(moved, limit)
    nearer: Local = np.where(
        shares[..., None] < 1, start + (local - start) * shares[..., None], local
    )
    return nearer


def _middle(local: Local, counts: Shares) -> Float[np.ndarray, " d"]:
    """Return the median (d,) of the means of each client's points."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    middle: Float[np.ndarray, " d"] = np.median(np.einsum("mk,mkd->md", shares, local), axis=0)
    return middle
