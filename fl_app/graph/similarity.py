"""Similarity of client updates and distance of their models: (n, d) in, (n, n) out."""

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from fl_app.graph.pairwise import inner_products, squared_distances, squared_lengths
from fl_app.graph.table import Table, narrow
from fl_app.params import Layout
from fl_app.types import Between, Matrix, SomeVectors, Vectors

FARTHEST = 1e30
"""Where the trusted distance ends: a snapshot's float32 holds it, and sums of it, too."""


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

    In [0, 2]; 1 where a length is 0. Raises ValueError naming the first of `lengths` that is
    infinite or NaN. Rows whose norm is below 1e18 have finite products and lengths in float32.
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
    (n, d); norms are Frobenius'. In [0, FARTHEST], diagonal 0, and finite for all finite
    models. The paper's formula is not symmetric: the mean is our decision, as is leaving
    biases and norm scales out. A tensor of zeros has no scale: the other model's norm takes
    its place, so that the ratio is 1, and 0 where both are zero. Bettinelli et al., IEEE Big
    Data 2024.
    """
    return trusted_between(models, models, layout)


def trusted_between(
    models: Vectors | Table,
    others: SomeVectors | Table,
    layout: Layout,
    *,
    own: np.ndarray | None = None,
    lengths: tuple[np.ndarray, np.ndarray] | None = None,
) -> Between:
    """Return the trusted distance (n, m) of models (n, d) to others (m, d): `trusted_distance`.

    `own` (n,) says which of the others each model is; `lengths`, where they are known, are the
    norms of the l tensors of `weight_parts` in models (l, n) and others (l, m).
    """
    there, back = np.zeros((2, len(models), len(others)))
    for place, part in enumerate(weight_parts(layout)):
        ours, theirs = narrow(models, part), narrow(others, part)
        same = others is models
        apart = np.sqrt(squared_distances(ours, theirs, same=same, own=own))
        if lengths is None:
            ones, twos = np.sqrt(squared_lengths(ours)), np.sqrt(squared_lengths(theirs))
        else:
            ones, twos = lengths[0][place], lengths[1][place]
        there += _log_ratio(apart, ones[:, None], twos[None, :])
        back += _log_ratio(apart, twos[None, :], ones[:, None])
    # the product of many layers overflows where its logarithm does not
    most = np.log1p(FARTHEST)
    mean: Between = (np.expm1(np.minimum(there, most)) + np.expm1(np.minimum(back, most))) / 2
    return mean


def euclidean_between(
    models: Vectors | Table,
    others: SomeVectors | Table,
    layout: Layout,
    *,
    own: np.ndarray | None = None,
) -> Between:
    """Return `|a - b|` (n, m) over the trainable parts of models (n, d) and others (m, d).

    Each pair is right however far other models lie: see `pairwise.refined`. `own` (n,) says
    which of the others each model is.
    """
    ours, theirs = narrow(models, layout.direction), narrow(others, layout.direction)
    same = others is models
    distance: Between = np.sqrt(squared_distances(ours, theirs, same=same, own=own))
    return distance


def cosine_between(models: Vectors | Table, others: SomeVectors | Table, layout: Layout) -> Between:
    """Return `1 - cos(a, b)` (n, m) in [0, 2] over the trainable parts, 1 where one is zero."""
    ours, theirs = narrow(models, layout.direction), narrow(others, layout.direction)
    lengths = [np.sqrt(squared_lengths(each)) for each in (ours, theirs)]
    distance: Between = 2.0 - shifted_cosine(inner_products(ours, theirs), *lengths)
    return distance


Distance = Callable[[Vectors, SomeVectors, Layout], Between]
UpdateDistance = Literal["euclidean", "cosine"]
"""Distances of updates as of models, which are nearly the same among sketches."""
ModelDistance = Literal["trusted", UpdateDistance]
DISTANCES: Mapping[str, Distance] = {
    "trusted": trusted_between,
    "euclidean": euclidean_between,
    "cosine": cosine_between,
}
"""Distances of models by the name that a configuration gives them."""


def weight_parts(layout: Layout) -> list[slice]:
    """Return the place of each trainable tensor of two or more dimensions."""
    ends = np.cumsum(layout.sizes).tolist()
    pieces = zip(layout.shapes, layout.sizes, ends, strict=True)
    found = [(shape, slice(end - size, end)) for shape, size, end in pieces]
    return [part for shape, part in found[: layout.trainable] if len(shape) > 1]


def _log_ratio(apart: np.ndarray, scale: np.ndarray, instead: np.ndarray) -> np.ndarray:
    """Return `log(1 + apart / scale)` (n, m), by `instead` where the scale is 0; 0 where both."""
    used = np.broadcast_to(np.where(scale > 0, scale, instead), apart.shape)
    ratio = np.divide(apart, used, out=np.zeros(apart.shape), where=used > 0)
    logarithm: np.ndarray = np.log1p(ratio)
    return logarithm
