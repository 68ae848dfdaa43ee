"""Updates that are far longer than those of the cohort."""

from collections.abc import Sequence

import numpy as np

from fl_app.aggregation import lower_median
from fl_app.types import Vector, Vectors, Weights

FEWEST = 3
"""Replies from which on a majority can be right about the others."""
SHORT = 0.01
"""An update of this share of the received model is the shortest that others are compared with."""
COLUMNS = 65_536
"""Entries brought to double precision at a time."""


def too_long(
    models: Vectors, starts: Sequence[Vector], squares: Weights, *, multiple: float
) -> dict[int, tuple[float, float]]:
    """Return the updates longer than `multiple` times what is usual: their norm, and the usual.

    By row of models (n, d). An update is the model minus the one that the client received,
    `starts` (n) of (d,); `squares` (n,) are at least the squared norms of the models. Where usual
    is zero, nothing is too long.
    """
    received = _received(starts)
    least = received if len(models) < FEWEST else SHORT * received
    if (np.sqrt(squares) + received <= multiple * least).all():
        return {}
    norms, usual = norms_and_usual(models, starts)
    limit = np.where(usual > 0, multiple * usual, np.inf)
    return {int(row): (norms[row], usual[row]) for row in np.flatnonzero(norms > limit)}


def norms_and_usual(models: Vectors, starts: Sequence[Vector]) -> tuple[Weights, Weights]:
    """Return the norms (n,) of the updates, and what each is compared with (n,).

    Usual is the lower median of the cohort's norms, and at least SHORT times the norm of the
    received model: a client that starts to learn again among others that have converged is no
    liar. Where that is zero it is the lower median of the positive norms, and where there are
    none, zero. Fewer than three replies have no majority: there usual is the norm of the
    received model.
    """
    received = _received(starts)
    norms = np.array([_norm(*pair) for pair in zip(models, starts, strict=True)])
    if len(models) < FEWEST:
        return norms, received
    usual = np.maximum(SHORT * received, lower_median(norms))
    if (norms > 0).any():
        usual = np.where(usual > 0, usual, lower_median(norms[norms > 0]))
    return norms, usual


def _received(starts: Sequence[Vector]) -> Weights:
    """Return the norm of each model (d,), worked out once for each that several received."""
    lengths = {id(start): float(np.linalg.norm(start)) for start in starts}
    return np.array([lengths[id(start)] for start in starts])


def _norm(model: Vector, start: Vector) -> float:
    """Return `|model - start|` of vectors (d,), in double precision."""
    total = 0.0
    for first in range(0, len(model), COLUMNS):
        block = slice(first, first + COLUMNS)
        apart = model[block].astype(np.float64) - start[block]
        total += float(np.dot(apart, apart))
    return float(total**0.5)
