"""Similarity of client updates: (n, d) in, (n, n) out."""

import numpy as np

from fl_app.types import Matrix, Vectors


def flic_similarity(updates: Vectors) -> Matrix:
    """Return `s_ij = 1 + cos(u_i, u_j)` (n, n) of updates (n, d), in [0, 2], diagonal 0.

    A client that did not move has no direction: its cosine to all others counts as 0.
    Raises ValueError naming the first update with a NaN or an infinity.
    Espinoza Castellon et al., IJCNN 2022, section 3.2.
    """
    lengths = np.array([np.linalg.norm(update) for update in updates])
    rows = shifted_cosine(updates @ updates.T, lengths, lengths)
    matrix: Matrix = (rows + rows.T) / 2
    np.fill_diagonal(matrix, 0.0)
    return matrix


def shifted_cosine(products: np.ndarray, lengths: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return `1 + p_ij / (l_i o_j)` (m, n) of inner products (m, n), lengths (m,) and (n,).

    In [0, 2]; 1 where a length is 0. Raises ValueError naming the first infinite length.
    """
    # float32 squares overflow above 1e19: the norm then is infinite and is caught here
    if not np.isfinite(lengths).all():
        row = int(np.flatnonzero(~np.isfinite(lengths))[0])
        raise ValueError(
            f"update {row} has norm {lengths[row]}; leave out updates that are not finite"
        )
    scale = np.outer(lengths, others)
    cosine = np.divide(products, scale, out=np.zeros(scale.shape), where=scale > 0)
    rows: np.ndarray = 1.0 + np.clip(cosine, -1.0, 1.0)
    return rows
