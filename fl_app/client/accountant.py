"""What privacy costs: noise from a budget, and the epsilon spent from the noise.

Whole updates are reckoned by dp-accounting, DP-SGD by Opacus; no formula here is our own.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from math import inf, isinf
from typing import Any

CHANCE = 1e-3
"""How likely a client may be sampled in more rounds than its budget is planned for."""
SENSITIVITY = 2.0
"""How far apart two updates within the clip bound can lie, in clip bounds."""


@dataclass(frozen=True)
class Release:
    """What leaves a client in one round, under Gaussian noise.

    `noise_multiplier` is the noise's standard deviation in clip bounds. With `steps` it is
    DP-SGD: so many batches, each sample in each with the chance `rate`; else one whole update,
    and with `adaptive` one bit more under the same noise.
    """

    noise_multiplier: float
    rate: float = 1.0
    steps: int = 0
    adaptive: bool = False


def whole_update(noise_multiplier: float, *, adaptive: bool = False) -> Release:
    """Return the release of one whole update, and with `adaptive` of one bit beside it."""
    return Release(noise_multiplier=noise_multiplier, adaptive=adaptive)


@lru_cache(maxsize=64)
def rounds_of_one(rounds: int, participation: float) -> int:
    """Return in how many of `rounds` one client takes part, but for a chance of CHANCE.

    One more than the binomial quantile, since some methods ask everyone once.
    """
    from scipy.stats import binom

    return min(rounds, int(binom.ppf(1 - CHANCE, rounds, participation)) + 1)


@lru_cache(maxsize=4096)
def update_noise(epsilon: float, delta: float, *, rounds: int, adaptive: bool = False) -> float:
    """Return the noise multiplier with which `rounds` whole updates cost at most `epsilon`.

    An infinite epsilon needs no noise. Raises ValueError for fewer than one round.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}; give the rounds of a client")
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


@lru_cache(maxsize=4096)
def sample_noise(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """Return the noise multiplier with which `steps` batches of DP-SGD cost at most `epsilon`."""
    if isinf(epsilon):
        return 0.0
    from opacus.accountants.utils import get_noise_multiplier

    return float(
        get_noise_multiplier(
            target_epsilon=epsilon, target_delta=delta, sample_rate=rate, steps=steps,
            accountant="rdp",
        )
    )  # fmt: skip


def spent(releases: Sequence[Release], delta: float) -> float:
    """Return the epsilon, at this `delta`, that a client has spent with all its releases.

    0 before the first; infinite where one had no noise. In any order.
    """
    counts = Counter(releases)
    return _spent(tuple(sorted(counts.items(), key=lambda item: astuple(item[0]))), delta)


@lru_cache(maxsize=65536)
def _spent(counts: tuple[tuple[Release, int], ...], delta: float) -> float:
    if not counts:
        return 0.0
    if any(release.noise_multiplier == 0 for release, _ in counts):
        return inf
    if all(release.steps for release, _ in counts):
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
        (release.noise_multiplier, release.rate, release.steps * count) for release, count in counts
    ]
    return float(accountant.get_epsilon(delta=delta))


def _event(release: Release, count: int) -> Any:
    """Return `count` releases of whole updates as dp-accounting describes them.

    It wants the deviation in sensitivities: those of an update, and of a bit that is 0 or 1.
    """
    import dp_accounting as dp

    parts = [dp.GaussianDpEvent(release.noise_multiplier / SENSITIVITY)]
    if release.adaptive:
        parts.append(dp.GaussianDpEvent(release.noise_multiplier))
    return dp.SelfComposedDpEvent(dp.ComposedDpEvent(parts), count)
