"""Similarity of client updates: (n, d) in, (n, n) out."""

import numpy as np

from fl_app.types import Matrix, SomeVectors, Vectors


def flic_similarity(updates: Vectors) -> Matrix:
    """Return `s_ij = 1 + cos(u_i, u_j)` (n, n) of updates (n, d), in [0, 2], diagonal 0.

    A client that did not move has no direction: its cosine to all others counts as 0.
    Espinoza Castellon et al., IJCNN 2022, section 3.2.
    """
    rows = flic_rows(updates, updates)
    matrix: Matrix = (rows + rows.T) / 2
    np.fill_diagonal(matrix, 0.0)
    return matrix


def flic_rows(updates: SomeVectors, against: Vectors) -> np.ndarray:
    """Return `1 + cos` (m, n) of updates (m, d) against others (n, d), in [0, 2].

    Raises ValueError naming the first row with a NaN or an infinity.
    """
    products = (updates @ against.T).astype(np.float64)
    scale = np.outer(_lengths(updates), _lengths(against))
    cosine = np.divide(products, scale, out=np.zeros_like(products), where=scale > 0)
    rows: np.ndarray = 1.0 + np.clip(cosine, -1.0, 1.0)
    return rows


def _lengths(updates: Vectors) -> np.ndarray:
    # float32 squares overflow above 1e19: the norm then is infinite and is caught here
    lengths = np.array([np.linalg.norm(update) for update in updates], np.float64)
    if not np.isfinite(lengths).all():
        row = int(np.flatnonzero(~np.isfinite(lengths))[0])
        raise ValueError(
            f"update {row} has norm {lengths[row]}; leave out updates that are not finite"
        )
    return lengths
