"""Privacy accounting: noise from a budget, and spent epsilon from the noise.

dp-accounting computes it for whole updates and Opacus for DP-SGD; this module has no own formulas.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from math import inf, isinf, sqrt
from typing import Any

CHANCE = 1e-3
"""Probability that a client is sampled in more rounds than its budget is planned for."""
SENSITIVITY = 2.0
"""Largest distance between two updates within the clip bound, in clip bounds."""
ORDERS = (*(1 + x / 10 for x in range(1, 100)), *range(12, 64), *(2**k for k in range(6, 12)))
"""Renyi orders of DP-SGD: those of Opacus, and larger ones, where budgets far below 1 are least."""
CLOSE = 1e-3
"""Share of a budget that a noise found by bisection may leave unspent."""


@dataclass(frozen=True)
class Release:
    """What a client releases in one round under Gaussian noise.

    `noise_multiplier` is the standard deviation of the noise in clip bounds. With `steps` it is
    DP-SGD with this number of batches, each of which contains each sample with probability `rate`.
    Otherwise it is one whole update, and with `adaptive` also one bit with the same noise. With
    `losses` it is one answer with clipped losses, and the deviation is in sensitivities of it.
    """

    noise_multiplier: float
    rate: float = 1.0
    steps: int = 0
    adaptive: bool = False
    losses: bool = False


def whole_update(noise_multiplier: float, *, adaptive: bool = False) -> Release:
    """Return the release of one whole update, and with `adaptive` also of one bit."""
    return Release(noise_multiplier=noise_multiplier, adaptive=adaptive)


@lru_cache(maxsize=64)
def rounds_of_one(rounds: int, participation: float) -> int:
    """Return in how many of `rounds` one client trains at most, except with probability CHANCE.

    It is one more than the binomial quantile, since some methods once ask all clients.
    """
    from scipy.stats import binom

    return min(rounds, int(binom.ppf(1 - CHANCE, rounds, participation)) + 1)


@lru_cache(maxsize=4096)
def update_noise(epsilon: float, delta: float, *, rounds: int, adaptive: bool = False) -> float:
    """Return the noise multiplier with which `rounds` whole updates cost at most `epsilon`.

    An infinite epsilon needs no noise. Raises ValueError for fewer than one round.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}; use the rounds of a client")
    if isinf(epsilon):
        return 0.0
    import dp_accounting as dp

    found: float = dp.calibrate_dp_mechanism(
        dp.rdp.RdpAccountant,
        lambda noise: _event(whole_update(noise, adaptive=adaptive), rounds),
        epsilon,
        delta,
        bracket_interval=dp.LowerEndpointAndGuess(0.0, 10.0),
        tol=1e-4,
    )
    return found


def loss_noise(epsilon: float, delta: float, *, share: float, answers: int) -> float:
    """Return the noise multiplier z with which `answers` with losses take a `share` of `epsilon`.

    `z = z_1 sqrt(answers / share)`, where one answer alone with z_1 costs epsilon: the costs of
    Gaussian noise add up as 1 / z^2. What remains for updates is `1 - share` of 1 / z_1^2.
    """
    return update_noise(epsilon, delta, rounds=1) / SENSITIVITY * sqrt(answers / share)


@lru_cache(maxsize=4096)
def sample_noise_beside(
    epsilon: float, delta: float, rate: float, steps: int, *, losses: Release, answers: int
) -> float:
    """Return the noise multiplier of `steps` batches that cost `epsilon` with answers beside them.

    Found by bisection, within CLOSE of the budget and never above it.
    """
    if isinf(epsilon):
        return 0.0

    def cost(noise: float) -> float:
        batches = Release(noise_multiplier=noise, rate=rate, steps=steps)
        return spent([batches, *[losses] * answers], delta)

    low = sample_noise(epsilon, delta, rate, steps) * (1 - CLOSE)
    high = 2 * low
    while cost(high) > epsilon:
        low, high = high, 2 * high
    while cost(high) < (1 - CLOSE) * epsilon and high - low > CLOSE * CLOSE * high:
        middle = (low + high) / 2
        low, high = (low, middle) if cost(middle) <= epsilon else (middle, high)
    return high


@lru_cache(maxsize=4096)
def sample_noise(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """Return the noise multiplier with which `steps` batches of DP-SGD cost at most `epsilon`.

    Raises ValueError for an epsilon that no noise reaches.
    """
    if isinf(epsilon):
        return 0.0
    from opacus.accountants.utils import get_noise_multiplier

    try:
        found = get_noise_multiplier(
            target_epsilon=epsilon, target_delta=delta, sample_rate=rate, steps=steps,
            accountant="rdp", alphas=ORDERS,
        )  # fmt: skip
    except ValueError as error:
        raise ValueError(
            f"privacy.epsilon must be within reach of DP-SGD with {steps} batches at "
            f"privacy.delta={delta:g}, got {epsilon:g}; raise it"
        ) from error
    return float(found)


@lru_cache(maxsize=64)
def least_sample_epsilon(delta: float) -> float:
    """Return the epsilon of DP-SGD that the accountant shows for any amount of noise."""
    return spent([Release(noise_multiplier=1e6, steps=1)], delta)


def spent(releases: Sequence[Release], delta: float) -> float:
    """Return the epsilon, at this `delta`, that a client has spent with all its releases.

    0 without releases; infinite if a release had no noise. The order does not matter.
    """
    counts = Counter(releases)
    return _spent(tuple(sorted(counts.items(), key=lambda item: astuple(item[0]))), delta)


@lru_cache(maxsize=65536)
def _spent(counts: tuple[tuple[Release, int], ...], delta: float) -> float:
    if not counts:
        return 0.0
    if any(release.noise_multiplier == 0 for release, _ in counts):
        return inf
    if any(release.steps for release, _ in counts):
        return _spent_by_samples(counts, delta)
    import dp_accounting as dp

    accountant = dp.rdp.RdpAccountant()
    for release, count in counts:
        accountant.compose(_event(release, count))
    return float(accountant.get_epsilon(delta))


def _spent_by_samples(counts: tuple[tuple[Release, int], ...], delta: float) -> float:
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = [
        (each.noise_multiplier, each.rate, count if each.losses else each.steps * count)
        for each, count in counts
    ]
    return float(accountant.get_epsilon(delta=delta, alphas=ORDERS))


def _event(release: Release, count: int) -> Any:
    """Return `count` releases of whole updates, or of losses, as an event of dp-accounting.

    It needs the deviation in units of the sensitivity, for the update and for the bit (0 or 1).
    """
    import dp_accounting as dp

    if release.losses:
        return dp.SelfComposedDpEvent(dp.GaussianDpEvent(release.noise_multiplier), count)
    parts = [dp.GaussianDpEvent(release.noise_multiplier / SENSITIVITY)]
    if release.adaptive:
        parts.append(dp.GaussianDpEvent(release.noise_multiplier))
    return dp.SelfComposedDpEvent(dp.ComposedDpEvent(parts), count)
