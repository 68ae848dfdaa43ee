"""What an attacker's success proves about privacy: lower bounds of epsilon from scores of trials.

A mechanism with (epsilon, delta) limits every test of whether a client has the data `inside` or
`outside`: `1 - delta <= FPR + e^epsilon FNR`, and the same with the two errors exchanged. Errors
that are too small therefore prove a larger epsilon. Jagielski et al., NeurIPS 2020; Nasr et al.,
IEEE S&P 2021 (attackers that see every update); Nasr et al., USENIX Security 2023 (Gaussian noise).

scipy is imported where it is needed: no process of a run audits.
"""

from dataclasses import dataclass
from math import inf

import numpy as np
from jaxtyping import Float, Int

from fl_app.types import Reals

Inside = Float[np.ndarray, " n"]
Outside = Float[np.ndarray, " m"]
"""Scores of trials of one kind; more means inside."""
Errors = Int[np.ndarray, " l"]
Rate = Float[np.ndarray, " 1"]

LARGEST_EPSILON = 1e4
"""Bounds are searched up to this value."""


@dataclass(frozen=True)
class Audit:
    """What an attack on `trials` trials of each kind achieved.

    `epsilon` is the lower bound for any mechanism, `gaussian` the one that holds for Gaussian noise
    alone, each with the confidence that was asked for; `accuracy` that of its guesses with as many
    trials of both kinds, in [0, 1]; `auc` the area under its ROC curve.
    """

    epsilon: float
    gaussian: float
    accuracy: float
    auc: float
    trials: int


def audit(inside: Inside, outside: Outside, *, delta: float, confidence: float = 0.95) -> Audit:
    """Return what the scores of trials inside (n,) and outside (m,), m = n, prove.

    Each threshold is chosen on the trials of even numbers and judged on the others, so that the
    confidence holds without a correction for the choice. Raises ValueError for less than 20 trials
    of a kind, for unequal numbers of them, or for scores that are not finite.
    """
    _check(inside, outside, delta, confidence)
    thresholds = _thresholds(inside[::2], outside[::2])
    chosen = _errors(inside[::2], outside[::2], thresholds)
    limits = [upper_rate(each, len(inside[::2]), confidence) for each in chosen]

    def judged(merit: Reals) -> tuple[Rate, Rate]:
        best = thresholds[[int(np.argmax(merit))]]
        false_alarms, misses = _errors(inside[1::2], outside[1::2], best)
        count = len(inside[1::2])
        return upper_rate(false_alarms, count, confidence), upper_rate(misses, count, confidence)

    fewest = thresholds[[int(np.argmin(chosen[0] + chosen[1]))]]
    false_alarms, misses = _errors(inside[1::2], outside[1::2], fewest)
    return Audit(
        epsilon=float(epsilon_bound(*judged(epsilon_bound(*limits, delta=delta)), delta=delta)[0]),
        gaussian=gaussian_epsilon(float(separation(*judged(separation(*limits)))[0]), delta=delta),
        accuracy=1 - float(false_alarms[0] + misses[0]) / (2 * len(inside[1::2])),
        auc=area(inside, outside),
        trials=len(inside),
    )


def upper_rate(errors: Errors, trials: int, confidence: float) -> Reals:
    """Return the upper Clopper-Pearson limits (l,) of error rates, from `errors` (l,) of `trials`.

    Each limit holds with `1 - (1 - confidence) / 2`, so that two of them, those of both errors,
    hold together with `confidence`.
    """
    from scipy.stats import beta

    one = 1 - (1 - confidence) / 2
    limits = beta.ppf(one, errors + 1, np.maximum(trials - errors, 1e-300))
    found: Reals = np.where(errors >= trials, 1.0, limits)
    return found


def epsilon_bound(false_alarms: Reals, misses: Reals, *, delta: float) -> Reals:
    """Return the least epsilon with which errors of at most these rates (l,) are possible.

    `max(0, log((1 - delta - FPR) / FNR), log((1 - delta - FNR) / FPR))`, rates in (0, 1].
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.log(np.maximum(1 - delta - false_alarms, 0) / misses)
        second = np.log(np.maximum(1 - delta - misses, 0) / false_alarms)
    bound: Reals = np.maximum(np.maximum(first, second), 0.0)
    return bound


def separation(false_alarms: Reals, misses: Reals) -> Reals:
    """Return the least mu of a Gaussian mechanism with which these error rates (l,) are possible.

    `max(0, -Phi^-1(FPR) - Phi^-1(FNR))`: the distance of two normal distributions of deviation 1
    that no test can tell better. Dong et al., JRSS B 2022 (Gaussian differential privacy).
    """
    from scipy.stats import norm

    found: Reals = np.maximum(-norm.ppf(false_alarms) - norm.ppf(misses), 0.0)
    return found


def gaussian_epsilon(mu: float, *, delta: float) -> float:
    """Return the exact epsilon of Gaussian noise for a `mu` of at least 0, at this delta.

    The least e of 0 or more with `Phi(mu / 2 - e / mu) - exp(e) Phi(-mu / 2 - e / mu) <= delta`.
    Balle and Wang, ICML 2018. Infinite above LARGEST_EPSILON.
    """
    from scipy.optimize import brentq
    from scipy.stats import norm

    def excess(epsilon: float) -> float:
        second = np.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
        return float(norm.cdf(mu / 2 - epsilon / mu) - second - delta)

    if mu == 0 or excess(0.0) <= 0:
        return 0.0
    if excess(LARGEST_EPSILON) > 0:
        return inf
    return float(brentq(excess, 0.0, LARGEST_EPSILON, xtol=1e-9))


def area(inside: Inside, outside: Outside) -> float:
    """Return the chance that a score of (n,) is above one of (m,), a tie being half: the AUC."""
    from scipy.stats import rankdata

    ranks = rankdata(np.concatenate([inside, outside]))[: len(inside)]
    n, m = len(inside), len(outside)
    return float((ranks.sum() - n * (n + 1) / 2) / (n * m))


def most_provable(trials: int, *, confidence: float = 0.95) -> float:
    """Return the `epsilon` of an attack without any error: no more can be proved by the trials."""
    limit = upper_rate(np.zeros(1, int), trials // 2, confidence)
    return float(epsilon_bound(limit, limit, delta=0.0)[0])


def _thresholds(inside: Inside, outside: Outside) -> Reals:
    """Return the middles (l,) between neighbouring scores, and one below all of them."""
    scores = np.unique(np.concatenate([inside, outside]))
    return np.concatenate([scores[:1] - 1.0, (scores[1:] + scores[:-1]) / 2])


def _errors(inside: Inside, outside: Outside, thresholds: Reals) -> tuple[Errors, Errors]:
    """Return how many false alarms (l,) and misses (l,) each threshold makes."""
    misses = np.searchsorted(np.sort(inside), thresholds, side="right")
    below = np.searchsorted(np.sort(outside), thresholds, side="right")
    return len(outside) - below, misses


def _check(inside: Inside, outside: Outside, delta: float, confidence: float) -> None:
    if len(inside) != len(outside) or len(inside) < 20:
        raise ValueError(
            "an audit needs as many trials inside as outside, at least 20, got "
            f"{len(inside)} and {len(outside)}; run more"
        )
    if not (np.isfinite(inside).all() and np.isfinite(outside).all()):
        raise ValueError("scores of an audit must be finite, got some that are not; clip them")
    if not (0 <= delta < 1 and 0 < confidence < 1):
        raise ValueError(
            f"delta must be in [0, 1) and confidence in (0, 1), got {delta} and {confidence}; use "
            "the delta of the ledger and 0.95"
        )
