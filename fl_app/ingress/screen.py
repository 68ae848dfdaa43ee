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
    `starts` (n) of (d,); `squares` (n,) are at least the squared norms of the models. Usual is the
    lower median of the cohort's norms, and at least SHORT times the norm of the received model: a
    client that starts to learn again among others that have converged is no liar. Where that is
    zero it is the lower median of the positive norms, and where there are none, nothing is too
    long. Fewer than three replies have no majority: there usual is the norm of the received model.
    """
    lengths = {id(start): float(np.linalg.norm(start)) for start in starts}
    received = np.array([lengths[id(start)] for start in starts])
    few = len(models) < FEWEST
    least = received if few else SHORT * received
    if (np.sqrt(squares) + received <= multiple * least).all():
        return {}
    norms = np.array([_norm(*pair) for pair in zip(models, starts, strict=True)])
    usual = least if few else np.maximum(least, lower_median(norms))
    if not few and (norms > 0).any():
        usual = np.where(usual > 0, usual, lower_median(norms[norms > 0]))
    limit = np.where(usual > 0, multiple * usual, np.inf)
    return {int(row): (norms[row], usual[row]) for row in np.flatnonzero(norms > limit)}


def _norm(model: Vector, start: Vector) -> float:
    """Return `|model - start|` of vectors (d,), in double precision."""
    total = 0.0
    for first in range(0, len(model), COLUMNS):
        block = slice(first, first + COLUMNS)
        apart = model[block].astype(np.float64) - start[block]
        total += float(np.dot(apart, apart))
    return float(total**0.5)
