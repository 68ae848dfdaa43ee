"""Similarity of client updates and distance of their models: (n, d) in, (n, n) out."""

from collections.abc import Callable, Mapping

import numpy as np

from fl_app.params import Layout
from fl_app.types import Between, Matrix, SomeVectors, Vectors

COLUMNS = 65_536
"""Columns brought to double precision at a time: nothing of size (n, d) in double."""
ROUNDING = 1e-12
"""Squared distances below this share of the models' own squares are zero but for rounding."""


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


def trusted_distance(models: Vectors, layout: Layout) -> Matrix:
    """Return `prod_l (1 + |a_l - b_l| / |a_l|) - 1`, the mean of both directions (n, n).

    Over the weight tensors l of two or more dimensions among the trainable parts of models
    (n, d); norms are Frobenius'; in [0, inf), diagonal 0. The paper's formula is not
    symmetric: the mean is our decision, as is leaving biases and norm scales out.
    Raises ValueError naming a tensor whose norm is zero. Bettinelli et al., IEEE Big Data
    2024.
    """
    distance: Matrix = trusted_between(models, models, layout)
    np.fill_diagonal(distance, 0.0)
    return distance


def trusted_between(models: Vectors, others: SomeVectors, layout: Layout) -> Between:
    """Return the trusted distance (n, m) of models (n, d) to others (m, d): `trusted_distance`."""
    there, back = np.zeros((2, len(models), len(others)))
    for name, part in _weights(layout):
        apart = np.sqrt(_squared_distances(models[:, part], others[:, part]))
        there += np.log1p(apart / _lengths(models[:, part], name)[:, None])
        back += np.log1p(apart / _lengths(others[:, part], name)[None, :])
    mean: Between = (np.expm1(there) + np.expm1(back)) / 2
    return mean


def euclidean_between(models: Vectors, others: SomeVectors, layout: Layout) -> Between:
    """Return `|a - b|` (n, m) over the trainable parts of models (n, d) and others (m, d)."""
    part = layout.direction
    distance: Between = np.sqrt(_squared_distances(models[:, part], others[:, part]))
    return distance


def cosine_between(models: Vectors, others: SomeVectors, layout: Layout) -> Between:
    """Return `1 - cos(a, b)` (n, m) in [0, 2] over the trainable parts, 1 where one is zero."""
    part = layout.direction
    lengths = [np.linalg.norm(each[:, part], axis=1) for each in (models, others)]
    products = models[:, part] @ others[:, part].T
    distance: Between = 2.0 - shifted_cosine(products, *lengths)
    return distance


def dcfl_distance(starts: Vectors, ends: Vectors) -> Matrix:
    """Return `|BD| exp(2w)` (n, n) of update vectors A -> B and C -> D; 0 where |BD| = 0.

    `w = ((B - A) - (D - C)) . (B - D) / (|BD| (|AB| + |CD|))` in [-1, 1]: near where the ends
    are, and nearer where the updates bring them together. `starts` and `ends` (n, d);
    symmetric, diagonal 0. From inner products in double precision, never an (n, n, d) array.
    Augello et al., PerCom Workshops 2023, section III.
    """
    distance: Matrix = dcfl_between(starts, ends, starts, ends)
    np.fill_diagonal(distance, 0.0)
    return distance


def dcfl_divergence(starts: Vectors, ends: Vectors) -> Matrix:
    """Return the factor `exp(2w)` (n, n) of `dcfl_distance` alone, diagonal 0.

    Below 1 where updates bring two clients together, above 1 where they part them.
    """
    _, divergence = _dcfl_parts(starts, ends, starts, ends)
    np.fill_diagonal(divergence, 0.0)
    return divergence


def dcfl_between(
    starts: Vectors, ends: Vectors, others: SomeVectors, other_ends: SomeVectors
) -> Between:
    """Return the distance of `dcfl_distance` (n, m) from updates (n, d) to others (m, d)."""
    apart, divergence = _dcfl_parts(starts, ends, others, other_ends)
    distance: Between = apart * divergence
    return distance


Distance = Callable[[Vectors, SomeVectors, Layout], Between]
DISTANCES: Mapping[str, Distance] = {
    "trusted": trusted_between,
    "euclidean": euclidean_between,
    "cosine": cosine_between,
}
"""Distances of models by the name that a configuration gives them."""


