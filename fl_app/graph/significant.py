"""Communities whose splits are stronger than noise and common drift alone would make them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from fl_app.graph.communities import canonical
from fl_app.graph.contrast import centred_cosines, exceeding
from fl_app.graph.gap import Positions, gap, gap_by_degrees
from fl_app.graph.split_strength import (
    FEWEST,
    SIGNIFICANT,
    Noise,
    Split,
    deviation,
    reach,
    squares_within,
)
from fl_app.types import Labels, Matrix, Members, Weights

FEWEST_PAIRS = 16
"""Fewer pairs inside communities, which were chosen as alike, do not tell how large the noise is:
they make it look too small, and independent noise of few clients would be split."""
PAIRS_OF_SIX = 6
"""Two communities of three have as many pairs. With at most these, noise counts twice. Independent
noise of five clients in many dimensions is still split more often than FALSE_SPLIT."""
Partition = Callable[[Matrix], Labels]
"""Finds communities (n,) in a non-negative similarity (n, n)."""
Evidence = Callable[[Labels, int, int], bool]
"""Whether two of the communities (n,) of the clients, given by their numbers, are two."""


def significant(
    cosine: Matrix,
    partition: Partition,
    *,
    look: int | None = None,
    parameters: int = 1,
    lengths: Weights | None = None,
    evidence: Evidence | None = None,
) -> Labels:
    """Return communities (n,) of clients with these cosines (n, n) of their updates.

    They are those of `partition` in `contrast`, of which the two with the weakest split are joined
    while its `strength` is below SIGNIFICANT, or there is no `evidence` of it. All clients are one
    community if no split is significant. Numbered as by `canonical`. `look` is the number of this
    test of the clients, from 1 on: noise counts with its `reach`, which grows with the tests. With
    fewer than FEWEST_PAIRS pairs inside communities, it is at least that of independent noise in
    all `parameters`; with at most PAIRS_OF_SIX, it counts twice. None: known noise was already
    removed from the updates.

    Centring gives unrelated vectors the mean cosine -1 / (n - 1), so that cosines inside a noisy
    group can be below 0. With a `look`, communities are therefore also looked for in what exceeds
    this mean, and those of which more are significant are returned: the reach bounds all splits.
    Each community is then looked at by itself, without its own mean: if two pairs of groups differ
    much more than the groups of a pair, modularity sees only the pairs. With the `lengths` (n,) of
    the clients' mean updates, the evidence is `standing_apart` at every such look.
    """
    n, least = len(cosine), parameters**-0.5
    if n < FEWEST:
        return np.zeros(n, int)
    if look is None:
        return _most(cosine, partition, (0.0,), _Test(0.0, least, evidence))
    about = evidence if lengths is None else standing_apart(cosine, lengths)
    test = _Test(reach(n, look), least, about)
    found = _most(cosine, partition, (0.0, -1 / (n - 1)), test)
    if found.max() == 0:
        return found
    labels = np.zeros(n, int)
    for label in range(found.max() + 1):
        some = np.flatnonzero(found == label)
        inside, of = cosine[np.ix_(some, some)], None if lengths is None else lengths[some]
        parts = significant(inside, partition, look=look, parameters=parameters, lengths=of)
        labels[some] = labels.max() + 1 + parts
    return canonical(labels)


def standing_apart(cosine: Matrix, lengths: Weights) -> Evidence:
    """Return the evidence that the `gap` of two communities is one that degrees seldom have.

    The clients have these cosines (n, n) and lengths (n,) of the mean of their updates.
    """
    positions = Positions(cosine, lengths)

    def is_apart(labels: Labels, one: int, other: int) -> bool:
        return gap(positions, labels, one, other) >= gap_by_degrees(len(labels))

    return is_apart


@dataclass(frozen=True)
class _Test:
    """What a split must stand up to: the reach and the least size of noise, and the evidence."""

    far: float
    least: float
    evidence: Evidence | None


def _most(cosine: Matrix, partition: Partition, levels: Sequence[float], test: _Test) -> Labels:
    """Return the communities (n,) in the graph of what exceeds the level that has most of them."""
    best, compared = np.zeros(len(cosine), int), centred_cosines(cosine)
    known = list[Labels]()
    for above in levels:
        similarity = exceeding(compared, above, inplace=above == levels[-1])
        if not similarity.any():  # all alike
            continue
        labels = partition(similarity)
        if any(np.array_equal(labels, each) for each in known):
            continue
        known.append(labels)
        found = _Communities(cosine, labels, test).joined()
        best = found if found.max() > best.max() else best
    return best


Name = tuple[int, int]
"""The first member and the size of a community; while communities are joined, only it has both."""


class _Communities:
    """Communities (n,) of which those with a weak split are joined, one pair after the other.

    Each split is measured once.
    """

    def __init__(self, cosine: Matrix, labels: Labels, test: _Test) -> None:
        self._cosine, self._test = cosine, test
        self._labels = labels
        self._splits: dict[tuple[Name, Name], Split] = {}
        self._squares: dict[Name, tuple[float, int]] = {}

    def joined(self) -> Labels:
        """Return the communities (n,) when those with a weak split have been joined."""
        while self._labels.max() > 0:
            found, one, other = self._weakest()
            if found >= SIGNIFICANT:
                break
            self._labels = canonical(np.where(self._labels == other, one, self._labels))
        return self._labels

    def _weakest(self) -> tuple[float, int, int]:
        """Return the strength of the weakest split between two communities, and the two.

        A split of which there is no evidence has no strength.
        """
        members = [np.flatnonzero(self._labels == each) for each in range(self._labels.max() + 1)]
        noise, found = self._noise(members), list[tuple[float, int, int]]()
        for one, other in combinations(range(len(members)), 2):
            value = self._split(members[one], members[other]).strength(noise)
            if value >= SIGNIFICANT and not self._is_evident(other, one):
                value = 0.0
            found.append((value, one, other))
        return min(found)

    def _noise(self, members: list[Members]) -> Noise:
        """Return the noise inside these communities, and what it must count for."""
        far, least = self._test.far, self._test.least
        pairs = sum(len(each) * (len(each) - 1) // 2 for each in members if len(each) >= FEWEST)
        # without a community of FEWEST, a split has to be strong beside all differences
        known = members if not far or pairs else [np.arange(len(self._cosine))]
        size = deviation([self._squares_of(each) for each in known])
        size *= 2.0 if far and pairs <= PAIRS_OF_SIX else 1.0
        return Noise(size, far, least if far and pairs < FEWEST_PAIRS else 0.0)

    def _squares_of(self, rows: Members) -> tuple[float, int]:
        if _name(rows) not in self._squares:
            found = squares_within(self._cosine, rows, unbiased=self._test.far > 0)
            self._squares[_name(rows)] = found
        return self._squares[_name(rows)]

    def _split(self, one: Members, other: Members) -> Split:
        key = _name(one), _name(other)
        if key not in self._splits:
            self._splits[key] = Split(self._cosine, one, other)
        return self._splits[key]

    def _is_evident(self, one: int, other: int) -> bool:
        evidence = self._test.evidence
        return evidence is None or evidence(self._labels, one, other)


def _name(rows: Members) -> Name:
    return int(rows[0]), len(rows)
