"""Communities whose splits are stronger than noise and common drift alone would make them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fl_app.graph.communities import canonical
from fl_app.graph.contrast import contrast
from fl_app.graph.split_strength import (
    FEWEST,
    SIGNIFICANT,
    gap,
    gap_by_degrees,
    noise_within,
    reach,
    strength,
)
from fl_app.types import Labels, Matrix, Weights

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

    def is_apart(labels: Labels, one: int, other: int) -> bool:
        return gap(cosine, lengths, labels, one, other) >= gap_by_degrees(len(labels))

    return is_apart


@dataclass(frozen=True)
class _Test:
    """What a split must stand up to: the reach and the least size of noise, and the evidence."""

    far: float
    least: float
    evidence: Evidence | None


def _most(cosine: Matrix, partition: Partition, levels: Sequence[float], test: _Test) -> Labels:
    """Return the communities (n,) in the graph of what exceeds the level that has most of them."""
    best = np.zeros(len(cosine), int)
    for above in levels:
        similarity = contrast(cosine, above=above)
        if similarity.any():  # not all alike
            found = _joined(cosine, partition(similarity), test)
            best = found if found.max() > best.max() else best
    return best


def _joined(cosine: Matrix, labels: Labels, test: _Test) -> Labels:
    """Return the communities (n,) when those with a weak split have been joined."""
    while labels.max() > 0:
        found, one, other = _weakest(cosine, labels, test)
        if found >= SIGNIFICANT:
            break
        labels = canonical(np.where(labels == other, one, labels))
    return labels


def _weakest(cosine: Matrix, labels: Labels, test: _Test) -> tuple[float, int, int]:
    """Return the strength of the weakest split between two communities, and the two.

    A split of which there is no evidence has no strength.
    """
    far, evidence = test.far, test.evidence
    sizes = np.bincount(labels)
    pairs = int((sizes * (sizes - 1) // 2)[sizes >= FEWEST].sum())
    least = test.least if far and pairs < FEWEST_PAIRS else 0.0
    # without a community of FEWEST, a split has to be strong beside all differences
    known = labels if not far or pairs else np.zeros_like(labels)
    noise, found = noise_within(cosine, known, unbiased=far > 0), list[tuple[float, int, int]]()
    noise *= 2.0 if far and pairs <= PAIRS_OF_SIX else 1.0
    for other in range(labels.max() + 1):
        for one in range(other):
            both = np.flatnonzero((labels == one) | (labels == other))
            parts, inside = (labels[both] == other).astype(int), cosine[np.ix_(both, both)]
            value = strength(inside, parts, noise=noise, far=far, least=least)
            if value >= SIGNIFICANT and evidence and not evidence(labels, other, one):
                value = 0.0
            found.append((value, one, other))
    return min(found)
