"""Communities in inner products (n, n) of clients' updates, held against noise and common drift.

`1 + cos` of two groups is 1.06 beside 1.015 if their updates are noisy, which modularity cannot
see, and the positive part of a cosine has communities even if there are none. Here a split is
kept only if it is stronger than what is left without it.
"""

from collections.abc import Callable
from math import log, sqrt

import numpy as np

from fl_app.graph.bipartition import bipartition
from fl_app.graph.communities import canonical
from fl_app.types import Labels, Matrix

SIGNIFICANT = 2.0
"""A split is kept if its strength is this multiple of the noise beside it. Of groups drawn from one
distribution, Louvain's split of the positive cosines has 1 to 1.5, rarely up to 2."""
FALSE_SPLIT = 0.05
"""Bound on the probability that clients without groups are ever split, however often tested."""
FEWEST = 3
"""Two clients are never told apart: there is nothing beside their difference to compare it with."""
FEWEST_PAIRS = 16
"""Fewer pairs inside communities, which were chosen as alike, do not tell how large the noise is:
they make it look too small, and independent noise of few clients would be split."""
PAIRS_OF_SIX = 6
"""Two communities of three have as many pairs. With at most these, noise counts twice. Independent
noise of five clients in many dimensions is still split more often than FALSE_SPLIT."""
Partition = Callable[[Matrix], Labels]
"""Finds communities (n,) in a non-negative similarity (n, n)."""


def cosines(products: Matrix) -> Matrix:
    """Return the cosines (n, n) of vectors with these inner products; of a zero vector, 0."""
    lengths = np.sqrt(np.clip(np.diag(products), 0.0, None))
    scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    found: Matrix = products * scale[:, None] * scale
    return found


def centred(products: Matrix) -> Matrix:
    """Return the inner products (n, n) of the vectors less their mean."""
    means = products.mean(axis=0)
    found: Matrix = products - means[:, None] - means + means.mean()
    return found


def contrast(cosine: Matrix, *, above: float = 0.0) -> Matrix:
    """Return `max(C - above, 0)` of the cosines C of centred unit vectors (n, n), with diagonal 0.

    Vectors have unit length before they are centred; else a client with longer updates would
    differ from the others in the direction of their common drift.
    """
    positive = np.clip(cosines(centred(cosine)) - above, 0.0, None)
    np.fill_diagonal(positive, 0.0)
    found: Matrix = (positive + positive.T) / 2
    return found


def significant(
    cosine: Matrix, partition: Partition, *, look: int | None = None, parameters: int = 1
) -> Labels:
    """Return communities (n,) of clients with these cosines (n, n) of their updates.

    They are those of `partition` in `contrast`, of which the two with the weakest split are joined
    while its `strength` is below SIGNIFICANT. All clients are one community if no split is
    significant. Numbered as by `canonical`. `look` is the number of this test of the clients, from
    1 on: noise counts with its `reach`, which grows with the tests. With fewer than FEWEST_PAIRS
    pairs inside communities, it is at least that of independent noise in all `parameters`; with at
    most PAIRS_OF_SIX, it counts twice. None: known noise was already removed from the updates.

    Centring gives unrelated vectors the mean cosine -1 / (n - 1), so that cosines inside a noisy
    group can be below 0. With a `look`, communities are therefore also looked for in what exceeds
    this mean, and those of which more are significant are returned: the reach bounds all splits.
    """
    n = len(cosine)
    if n < FEWEST:
        return np.zeros(n, int)
    far = 0.0 if look is None else reach(n, look)
    best = np.zeros(n, int)
    for above in (0.0,) if look is None else (0.0, -1 / (n - 1)):
        similarity = contrast(cosine, above=above)
        if similarity.any():  # not all alike
            found = _joined(cosine, partition(similarity), far, parameters**-0.5)
            best = found if found.max() > best.max() else best
    return best


def _joined(cosine: Matrix, labels: Labels, far: float, least: float) -> Labels:
    """Return the communities (n,) when those with a weak split have been joined."""
    while labels.max() > 0:
        found, one, other = _weakest(cosine, labels, far, least)
        if found >= SIGNIFICANT:
            break
        labels = canonical(np.where(labels == other, one, labels))
    return labels


def halves(cosine: Matrix, labels: Labels) -> Labels:
    """Return the two parts (n,) of clients in k communities (n,) that are least alike.

    They are the bipartition of the communities by the mean cosine of their centred vectors, of
    clients with these cosines (n, n). One community is one part. Numbered as by `canonical`.
    """
    k = int(labels.max()) + 1
    if k < 2:
        return np.zeros(len(labels), int)
    inside = np.eye(k)[labels]
    shares = inside / inside.sum(axis=0)
    between = shares.T @ cosines(centred(cosine)) @ shares
    return canonical(bipartition(between)[0][labels])


