"""The updates of a cohort without the drift that all of its clients have in common."""

from collections.abc import Iterator

import numpy as np

from fl_app.aggregation import lower_median
from fl_app.types import Labels, SomeVectors, Vector, Vectors, Weights

CLEAR = 4.0
"""Drift shares follow the lengths of updates if these explain this multiple of what is left."""
SLOPES = (-10.0, 2.0)
"""Limits of the slope b of `drift_shares`. It is 1 for independent noise of any size on one drift,
and below 0 for unequal drifts in equal noise. Without limits, lengths that hardly differ would
explain how much groups differ in the direction of the mean, and groups of unequal sizes lose it."""
SURE = 3.0
"""The drift counts as at least this many of its standard errors: noise alone has no shares."""
FITS = 2
"""Shares are fitted so often; the second time, the updates are weighted by the first ones."""
LEAST_NOISE = 0.1
"""Smallest part of an update's squared length that counts as noise."""
TINY = float(np.finfo(float).tiny)


class Updates:
    """The updates (n, d) of a cohort: from its `models` (n, d) to rows (n,) of `starts` (m, d).

    They are computed one by one, as a copy would be as large as all replies.
    """

    def __init__(self, starts: SomeVectors, rows: Labels, models: Vectors) -> None:
        self._starts, self._rows, self._models = starts, rows.tolist(), models
        self.lengths: Weights = np.array([np.linalg.norm(each) for each in self], float)

    def __iter__(self) -> Iterator[Vector]:
        pairs = zip(self._rows, self._models, strict=True)
        return (self._starts[row] - model for row, model in pairs)

    def total(self, weights: Weights) -> Vector:
        """Return the sum (d,) of the updates, each times its weight (n,)."""
        found: Vector = np.zeros_like(self._models[0])
        for weight, update in zip(weights.astype(np.float32), self, strict=True):
            found += update * weight
        return found

    def products(self, vector: Vector) -> Weights:
        """Return the inner product (n,) of each update and a vector (d,)."""
        return np.array([float(update @ vector) for update in self])


def without_drift(cohort: Updates, *, equally: bool) -> Iterator[Vector]:
    """Return the updates of a cohort, scaled to its usual length, without their common drift.

    Of the scaled updates u (n, d) with `drift_shares` c (n,) of the drift m (d,), these are
    `(u_i - mean u) - (c_i - 1) m`. Of two updates of one length, that with more noise has less
    drift. If only the mean were subtracted, what it lacks would add up over the rounds while noise
    averages out, as if the clients with more noise were a group.
    `equally`: the usual length counts as 1. An update of length 0 has the share 1.
    """
    lengths = cohort.lengths
    usual = lower_median(lengths[lengths > 0]) if (lengths > 0).any() and not equally else 1.0
    scales = np.divide(usual, lengths, out=np.zeros(len(lengths)), where=lengths > 0)
    mean = cohort.total(scales) / np.float32(len(scales))
    shares, weights = drift_shares(cohort)
    drift = None if (shares == 1).all() else cohort.total(weights * scales)
    less = (shares - 1).astype(np.float32)
    for scale, share, update in zip(scales.astype(np.float32), less, cohort, strict=True):
        found = update * scale - mean
        yield found if drift is None else found - drift * share


def drift_shares(cohort: Updates) -> tuple[Weights, Weights]:
    """Return the drift shares c (n,) of a cohort's updates, and the weights (n,) of its drift.

    The shares are at least 0 and have the mean 1. Unit updates `u_i = c_i m + noise` have the mean
    products `c_i c_j |m|^2`, so `y_i = u_i . sum_(j != i) c_j u_j / sum_(j != i) c_j^2` estimates
    `c_i |m|^2` without the noise of client i itself. The shares are `1 + b x_i`, with x_i the
    difference of the inverse length and its mean, relative to the mean: see `_slope`. They are not
    the y themselves, in which groups of unequal sizes differ, which would lose this difference.
    The drift is the mean with the least noise, `sum w_i u_i / sum w_i c_i` with
    `w_i = c_i / max(1 - c_i^2 |m|^2, LEAST_NOISE)`. The noise of the plain mean, common to all,
    would remain in proportion to `c_i - 1`.
    """
    active = cohort.lengths > 0
    inverse = np.divide(1.0, cohort.lengths, out=np.zeros(len(active)), where=active)
    along = np.where(active, inverse / max(float(inverse.sum()), TINY) * active.sum() - 1, 0.0)
    shares, found, error = np.ones(len(active)), np.zeros(len(active)), 0.0
    for _ in range(FITS if active.sum() > 2 and along.any() else 0):
        found = _estimates(cohort, inverse, shares * active)
        error = error or float(found[active].std()) * (2 / active.sum()) ** 0.5
        slope = _slope(along[active], found[active], error)
        if slope == 0:
            break
        shares[active] = np.maximum(1 + slope * along[active], 0.0)
        shares[active] /= shares[active].mean()
    square = max(float(shares @ found) / float(shares @ shares), 0.0)
    weights = active * shares / np.maximum(1 - shares**2 * square, LEAST_NOISE)
    return shares, weights / max(float(weights @ shares), TINY)


def _estimates(cohort: Updates, inverse: Weights, shares: Weights) -> Weights:
    """Return the y (n,) of `drift_shares` for updates of these inverse lengths; 0 of no update."""
    products = inverse * cohort.products(cohort.total(shares * inverse)) - shares
    found: Weights = products / np.maximum(shares @ shares - shares**2, TINY)
    return np.where(inverse > 0, found, 0.0)


def _slope(along: Weights, estimates: Weights, error: float) -> float:
    """Return the slope of estimates (m,) relative to their mean, by least squares.

    It is shrunk by `1 - CLEAR r`, with r the mean square that it leaves per degree of freedom by
    that which it explains, and 0 below. The mean counts as at least SURE times its `error`.
    """
    apart = estimates - estimates.mean()
    slope = float(along @ apart) / max(float(along @ along), TINY)
    left = apart - slope * along
    explained = slope**2 * float(along @ along)
    unclear = float(left @ left) / (len(along) - 2) / max(explained, TINY)
    mean = max(float(estimates.mean()), SURE * error, TINY)
    return float(np.clip(max(1 - CLEAR * unclear, 0.0) * slope / mean, *SLOPES))
