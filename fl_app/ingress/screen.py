"""Norms of the updates in a cohort: odd updates, too long ones, and their shortening."""

import numpy as np

from fl_app.aggregation import lower_median
from fl_app.params import square_norm
from fl_app.types import Labels, Vector, Vectors, Weights

FEWEST = 3
"""Smallest number of replies in which a majority exists that can judge the others."""
SHORT = 0.01
"""Smallest usual norm, as a share of the norm of the received model."""
SAFE = 0.25
"""An update of at most this share of the received model's norm is never shortened."""
ODD = 3.0
"""An update is odd if it is more than this many times longer or shorter than usual."""
OUTSIDE = 2.0
"""Communities of honest clients were at most 1.6 times as far apart as an update may be long."""
OF_FORMER = 2.0
"""How much longer an update may be that is compared with those of former rounds, which were of
other clients and of another model."""
NONE = np.empty(0)
SMALLEST = float(np.finfo(np.float32).tiny)
COLUMNS = 131_072
"""Entries subtracted at a time, so few that the differences stay in the processor's cache."""


def update_norm(model: Vector, start: Vector) -> float:
    """Return `|model - start|` of two vectors (d,), in one pass over both.

    It is infinite on overflow, and NaN or infinite if an entry of either is.
    """
    total, room = 0.0, np.empty(min(COLUMNS, len(model)), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, len(model), COLUMNS):
            part = slice(first, first + COLUMNS)
            here = model[part]
            apart = np.subtract(here, start[part], out=room[: len(here)])
            total += float(np.dot(apart, apart))
    return float(total**0.5)


def compared(norms: Weights, former: Weights) -> Weights:
    """Return the norms that tell what is usual: of a cohort, and if it is too small former ones."""
    return norms if len(norms) >= FEWEST else np.concatenate([former, norms])


def usual_norms(norms: Weights, received: Weights, former: Weights = NONE) -> Weights:
    """Return the usual norm (n,) with which each update is compared, from all norms (n,).

    `received` (n,) are the norms of the models that the clients received. The usual norm is the
    lower median of the cohort's norms, but at least SHORT times the norm of the received model, so
    that a client that learns again among converged clients is not suspicious. If this is zero, it
    is the lower median of the positive norms; if there are none, it is zero. Fewer than three
    replies, which have no majority, are compared with the `former` norms too. If there are still
    fewer than three, it is the norm of the received model.
    """
    every = compared(norms, former)
    if len(every) < FEWEST:
        return received
    usual = np.maximum(SHORT * received, lower_median(every))
    if (every > 0).any():
        usual = np.where(usual > 0, usual, lower_median(every[every > 0]))
    return usual


def odd(norms: Weights, usual: Weights) -> np.ndarray:
    """Return which updates (n,) are more than ODD times longer or shorter than usual.

    If most updates would be short, the clients have converged and none counts as short. None is
    odd with fewer than three replies or if the usual norm is zero.
    """
    if len(norms) < FEWEST:
        return np.zeros(len(norms), bool)
    short = ODD * norms < usual
    if 2 * short.sum() > len(norms):
        short = np.zeros(len(norms), bool)
    found: np.ndarray = short | ((norms > ODD * usual) & (usual > 0))
    return found


def too_long(norms: Weights, usual: Weights, *, multiple: float) -> np.ndarray:
    """Return which updates (n,) are longer than `multiple` times the usual norm.

    None is too long if the usual norm is zero.
    """
    longer: np.ndarray = norms > np.where(usual > 0, multiple * usual, np.inf)
    return longer


def limits(usual: Weights, received: Weights, *, multiple: float, of: int) -> Weights:
    """Return the norms (n,) above which updates are shortened: `multiple` times the usual norm.

    The limit is at least SAFE times the norm of the received model. It is infinite if the usual
    norm is zero, or told by fewer than three norms: `of` so many. Sun et al., 2019, "Can you really
    backdoor federated learning?", section 4, with a bound that adapts to the cohort.
    """
    if of < FEWEST:
        return np.full(len(usual), np.inf)
    return np.where(usual > 0, np.maximum(multiple * usual, SAFE * received), np.inf)


def shortened(model: Vector, start: Vector, *, norm: float) -> Vector:
    """Return the model (d,) whose update from `start` (d,) is shortened to this norm, if longer."""
    update = model - start
    length = float(np.linalg.norm(update.astype(np.float64)))
    bounded: Vector = model if length <= norm else start + update * np.float32(norm / length)
    return bounded


def within(models: Vectors, start: Vector, *, multiple: float) -> Vectors:
    """Return models (n, d), the long ones of their updates from `start` (d,) shortened: `limits`.

    The array is the same if none is long.
    """
    norms = np.array([update_norm(model, start) for model in models])
    received = np.full(len(models), square_norm(start) ** 0.5)
    bounds = limits(usual_norms(norms, received), received, multiple=multiple, of=len(norms))
    long = np.flatnonzero(norms > bounds).tolist()
    if not long:
        return models
    found = models.copy()
    for row in long:
        found[row] = shortened(models[row], start, norm=float(bounds[row]))
    return found


def outside(models: Vectors, sizes: Labels, *, multiple: float) -> np.ndarray:
    """Return which community models (k, d) do not belong into a model of all clients.

    `sizes` (k,) are the numbers of their members. A model is outside if its distance from the mean
    over clients is more than OUTSIDE times the longest update that `limits` would leave, where
    each client has the distance of its community. In that mean, norms are limited to `multiple`
    times the lower median of the clients' norms. None is outside with fewer than three clients.
    """
    if sizes.sum() < FEWEST:
        return np.zeros(len(models), bool)
    norms = np.array([square_norm(model) ** 0.5 for model in models])
    usual = multiple * lower_median(np.repeat(norms, sizes))
    shares = np.minimum(1.0, usual / np.maximum(norms, SMALLEST))
    middle: Vector = (sizes * shares / sizes.sum()).astype(np.float32) @ models
    apart = np.array([update_norm(model, middle) for model in models])
    clients = np.repeat(apart, sizes)
    received = np.full(len(clients), square_norm(middle) ** 0.5)
    bounds = limits(usual_norms(clients, received), received, multiple=multiple, of=len(clients))
    far: np.ndarray = apart > OUTSIDE * bounds.min()
    return far
