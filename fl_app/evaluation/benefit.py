"""Whether communities serve their clients better than one model, from losses on held-out data."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy.special import stdtr

from fl_app.aggregation import lower_median
from fl_app.evaluation.ranks import holm
from fl_app.types import Labels, Weights

Parts = Float[np.ndarray, "n p"]
"""A value for each of p parts of the held-out samples of n clients."""
TRIMMED = 0.2
"""Share of the clients without influence at each end, so that a few liars decide nothing."""
LEVEL = 0.05
"""Of each test; of those whether communities gain, taken together."""
WORTH = 0.03
"""The mean gain that a split must exceed: for small gains, losses that are about 9 % lower.

Two models that the same clients train differ by nearly as much, for all of them alike.
"""
FEWEST = 3
"""Smallest number of clients by which a community is judged."""


@dataclass(frozen=True)
class Verdict:
    """Whether a split is of use, and the `communities` and single `clients` that it harms.

    `keeps` is None if the evidence does not tell. `served` are communities that gain, each for
    itself. A split whose use is not shown is `promising` if each of its communities seems to gain.
    `doubts` says whether a client that stays does not seem to gain.
    """

    keeps: bool | None
    communities: frozenset[int] = frozenset()
    clients: frozenset[int] = frozenset()
    served: frozenset[int] = frozenset()
    promising: bool = False
    doubts: bool = False

    @property
    def serves_all(self) -> bool:
        """Whether the split is of use, and harms nobody."""
        return self.keeps is True and not self.harms

    @property
    def harms(self) -> bool:
        """Whether the split harms a community or a client."""
        return bool(self.communities or self.clients)

    def at_the_end(self) -> "Verdict":
        """Return the verdict if there is no further look: a promising split is kept.

        If it is of use, to undo it can cost much, as with groups that contradict each other. One
        of no use seldom seems to serve each of its communities, but with few samples it can.
        """
        return replace(self, keeps=True) if self.promising else self

    def by_parts(self, communities: Collection[int], *, last: bool) -> "Verdict":
        """Return the verdict on a split into communities of which some may stay.

        If it is not shown to be of use as a whole, those stay that are served, at the last look.
        Before, others may still be found to be.
        """
        if self.keeps or not self.served:
            return self
        if not last:
            return replace(self, keeps=None)
        return replace(self, keeps=True, communities=frozenset(communities) - self.served)


def relative_gains(own: Parts, common: Parts) -> Parts:
    """Return the gains `(g - c) / (|g| + |c| + u)` (n, p), in [-1, 1], positive if c is less.

    c are the losses `own` of the communities' models and g those `common` of the one model; u is
    the lower median of the clients' mean |g|, so that differences between tiny losses count
    little. It is 0 where all three are 0.
    """
    usual = lower_median(np.abs(common).mean(axis=1))
    scale = np.abs(own) + np.abs(common) + usual
    found: Parts = np.divide(common - own, scale, out=np.zeros_like(scale), where=scale > 0)
    return found


def judge(
    client_ids: Labels,
    communities: Labels,
    gains: Parts,
    *,
    worth: float = WORTH,
    level: float = LEVEL,
) -> Verdict:
    """Judge a split from the mean gains (n, p) of n clients (n,) and their communities (n,).

    A client is harmed if its gains over the parts are below 0 by a paired t-test; a community of
    at least FEWEST clients, if their mean gains are, by a trimmed t-test. The split is of use if
    the trimmed mean over the clients that are left is above `worth`, by a test of this `level`, or
    if every community is served: gains that differ much between communities hide the former. It is
    of none if the mean over all clients is below. A community of at least FEWEST clients is served
    if the trimmed mean over its own clients is above `worth`, a smaller one if the parts of each of
    its clients are; by Holm's method for all communities together. If the evidence tells neither,
    the split is promising if the trimmed mean is above `worth` in every community.
    """
    means = gains.mean(axis=1)
    every = {row: means[communities == row] for row in np.unique(communities).tolist()}
    inside = {row: each for row, each in every.items() if len(each) >= FEWEST}
    harmed = [row for row, each in inside.items() if p_above(-each, trimmed=TRIMMED) < LEVEL]
    left = ~np.isin(communities, harmed)
    alone = np.array([p_above(-each) < LEVEL for each in gains], bool) & left
    p_values = {
        row: p_above(each - worth, trimmed=TRIMMED)
        if row in inside
        else max(p_above(parts - worth) for parts in gains[communities == row])
        for row, each in every.items()
    }
    each_gains = max(p_values.values(), default=1.0) < level
    shown = p_above(means[left & ~alone] - worth, trimmed=TRIMMED) < level
    keeps = True if shown or each_gains else None
    if keeps is None and p_above(worth - means, trimmed=TRIMMED) < LEVEL:
        keeps = False
    seem = [bool(_middle(each).mean() > worth) for each in every.values()]
    promising = keeps is None and bool(seem) and all(seem)
    fallen = frozenset(client_ids[alone].tolist())
    doubts = bool((means[left & ~alone] <= worth).any())
    return Verdict(keeps, frozenset(harmed), fallen, rejected(p_values), promising, doubts)


def rejected(p_values: Mapping[int, float]) -> frozenset[int]:
    """Return the hypotheses that Holm's method rejects, a true one with probability LEVEL at most.

    Those of which the p-value that `holm` adjusts is below LEVEL.
    """
    adjusted = holm(np.array([*p_values.values()])).tolist()
    return frozenset(row for row, p in zip(p_values, adjusted, strict=True) if p < LEVEL)


def p_above(values: Weights, *, trimmed: float = 0.0) -> float:
    """Return the one-sided p-value of a mean above 0, of values (n,) without a share at each end.

    With g = trimmed * n rounded down, `t = (1 - 2 g / n) m / (s / sqrt(n))` has n - 2 g - 1 degrees
    of freedom, where m is the trimmed mean and s the deviation of the winsorised values: Tukey and
    McLaughlin, Sankhya A 25, 1963. It is 1 with fewer than two values.
    """
    n = len(values)
    if n < 2:
        return 1.0
    middle = _middle(values, trimmed)
    error = float(np.clip(values, middle[0], middle[-1]).std(ddof=1)) / n**0.5
    mean = len(middle) / n * float(middle.mean())
    if error == 0:
        return 0.0 if mean > 0 else 1.0
    return float(stdtr(len(middle) - 1, -mean / error))


def _middle(values: Weights, trimmed: float = TRIMMED) -> Float[np.ndarray, " m"]:
    """Return the values in ascending order without a share at each end."""
    cut = int(trimmed * len(values))
    return np.sort(values)[cut : len(values) - cut]
