"""Attribution of community models to clients by distance or loss."""

import numpy as np
from jaxtyping import Float

from fl_app.aggregation import keep_equal
from fl_app.types import Between, Labels, Vector, Vectors


def nearest_models(distance: Between) -> Labels:
    """Return the nearest of k communities (n,) for distances (n, k), the first of equals."""
    _check(distance)
    labels: Labels = distance.argmin(axis=1)
    return labels


def weighted_nearest(distance: Between, *, neighbours: int, beta: float) -> Between:
    """Return weights `softmax(-beta * distance)` (n, k) over the `neighbours` nearest communities.

    Each row sums to 1 and is 0 elsewhere; with fewer communities than neighbours, all are used.
    The formula in the paper also divides by |N|, which would shrink the model; we omit this.
    Raises ValueError for `neighbours` below 1 or a negative beta. Bettinelli et al., IEEE Big
    Data 2024 (WNN).
    """
    _check(distance)
    if neighbours < 1 or beta < 0:
        raise ValueError(
            f"neighbours must be at least 1 and beta at least 0, got {neighbours} and {beta}; "
            "use 3 and 1 as in the paper"
        )
    chosen = np.argsort(distance, axis=1, kind="stable")[:, :neighbours]
    near = np.take_along_axis(distance, chosen, axis=1)
    # relative to the nearest, whose weight is exp(0), so that the sum cannot underflow to zero
    parts = np.exp(-beta * (near - near[:, :1]))
    weights: Between = np.zeros(distance.shape)
    np.put_along_axis(weights, chosen, parts / parts.sum(axis=1, keepdims=True), axis=1)
    return weights


def mixed(weights: Float[np.ndarray, " k"], models: Vectors) -> Vector:
    """Return `sum_j weights_j * models_j` (d,) of models (k, d), in float32.

    The terms are added entry by entry in the order of the rows, without those of weight 0, so that
    the tensors of a model give the same bits one by one. An entry in which these rows are equal is
    their value. Raises ValueError if all weights are 0.
    """
    rows = np.flatnonzero(weights)
    terms = [np.float32(weights[row]) * models[row] for row in rows]
    if not terms:
        raise ValueError("weights must not all be 0, got none above; give those of a mean")
    total: Vector = terms[0]
    for term in terms[1:]:
        total += term
    keep_equal(total, models, rows)
    return total


def margin(values: Vector) -> float | None:
    """Return how far the second of some losses or distances (k,) is from the least.

    The difference as a share of the larger of the two in size, which is the second unless a loss is
    negative: 0 for a tie, 1 for certainty, up to 2 if one is negative; None for a single value.
    """
    if len(values) < 2:
        return None
    first, second = np.partition(values, 1)[:2].tolist()
    size = max(abs(second), abs(first))
    return (second - first) / size if size > 0 else 0.0


def _check(distance: Between) -> None:
    if distance.shape[1] < 1 or not np.isfinite(distance).all():
        raise ValueError(
            f"distances must be finite and to at least one community, got shape {distance.shape}; "
            "reject models that are not finite"
        )
