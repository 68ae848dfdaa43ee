"""How long the updates of a cohort are, and what becomes of those that are far longer."""

import numpy as np

from fl_app.aggregation import lower_median
from fl_app.types import Vector, Weights

FEWEST = 3
"""Replies from which on a majority can be right about the others."""
SHORT = 0.01
"""An update of this share of the received model is the shortest that others are compared with."""
SAFE = 0.25
"""An update of this share of the received model is never shortened."""
ODD = 3.0
"""An update is odd when it is this many times longer or shorter than usual."""
FINE = 0.01
"""Share of the squares below which their difference is too near to float32 rounding."""
ROUNDING = 2e-7
"""Share of the squares that float32 rounding makes up."""
COLUMNS = 8_192
"""Entries brought to double precision at a time: so few that the product keeps to one thread."""


def update_norm(model: Vector, start: Vector, *, square: float, received: float) -> float:
    """Return `|model - start|` from `square`, the model's squared norm, and `received`, |start|.

    By `|a|^2 - 2 a.b + |b|^2` in one pass over the vectors (d,) while they are in the cache; of
    updates that are short beside the model, from the difference itself. One of less than a
    thousandth of the received model may count as none.
    """
    both = square + received**2
    apart = both - 2 * float(np.dot(model, start))
    if apart > FINE * both:
        return float(apart**0.5)
    return _difference(model, start) if abs(apart) > ROUNDING * both else 0.0


def _difference(model: Vector, start: Vector) -> float:
    total = 0.0
    for first in range(0, len(model), COLUMNS):
        part = slice(first, first + COLUMNS)
        apart = model[part].astype(np.float64) - start[part]
        total += float(np.dot(apart, apart))
    return float(total**0.5)


def usual_norms(norms: Weights, received: Weights) -> Weights:
    """Return what the norm of each update is compared with (n,), from all norms (n,).

    `received` (n,) are the norms of the models that the clients received. Usual is the lower
    median of the cohort's norms, and at least SHORT times the norm of the received model: a
    client that starts to learn again among others that have converged is no liar. Where that is
    zero it is the lower median of the positive norms, and where there are none, zero. Fewer than
    three replies have no majority: there usual is the norm of the received model.
    """
    if len(norms) < FEWEST:
        return received
    usual = np.maximum(SHORT * received, lower_median(norms))
    if (norms > 0).any():
        usual = np.where(usual > 0, usual, lower_median(norms[norms > 0]))
    return usual


def odd(norms: Weights, usual: Weights) -> np.ndarray:
    """Return which updates (n,) are more than ODD times longer or shorter than usual.

    None is short where most would be: these clients have converged. None is odd where fewer than
    three replied, or where nothing is usual.
    """
    if len(norms) < FEWEST:
        return np.zeros(len(norms), bool)
    short = ODD * norms < usual
    if 2 * short.sum() > len(norms):
        short = np.zeros(len(norms), bool)
    found: np.ndarray = short | ((norms > ODD * usual) & (usual > 0))
    return found


def too_long(norms: Weights, usual: Weights, *, multiple: float) -> np.ndarray:
    """Return which updates (n,) are longer than `multiple` times what is usual.

    Where usual is zero, nothing is too long.
    """
    longer: np.ndarray = norms > np.where(usual > 0, multiple * usual, np.inf)
    return longer


def limits(usual: Weights, received: Weights, *, multiple: float) -> Weights:
    """Return the norms (n,) beyond which updates are shortened: `multiple` times the usual one.

    An update of SAFE times the norm of the received model, or less, stays as it is, and so do
    all where nothing is usual, or where fewer than three replied. Sun et al., 2019, "Can you
    really backdoor federated learning?", section 4, with a bound that follows the cohort.
    """
    if len(usual) < FEWEST:
        return np.full(len(usual), np.inf)
    return np.where(usual > 0, np.maximum(multiple * usual, SAFE * received), np.inf)


def shortened(model: Vector, start: Vector, *, norm: float) -> Vector:
    """Return the model (d,) on the way from `start` (d,) whose update has this norm."""
    update = model - start
    length = float(np.linalg.norm(update.astype(np.float64)))
    bounded: Vector = start + update * np.float32(norm / length)
    return bounded
