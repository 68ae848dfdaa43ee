"""Aggregation of many models to one, and weights of clients."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from fl_app.types import Vector, Vectors, Weights

Rule = Callable[[Vectors, Weights], Vector]
"""An aggregation rule: models (n, d) and their weights (n,) to one model (d,)."""


SMOOTHING = 1e-5
"""Smallest distance in the geometric median, as a share of the median distance to its start."""
MOST_ITERATIONS = 100
TINY = 1e-300
COLUMNS = 16_384
"""Columns converted to double precision at a time, to avoid an array (n, d) of doubles."""


def weighted_mean(vectors: Vectors, weights: Weights) -> Vector:
    """Return `sum_i w_i v_i / sum_i w_i` (d,) of vectors (n, d) and weights (n,).

    If all weights are zero, it is the plain mean. An entry in which all vectors with a weight are
    equal is their value, bit for bit. Finite for all finite weights and for vectors with norm below
    1e18. Raises ValueError for weights that are negative, infinite or NaN. McMahan et al., AISTATS
    2017, algorithm 1.
    """
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(
            f"weights must be finite and non-negative, got {weights.tolist()}; "
            "use the numbers of samples"
        )
    # scaling by a power of two is exact; a sum of the largest doubles would overflow
    scaled = np.ldexp(weights, -np.frexp(weights.max())[1])
    shares = scaled if scaled.any() else np.ones(len(weights))
    mean: Vector = (shares / float(shares.sum())).astype(np.float32) @ vectors
    keep_equal(mean, vectors, np.flatnonzero(shares))
    return mean


def keep_equal(mean: Vector, vectors: Vectors, rows: np.ndarray) -> None:
    """Set the entries of a mean (d,) in which the `rows` of vectors (n, d) are equal to this value.

    In place. Shares in float32 add up to 1 only nearly, so that a constant such as a mask of -1e9
    would drift from round to round.
    """
    first, same = vectors[rows[0]], np.arange(len(mean))
    for number, row in enumerate(rows[1:].tolist()):
        other = vectors[row]
        same = same[other[same] == first[same]] if number else np.flatnonzero(other == first)
        if not len(same):  # a loop over thousands of rows takes longer than their mean
            return
    mean[same] = first[same]


def median(vectors: Vectors, weights: Weights) -> Vector:
    """Return the coordinate-wise median (d,) of vectors (n, d).

    The weights are not used, since a client could claim any number of samples; they are an
    argument of every rule. Yin et al., ICML 2018, option I.
    """
    middle: Vector = np.median(vectors, axis=0).astype(np.float32)
    return middle


def geometric_median(vectors: Vectors, weights: Weights) -> Vector:
    """Return an approximation of the point (d,) with the least sum of distances to vectors (n, d).

    Computed by Weiszfeld iterations in double precision, from the coordinate-wise median. With nu =
    SMOOTHING times the median distance to this start, vectors nearer than nu count as the point
    itself: it stays if the others do not pull it away, else it moves by the rule of Vardi and
    Zhang, PNAS 2000. The iterations end after a step of at most nu, or after
    MOST_ITERATIONS. A minority of vectors cannot make the start or nu arbitrarily large. If more
    than half of the vectors are equal, the result is their value; for two vectors it is the
    midpoint. The weights are not used, as in `median`. This is algorithm 2 of Pillutla et al., IEEE
    TSP 2022, with equal weights, another start and this rule instead of its smoothing, which
    leaves a start at one of the vectors only slowly.
    """
    middle = median(vectors, weights).astype(np.float64)
    distances = _distances(vectors, middle)
    least = SMOOTHING * float(np.median(distances))
    if least == 0:
        return middle.astype(np.float32)
    for _ in range(MOST_ITERATIONS):
        apart = distances > least
        inverse = np.where(apart, 1.0 / np.maximum(distances, least), 0.0)
        step = _mixture(vectors, inverse / inverse.sum()) - middle
        length = float(np.linalg.norm(step))
        stay = np.count_nonzero(~apart) / max(length * inverse.sum(), TINY)
        share = max(0.0, 1.0 - stay)
        middle += share * step
        if share * length <= least:
            break
        distances = _distances(vectors, middle)
    return middle.astype(np.float32)


WITHOUT_WEIGHTS: tuple[Rule, ...] = (median, geometric_median)
"""The rules of this module that do not use the weights."""


def _distances(vectors: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Return `|v - p|` (n,) of vectors (n, d) to a point (d,), in double precision."""
    squares = np.zeros(len(vectors))
    for start in range(0, len(point), COLUMNS):
        part = slice(start, start + COLUMNS)
        away = vectors[:, part] - point[part]
        squares += np.einsum("nd,nd->n", away, away)
    return np.sqrt(squares)


def _mixture(vectors: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return `sum_i s_i v_i` (d,) of vectors (n, d) and shares (n,), in double precision."""
    parts = range(0, vectors.shape[1], COLUMNS)
    return np.concatenate([shares @ vectors[:, at : at + COLUMNS].astype(float) for at in parts])


def lower_median(values: Weights) -> float:
    """Return the median of values (n,); for even n, the lower one of the two middle values.

    It stays bounded if at most half of the values are arbitrarily large.
    """
    return float(np.sort(values)[(len(values) - 1) // 2])


Weighting = Literal["samples", "uniform", "capped"]
"""The weight of a client's model in a mean: see `sample_weights`."""


def sample_weights(samples: Weights, *, how: Weighting, cap: float) -> Weights:
    """Return the weights (n,) of clients from their numbers of samples (n,).

    `samples`: the number of samples; `uniform`: 1; `capped`: the number of samples, at most `cap`
    times the lower median of the positive numbers of all replies of a round, which limits the
    effect of any claim.
    """
    if how == "uniform":
        return np.ones(len(samples))
    positive = samples[samples > 0]
    if how == "samples" or not len(positive):
        return samples.astype(float)
    bounded: Weights = np.minimum(samples, cap * lower_median(positive))
    return bounded


def dominant(weights: Weights) -> tuple[int, float] | None:
    """Return index and share of the weight (n,) that is more than half of their sum, else None.

    None also for a single weight.
    """
    total = float(weights.sum())
    place = int(weights.argmax())
    if len(weights) < 2 or not weights[place] > total / 2:
        return None
    return place, float(weights[place] / total)
