"""Many models in, one model out."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from fl_app.types import Vector, Vectors, Weights

Rule = Callable[[Vectors, Weights], Vector]
"""An aggregation rule: models (n, d) and their weights (n,) to one model (d,)."""


SMOOTHING = 1e-5
"""Share of the median distance below which the geometric median takes a distance as this long."""
MOST_ITERATIONS = 100
COLUMNS = 16_384
"""Columns brought to double precision at a time: nothing of size (n, d) in double."""


def weighted_mean(vectors: Vectors, weights: Weights) -> Vector:
    """Return `sum_i w_i v_i / sum_i w_i` (d,) of vectors (n, d) and weights (n,).

    Weights that are all zero say nothing of the clients: then it is the plain mean. Finite
    for all finite weights and for vectors of norm below 1e18. Raises ValueError for weights
    that are negative, infinite or NaN. McMahan et al., AISTATS 2017, algorithm 1.
    """
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(
            f"weights must be finite and non-negative, got {weights.tolist()}; "
            "weigh clients by their number of samples"
        )
    # by a power of two, which rounds nothing: a sum of the largest doubles would overflow
    scaled = np.ldexp(weights, -np.frexp(weights.max())[1])
    shares = scaled if scaled.any() else np.ones(len(weights))
    mean: Vector = (shares / float(shares.sum())).astype(np.float32) @ vectors
    return mean


def median(vectors: Vectors, weights: Weights) -> Vector:
    """Return the coordinate-wise median (d,) of vectors (n, d).

    The weights are there so that every rule has one form. They are not used: a client could
    claim any number of samples. Yin et al., ICML 2018, option I.
    """
    middle: Vector = np.median(vectors, axis=0).astype(np.float32)
    return middle


def geometric_median(vectors: Vectors, weights: Weights) -> Vector:
    """Return the point (d,) with the least sum of distances to vectors (n, d).

    By Weiszfeld's iterations from the coordinate-wise median, in double precision. Distances
    below SMOOTHING of the median distance to that start count as this long, and the
    iterations end with a step that is shorter. A minority of vectors sets neither, whatever
    it holds. Where more than half of the vectors are equal, it is their value; of two vectors
    it is the midpoint. The weights are not used, as in `median`, so this is algorithm 2 of
    Pillutla et al., IEEE TSP 2022, with equal weights, another start and relative smoothing.
    """
    middle = median(vectors, weights).astype(np.float64)
    distances = _distances(vectors, middle)
    least = SMOOTHING * float(np.median(distances))
    if least == 0:
        return middle.astype(np.float32)
    for _ in range(MOST_ITERATIONS):
        pulls = 1.0 / np.maximum(distances, least)
        before, middle = middle, _mixture(vectors, pulls / pulls.sum())
        if np.linalg.norm(middle - before) <= least:
            break
        distances = _distances(vectors, middle)
    return middle.astype(np.float32)


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
    """Return the median of values (n,), of an even number the lower of the middle ones.

    Half of the values that are arbitrarily large do not move it.
    """
    return float(np.sort(values)[(len(values) - 1) // 2])


Weighting = Literal["samples", "uniform", "capped"]
"""By what a client's model enters a mean: see `sample_weights`."""


def sample_weights(samples: Weights, *, how: Weighting, cap: float) -> Weights:
    """Return the weights (n,) of clients with so many samples (n,).

    `samples`: as many; `uniform`: one each; `capped`: as many, at most `cap` times the lower
    median of those that are positive, so that a claim of any number weighs no more.
    """
    if how == "uniform":
        return np.ones(len(samples))
    positive = samples[samples > 0]
    if how == "samples" or not len(positive):
        return samples.astype(float)
    bounded: Weights = np.minimum(samples, cap * lower_median(positive))
    return bounded


def dominant(weights: Weights) -> tuple[int, float] | None:
    """Return the place and share of the one weight of several (n,) that is more than half."""
    total = float(weights.sum())
    place = int(weights.argmax())
    if len(weights) < 2 or not weights[place] > total / 2:
        return None
    return place, float(weights[place] / total)
