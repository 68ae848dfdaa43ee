"""Many models in, one model out."""

from collections.abc import Callable

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
