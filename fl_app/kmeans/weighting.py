"""Weights of the clients' centroids, and the server's step towards their mean."""

from collections.abc import Callable
from functools import partial
from pkgutil import resolve_name

import numpy as np
from jaxtyping import Float

from fl_app.aggregation import sample_weights
from fl_app.kmeans.lloyd import Centroids

Local = Float[np.ndarray, "m k d"]
Shares = Float[np.ndarray, "m k"]
Weigh = Callable[[Shares], Shares]
CAPPED = "capped"
"""The weighting with a limit for each client; all others take what clients tell."""


def aggregate(centroids: Local, weights: Shares) -> Centroids:
    """Return `sum_i w_ij c_ij / sum_i w_ij` (k, d) of centroids (m, k, d) and weights (m, k).

    With counts of points as weights this is DWF. If no client has points for a centroid, the
    result is the plain mean. Raises ValueError for negative weights and for NaN or infinity.
    Holzer et al., 2023, equation 3.
    """
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(
            f"weights must be finite and non-negative, got {weights.min()}..{weights.max()}; "
            "use counts of points"
        )
    totals = weights.sum(axis=0)
    shares = np.where(totals > 0, weights, 1.0)
    sums = np.einsum("mk,mkd->kd", shares, centroids)
    mean: Centroids = sums / shares.sum(axis=0)[:, None]
    return mean


def dynamic(weights: Shares) -> Shares:
    """Return the weights (m, k) unchanged: DWF, by the points of each client in each cluster."""
    return weights


def equal(weights: Shares) -> Shares:
    """Return weights (m, k) of one: EWF, the plain mean over the clients."""
    return np.ones_like(weights)


def capped(weights: Shares, *, cap: float) -> Shares:
    """Return weights (m, k) in which no client has more than `cap` times the median points.

    The median is the lower median of the clients' positive numbers of points (m,). Therefore a
    client that claims any number of points has a bounded weight.
    """
    totals = weights.sum(axis=1)
    bounded = sample_weights(totals, how="capped", cap=cap)
    factors = np.divide(bounded, totals, out=np.ones_like(totals), where=totals > 0)
    scaled: Shares = weights * factors[:, None]
    return scaled


def by_name(name: str, *, cap: float) -> Weigh:
    """Return the weighting `dynamic`, `equal`, `capped` at `cap`, or a function by its dotted name.

    Raises ValueError with the rule if there is none.
    """
    ours: dict[str, Weigh] = {CAPPED: partial(capped, cap=cap), "dynamic": dynamic, "equal": equal}
    rule = f"one of {', '.join(ours)}, or the dotted name of a function of the counts"
    try:
        found = ours.get(name) or resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{rule} ({error})") from error
    if not callable(found):
        raise ValueError(rule)
    named: Weigh = found
    return named


def step(
    current: Centroids,
    previous: Centroids,
    aggregated: Centroids,
    *,
    learning_rate: float,
    momentum: float,
) -> Centroids:
    """Return `C + lr (D - C) + momentum (C - C_old)` (k, d), where D is the aggregate.

    With learning rate 1 and momentum 0 it is D. Holzer et al., 2023, equation 4.
    """
    moved: Centroids = (
        current + learning_rate * (aggregated - current) + momentum * (current - previous)
    )
    return moved
