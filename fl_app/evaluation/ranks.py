"""Ranks of methods over several problems, and whether their differences are significant."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, sqrt

import numpy as np
from jaxtyping import Float

Scores = Float[np.ndarray, "problems methods"]
"""Scores of which more is better; each problem has one for every method."""
NEAR_BEST = 0.95


def ranks(scores: Scores) -> Scores:
    """Return the rank of each method in each problem, 1 for the best; equal scores share a mean."""
    from scipy.stats import rankdata

    found: np.ndarray = rankdata(-scores, axis=1)
    return found


@dataclass(frozen=True)
class Friedman:
    """The Friedman test: `statistic`, and `p`, the chance of such ranks for equal methods."""

    statistic: float
    p: float


def friedman(scores: Scores) -> Friedman | None:
    """Return the Friedman test of all methods; None for less than 3 methods or 2 problems.

    Demsar, JMLR 2006. Without any difference in any problem, `p` is 1.
    """
    from scipy.stats import friedmanchisquare

    problems, methods = scores.shape
    if methods < 3 or problems < 2:
        return None
    if (scores == scores[:, :1]).all():
        return Friedman(0.0, 1.0)
    found = friedmanchisquare(*scores.T)
    return Friedman(float(found.statistic), float(found.pvalue))


def critical_difference(problems: int, methods: int, *, alpha: float) -> float:
    """Return the difference of mean ranks from which on two methods differ, by Nemenyi.

    `q sqrt(k (k + 1) / (6 n))` for k methods and n problems, with q the quantile of the studentised
    range divided by the root of 2. Demsar, JMLR 2006. Raises ValueError without two methods and a
    problem.
    """
    from scipy.stats import studentized_range

    if methods < 2 or problems < 1:
        raise ValueError(
            f"a critical difference needs 2 methods and 1 problem, got {methods} and {problems}; "
            "measure more"
        )
    quantile = float(studentized_range.ppf(1 - alpha, methods, inf)) / sqrt(2)
    return quantile * sqrt(methods * (methods + 1) / (6 * problems))


def wilcoxon_holm(scores: Scores, best: int) -> np.ndarray:
    """Return p (methods,) of the signed-rank test of each method with the method `best`.

    Adjusted for all of them by Holm; 1 for `best` itself and for a method that is equal in each
    problem. Wilcoxon, Biometrics Bulletin 1945.
    """
    from scipy.stats import wilcoxon

    found = np.ones(scores.shape[1])
    for method in range(scores.shape[1]):
        apart = scores[:, best] - scores[:, method]
        if apart.any():
            found[method] = wilcoxon(apart).pvalue
    others = np.delete(np.arange(len(found)), best)
    found[others] = holm(found[others])
    return found


def holm(chances: np.ndarray) -> np.ndarray:
    """Return p (m,) adjusted for m tests: the i-th smallest times m - i + 1, never decreasing.

    Holm, Scandinavian Journal of Statistics 6, 1979.
    """
    order = np.argsort(chances, kind="stable")
    factors = np.arange(len(chances), 0, -1)
    adjusted = np.minimum(np.maximum.accumulate(chances[order] * factors), 1.0)
    found = np.empty(len(chances))
    found[order] = adjusted
    return found


def rounds_to(curve: Sequence[tuple[int, float]], share: float = NEAR_BEST) -> int | None:
    """Return the first round whose accuracy is at least `share` of the best one; None: no rounds.

    `curve` has the round and the accuracy of each evaluation.
    """
    if not curve:
        return None
    least = share * max(accuracy for _, accuracy in curve)
    return next(number for number, accuracy in curve if accuracy >= least)


def worst_decile(accuracies: Sequence[float]) -> float | None:
    """Return the mean accuracy of the tenth of the clients with the lowest; None: no clients."""
    if not accuracies:
        return None
    return float(np.mean(sorted(accuracies)[: ceil(len(accuracies) / 10)]))
