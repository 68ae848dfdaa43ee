"""What local differential privacy does to an update: functions of arrays alone.

Who does it, with how much noise, is said in fl_app.client.privacy; what it costs, in
fl_app.client.accountant.
"""

from math import exp

import numpy as np

from fl_app.types import Vector


def clip(update: Vector, *, bound: float) -> Vector:
    """Return `u * min(1, bound / ||u||)` (d,): the update, no longer than `bound`.

    Abadi et al., CCS 2016, algorithm 1, here of a whole update and not of one sample's gradient.
    Raises ValueError for a bound that is not positive.
    """
    if not bound > 0:
        raise ValueError(f"the clip bound must be positive, got {bound}; use 1.0")
    length = float(np.linalg.norm(update.astype(np.float64)))
    if length <= bound:
        return update
    clipped: Vector = (update * (bound / length)).astype(np.float32)
    return clipped


def add_noise(update: Vector, *, deviation: float, generator: np.random.Generator) -> Vector:
    """Return the update (d,) with Gaussian noise of this standard deviation on every entry."""
    noise = generator.standard_normal(len(update), dtype=np.float32)
    noisy: Vector = update + np.float32(deviation) * noise
    return noisy


def noise_norm(parameters: int, *, noise_multiplier: float) -> float:
    """Return the norm to expect of the noise on d parameters, in clip bounds: `z * sqrt(d)`.

    A clipped update is at most 1 long: the inverse of this is its signal to noise.
    """
    return float(noise_multiplier * np.sqrt(parameters))


def within(update: Vector, *, bound: float, deviation: float, draw: np.random.Generator) -> float:
    """Return 1 where the update (d,) is no longer than `bound`, else 0, with Gaussian noise.

    What a client says so that the server can adapt the bound: Andrew et al., NeurIPS 2021,
    algorithm 1 (b_i).
    """
    fits = float(np.linalg.norm(update.astype(np.float64))) <= bound
    return float(fits) + deviation * float(draw.standard_normal())


def next_bound(bound: float, fitting: float, *, quantile: float, rate: float) -> float:
    """Return `bound * exp(-rate * (fitting - quantile))`: the bound of the next round.

    `fitting` is the mean of what `within` gave, an estimate of the share of updates that the
    bound lets pass; it is taken into [0, 1] first, since noise can throw it far out.
    Andrew et al., NeurIPS 2021, algorithm 1.
    """
    share = min(max(fitting, 0.0), 1.0)
    return bound * exp(-rate * (share - quantile))