def normalised_similarity(distance: Matrix, *, exponent: float = 3.0) -> Matrix:
    """Return `(1 - (v - min) / (max - min))^exponent` (n, n) of distances v, in [0, 1].

    Minimum and maximum are over the pairs of different clients; where these are equal every
    pair is 1. Diagonal 0: a client is no neighbour of its own. Raises ValueError for an
    exponent that is not positive. Bettinelli et al., IEEE Big Data 2024.
    """
    if exponent <= 0:
        raise ValueError(f"exponent must be positive, got {exponent}; the paper's is 3")
    apart = distance[~np.eye(len(distance), dtype=bool)]
    low, high = (apart.min(), apart.max()) if apart.size else (0.0, 0.0)
    spread = high - low
    near = 1.0 - (distance - low) / spread if spread > 0 else np.ones_like(distance)
    similarity: Matrix = np.clip(near, 0.0, 1.0) ** exponent
    np.fill_diagonal(similarity, 0.0)
    return similarity


def _weights(layout: Layout) -> list[tuple[str, slice]]:
    """Return name and place of each trainable tensor of two or more dimensions."""
    ends = np.cumsum(layout.sizes).tolist()
    pieces = zip(layout.names, layout.shapes, layout.sizes, ends, strict=True)
    found = [(name, shape, slice(end - size, end)) for name, shape, size, end in pieces]
    return [(name, part) for name, shape, part in found[: layout.trainable] if len(shape) > 1]


def _squared_distances(models: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return `|a - b|^2` (n, m) from inner products, without an (n, m, d) array.

    In double precision and around the models' mean, since the difference of large products
    would leave nothing of a small distance.
    """
    squares, lengths = np.zeros((2, len(models), len(others)))
    for start in range(0, models.shape[1], COLUMNS):
        a, b = (each[:, start : start + COLUMNS].astype(np.float64) for each in (models, others))
        centre = a.mean(axis=0)
        a, b = a - centre, b - centre
        both = (a * a).sum(1)[:, None] + (b * b).sum(1)[None, :]
        lengths += both
        squares += both - 2.0 * (a @ b.T)
    return _rounded(squares, lengths)


def _rounded(squares: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return squared distances, 0 where all there is may be the rounding of `lengths`."""
    return np.where(squares > ROUNDING * lengths, squares, 0.0)


def _lengths(tensors: np.ndarray, name: str) -> np.ndarray:
    lengths: np.ndarray = np.linalg.norm(tensors, axis=1).astype(np.float64)
    if not lengths.all():
        raise ValueError(
            f"layer {name!r} of model {int(np.argmin(lengths))} is all zero, so the trusted "
            "distance, which divides by its norm, is not defined; give another similarity"
        )
    return lengths


def _dcfl_parts(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return `|BD|` and `exp(2w)`, both (n, m)."""
    squares, around, along = np.zeros((3, len(a), len(c)))
    lengths, others = np.zeros(len(a)), np.zeros(len(c))
    for start in range(0, a.shape[1], COLUMNS):
        part = slice(start, start + COLUMNS)
        ab, cd, b_end, d_end = _differences(a[:, part], b[:, part], c[:, part], d[:, part])
        lengths += (ab * ab).sum(axis=1)
        others += (cd * cd).sum(axis=1)
        both = (b_end**2).sum(1)[:, None] + (d_end**2).sum(1)
        around += both
        squares += both - 2.0 * (b_end @ d_end.T)
        own, theirs = (ab * b_end).sum(1)[:, None], (cd * d_end).sum(1)
        along += own + theirs - ab @ d_end.T - b_end @ cd.T
    apart = np.sqrt(_rounded(squares, around))
    scale = apart * (np.sqrt(lengths)[:, None] + np.sqrt(others)[None, :])
    w = np.divide(along, scale, out=np.zeros_like(along), where=scale > 0)
    return apart, np.exp(2.0 * np.clip(w, -1.0, 1.0))


def _differences(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return updates B - A and D - C, and ends B and D around their mean, in double precision."""
    a, b, c, d = (each.astype(np.float64) for each in (a, b, c, d))
    centre = b.mean(axis=0)
    return b - a, d - c, b - centre, d - centre
