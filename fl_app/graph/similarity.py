"""Similarity of client updates and distance of their models: (n, d) in, (n, n) out."""

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from fl_app.graph.pairwise import inner_products, squared_distances, squared_lengths
from fl_app.graph.table import Table, narrow
from fl_app.params import Layout
from fl_app.types import Between, Labels, Matrix, SomeVectors, Vectors

FARTHEST = 1e30
"""Upper limit of the trusted distance; float32 can represent it and sums of it."""


def flic_similarity(updates: Vectors) -> Matrix:
    """Return `s_ij = 1 + cos(u_i, u_j)` (n, n) of updates (n, d), in [0, 2], diagonal 0.

    The update of a client that did not move has no direction; its cosine to all others is 0.
    Raises ValueError for an update whose float32 norm is not finite.
    Espinoza Castellon et al., IJCNN 2022, section 3.2.
    """
    lengths = np.array([np.linalg.norm(update) for update in updates])
    rows = shifted_cosine(updates @ updates.T, lengths, lengths)
    matrix: Matrix = (rows + rows.T) / 2
    np.fill_diagonal(matrix, 0.0)
    return matrix


def shifted_cosine(products: np.ndarray, lengths: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return `1 + p_ij / (l_i o_j)` (m, n) of inner products p (m, n), lengths l (m,) and o (n,).

    Clipped to [0, 2]; 1 if a length is 0. Raises ValueError for the first of `lengths` that is
    infinite or NaN; `others` must be finite and are not checked. Rows with a norm below 1e18 have
    finite products and lengths in float32.
    """
    # float32 squares overflow above 1e19; then the norm is infinite
    if not np.isfinite(lengths).all():
        row = int(np.flatnonzero(~np.isfinite(lengths))[0])
        raise ValueError(
            f"norms must be finite, got {lengths[row]} for update {row}; reject such updates before"
        )
    scale = np.outer(lengths, others)
    cosine = np.divide(products, scale, out=np.zeros(scale.shape), where=scale > 0)
    rows: np.ndarray = 1.0 + np.clip(cosine, -1.0, 1.0)
    return rows


def trusted_distance(models: Vectors, layout: Layout) -> Matrix:
    """Return `prod_l (1 + |a_l - b_l| / |a_l|) - 1`, the mean of both directions (n, n).

    The product is over the trainable weight tensors l with two or more dimensions of models
    (n, d), with Frobenius norms. In [0, FARTHEST], diagonal 0, and finite for all finite models.
    Two choices differ from the paper: its formula is not symmetric, so we use the mean, and we
    ignore biases and norm scales. For a tensor of zeros the norm of the other model is used
    instead, so that the ratio is 1, or 0 if both are zero. Bettinelli et al., IEEE Big Data 2024.
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

    `own` (n,) is the index of each model among the others. `lengths`, if known, are the norms of
    the l tensors of `weight_parts` in models (l, n) and others (l, m).
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
    # the product over many layers can overflow, its logarithm cannot
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

    Each pair is accurate even if other models are far away (see `pairwise.refined`). `own` (n,)
    is the index of each model among the others.
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
"""Distances of models by their name in the configuration."""


def weight_parts(layout: Layout) -> list[slice]:
    """Return the slice of each trainable tensor with two or more dimensions."""
    trainable = list(layout.parts.values())[: layout.trainable]
    pairs = zip(trainable, layout.shapes, strict=False)
    return [part for part, shape in pairs if len(shape) > 1]


def ignored(layout: Layout) -> Labels:
    """Return the entries of a model that the trusted distance ignores: biases, scales, buffers."""
    every = np.ones(layout.size, bool)
    for part in weight_parts(layout):
        every[part] = False
    return np.flatnonzero(every)


def _log_ratio(apart: np.ndarray, scale: np.ndarray, instead: np.ndarray) -> np.ndarray:
    """Return `log(1 + apart / scale)` (n, m), with `instead` for a scale of 0; 0 if both are 0."""
    used = np.broadcast_to(np.where(scale > 0, scale, instead), apart.shape)
    ratio = np.divide(apart, used, out=np.zeros(apart.shape), where=used > 0)
    logarithm: np.ndarray = np.log1p(ratio)
    return logarithm
