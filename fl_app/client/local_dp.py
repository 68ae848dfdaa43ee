"""Operations of local differential privacy on updates.

fl_app.client.privacy defines which clients apply them and with how much noise, and
fl_app.client.accountant computes their cost.
"""

from math import exp, isfinite
from statistics import NormalDist

import numpy as np

from fl_app.system_numbers import Numbers
from fl_app.types import Vector

REACH = 1.0
"""Limit of a report in standard deviations of its noise: with more, a liar counts for more."""


def clip(update: Vector, *, bound: float) -> Vector:
    """Return `u * min(1, bound / ||u||)` (d,): the update u with a norm of at most `bound`.

    Abadi et al., CCS 2016, algorithm 1, for a whole update instead of one sample's gradient. One
    that is not finite counts as 0: NaN would tell it, whatever the noise.
    Raises ValueError for a bound that is not positive.
    """
    if not bound > 0:
        raise ValueError(f"the clip bound must be positive, got {bound}; use 1.0")
    length = float(np.linalg.norm(update.astype(np.float64)))
    if not isfinite(length):
        return np.zeros_like(update)
    if length <= bound:
        return update
    clipped: Vector = (update * (bound / length)).astype(np.float32)
    return clipped


def add_noise(update: Vector, *, deviation: float, generator: Numbers) -> Vector:
    """Return the update (d,) with Gaussian noise of this standard deviation on every entry."""
    noise = generator.standard_normal(len(update), dtype=np.float32)
    noisy: Vector = update + np.float32(deviation) * noise
    return noisy


def noise_norm(parameters: int, *, noise_multiplier: float) -> float:
    """Return the expected norm of the noise on d parameters, in clip bounds: `z * sqrt(d)`.

    A clipped update has a norm of at most 1, so the inverse of this is its signal-to-noise ratio.
    """
    return float(noise_multiplier * np.sqrt(parameters))


def within(update: Vector, *, bound: float, deviation: float, draw: Numbers) -> float:
    """Return 1 if the norm of the update (d,) is at most `bound`, else 0, plus Gaussian noise.

    The client's report with which the server adapts the bound: Andrew et al., NeurIPS 2021,
    algorithm 1 (b_i).
    """
    fits = float(np.linalg.norm(update.astype(np.float64))) <= bound
    return float(fits) + deviation * float(draw.standard_normal())


def share_within(report: float, *, deviation: float) -> float:
    """Return an estimate of the 0 or 1 in a report of `within`, on average this number.

    The report is clipped to at most REACH deviations outside [0, 1], so that a liar's estimate is
    at most 1.5 deviations outside. Clipping draws the mean of honest reports towards one half by a
    factor that is known, which is undone. The deviation of an honest estimate is up to 5 % larger
    than that of its report.
    """
    low, high = -REACH * deviation, 1 + REACH * deviation
    clipped = min(max(report, low), high)
    if deviation == 0:
        return clipped
    below, above = NormalDist().cdf(-REACH), 1 - NormalDist().cdf(high / deviation)
    densities = NormalDist().pdf(REACH) - NormalDist().pdf(high / deviation)
    of_zero = low * below + high * above + deviation * densities  # the mean of a clipped 0
    return (clipped - of_zero) / (1 - 2 * of_zero)


def next_bound(bound: float, fitting: float, *, quantile: float, rate: float) -> float:
    """Return `bound * exp(-rate * (fitting - quantile))`: the bound of the next round.

    `fitting` is the mean of what the values of `within` tell by `share_within`, an estimate of the
    share of updates within the bound. It is first clipped to [0, 1], because of the noise. Andrew
    et al., NeurIPS 2021, algorithm 1.
    """
    share = min(max(fitting, 0.0), 1.0)
    return bound * exp(-rate * (share - quantile))
