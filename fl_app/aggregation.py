"""Many models in, one model out."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from fl_app.types import Vector, Vectors, Weights

Rule = Callable[[Vectors, Weights], Vector]
"""An aggregation rule: models (n, d) and their weights (n,) to one model (d,)."""


SMOOTHING = 1e-5
"""Distances below this share of the mean one count as this long: none divides by zero."""
MOST_ITERATIONS = 100


def weighted_mean(vectors: Vectors, weights: Weights) -> Vector:
    """Return `sum_i w_i v_i / sum_i w_i` (d,) of vectors (n, d) and weights (n,).

    Raises ValueError for negative weights or a sum of zero. McMahan et al., AISTATS 2017,
    algorithm 1.
    """
    total = float(weights.sum())
    if (weights < 0).any() or total <= 0:
        raise ValueError(
            f"weights must be non-negative with a positive sum, got {weights.tolist()}; "
            "weigh clients by their number of samples"
        )
    mean: Vector = (weights / total).astype(np.float32) @ vectors
    return mean


def median(vectors: Vectors, weights: Weights) -> Vector:
    """Return the coordinate-wise median (d,) of vectors (n, d).

    The weights are taken so that every rule has one form, and not used: a client could
    claim any number of samples. Yin et al., ICML 2018, option I.
    """
    middle: Vector = np.median(vectors, axis=0).astype(np.float32)
    return middle


def geometric_median(vectors: Vectors, weights: Weights) -> Vector:
    """Return the point (d,) with the least weighted sum of distances to vectors (n, d).

    By Weiszfeld's iterations from the mean, smoothed by SMOOTHING of the vectors' spread, until
    a step is shorter than that. The weights are not used: a client could claim any number of
    samples. Pillutla et al., IEEE TSP 2022, algorithm 2.
    """
    middle: Vector = vectors.mean(axis=0)
    least = SMOOTHING * float(np.linalg.norm(vectors - middle, axis=1).mean())
    for _ in range(MOST_ITERATIONS):
        distances = np.linalg.norm(vectors - middle, axis=1)
        pulls = 1.0 / np.maximum(distances, max(least, 1e-12))
        before, middle = middle, (pulls / pulls.sum()).astype(np.float32) @ vectors
        if np.linalg.norm(middle - before) <= least:
            break
    return middle


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