def reach(clients: int, look: int) -> float:
    """Return `sqrt(n) + sqrt(2 ln(1 / p))` for n clients, with p the chance of test number `look`.

    Of n vectors of independent normal noise in r dimensions, with mean squared length 1, the
    largest eigenvalue of the inner products exceeds `(1 + reach / sqrt(r))^2` with a probability
    of at most p (Davidson and Szarek 2001, theorem II.13). Test t spends
    `p = FALSE_SPLIT / (t (t + 1))`; the sum over all tests is FALSE_SPLIT. `look` is at least 1.
    """
    return sqrt(clients) + sqrt(2 * log(look * (look + 1) / FALSE_SPLIT))


def strength(
    cosine: Matrix, parts: Labels, *, noise: float, far: float = 0.0, least: float = 0.0
) -> float:
    """Return how strong a split in two `parts` (m,) is relative to the strongest other direction.

    With C the cosines (m, m) of the centred vectors and x the unit vector that is constant in each
    part and has mean 0, the strength of the split is x'(C - I)x. It is divided by the largest
    eigenvalue of C - I orthogonal to x, or by `2 sqrt(m) s` if that is larger: the edge of the
    spectrum of independent noise (Wigner's semicircle), with s its standard deviation `noise`
    relative to the mean squared length of the centred vectors. 0 with fewer than FEWEST clients.
    With `far`, a `reach`, it is at least divided by `far s + (far s)^2 / 2`: noise in 1 / s^2
    dimensions then has a strength above SIGNIFICANT in no split, up to the chance of the reach.
    `least` is a lower limit of s.
    """
    m, ones = len(parts), int(parts.sum())
    if m < FEWEST:
        return 0.0
    x = np.where(parts == 1, ((m - ones) / (m * ones)) ** 0.5, -((ones / (m * (m - ones))) ** 0.5))
    inner = centred(cosine)
    square = float(np.trace(inner)) / m
    if square <= np.finfo(float).eps:  # all are alike
        return 0.0
    beside = cosines(inner) - np.eye(m)
    along = beside @ x
    found = float(x @ along)
    rest = beside - np.outer(x, along) - np.outer(along, x) + found * np.outer(x, x)
    # a direction in which all vectors are alike is none in which they differ
    largest = float(np.linalg.eigvalsh(rest - np.full((m, m), 1.0))[-1])
    s = max(noise / square, least)
    edge = max(2 * m**0.5 * s, (2 * far * s + (far * s) ** 2) / SIGNIFICANT)
    return found / float(max(largest, edge, np.finfo(float).eps))


def noise_within(cosine: Matrix, labels: Labels, *, unbiased: bool = False) -> float:
    """Return the standard deviation of products of centred vectors inside communities (n,).

    In a community of c clients, unrelated centred vectors with the mean square q have the mean
    product -q / (c - 1). Communities below FEWEST are left out; 0 if there is no other. With
    `unbiased`, the squares are divided by `(1 - 1/c)^2 + 1/c^2`, by which the mean shrinks them.
    """
    found = [np.zeros(0)]
    for label in range(labels.max() + 1):
        inside = np.flatnonzero(labels == label)
        if len(inside) >= FEWEST:
            inner = centred(cosine[np.ix_(inside, inside)])
            expected = -float(np.diag(inner).mean()) / (len(inside) - 1)
            kept = (1 - 1 / len(inside)) ** 2 + 1 / len(inside) ** 2 if unbiased else 1.0
            found.append((inner[np.triu_indices(len(inside), 1)] - expected) / kept**0.5)
    values = np.concatenate(found)
    return float(np.sqrt(np.mean(values**2))) if len(values) else 0.0


def _weakest(cosine: Matrix, labels: Labels, far: float, white: float) -> tuple[float, int, int]:
    """Return the strength of the weakest split between two communities, and the two."""
    sizes = np.bincount(labels)
    pairs = int((sizes * (sizes - 1) // 2)[sizes >= FEWEST].sum())
    least = white if far and pairs < FEWEST_PAIRS else 0.0
    # without a community of FEWEST, a split has to be strong beside all differences
    known = labels if not far or pairs else np.zeros_like(labels)
    noise, found = noise_within(cosine, known, unbiased=far > 0), list[tuple[float, int, int]]()
    noise *= 2.0 if far and pairs <= PAIRS_OF_SIX else 1.0
    for other in range(labels.max() + 1):
        for one in range(other):
            both = np.flatnonzero((labels == one) | (labels == other))
            parts, inside = (labels[both] == other).astype(int), cosine[np.ix_(both, both)]
            found.append((strength(inside, parts, noise=noise, far=far, least=least), one, other))
    return min(found)
