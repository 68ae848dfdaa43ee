"""How strong a split of clients is beside noise, and how far its two parts stand apart."""

from math import log, sqrt

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from fl_app.graph.contrast import centred, cosines
from fl_app.types import Labels, Matrix, Weights

SIGNIFICANT = 2.0
"""A split is kept if its strength is this multiple of the noise beside it. Of groups drawn from one
distribution, Louvain's split of the positive cosines has 1 to 1.5, rarely up to 2."""
FALSE_SPLIT = 0.05
"""Bound on the probability that clients without groups are ever split, however often tested."""
FEWEST = 3
"""Two clients are never told apart: there is nothing beside their difference to compare it with."""
MANY = 1000
"""Rows of a matrix of which computing all eigenvalues takes seconds."""


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
    largest = largest_eigenvalue(rest - np.full((m, m), 1.0))
    s = max(noise / square, least)
    edge = max(2 * m**0.5 * s, (2 * far * s + (far * s) ** 2) / SIGNIFICANT)
    return found / float(max(largest, edge, np.finfo(float).eps))


def largest_eigenvalue(symmetric: Matrix) -> float:
    """Return the largest eigenvalue of a matrix (m, m); from MANY rows on by Lanczos' method."""
    if len(symmetric) >= MANY:
        start = np.cos(np.arange(len(symmetric)))  # the same in every run
        try:
            found = eigsh(symmetric, 1, which="LA", v0=start, return_eigenvectors=False)
            return float(found[0])
        except ArpackNoConvergence:
            pass
    return float(np.linalg.eigvalsh(symmetric)[-1])


def positions(cosine: Matrix, lengths: Weights, labels: Labels, one: int, other: int) -> Weights:
    """Return the positions (n,) of clients between two communities.

    It is the inner product of a client's vector and the difference of the means of the communities
    `one` and `other` of these `labels` (n,), both without the client itself, so that its own noise
    does not put it into its community. Both need two clients. The vectors have these cosines (n, n)
    and lengths (n,). The difference of the communities' mean positions is the squared distance of
    their means, which noise does not bias.
    """
    own, found = np.diag(cosine) * lengths**2, np.zeros(len(labels))
    for label, sign in ((one, 1.0), (other, -1.0)):
        inside = labels == label
        sums = lengths * (cosine @ (lengths * inside)) - own * inside
        found += sign * sums / (inside.sum() - inside)
    return found


def gap(cosine: Matrix, lengths: Weights, labels: Labels, one: int, other: int) -> float:
    """Return the variance of `positions` between two communities relative to that inside all.

    A direction in which clients differ by degrees has no gap, however strong it is; the lengths
    (n,) are such degrees. A community of one client has no spread to compare with: infinity.
    """
    first, second = labels == one, labels == other
    if min(first.sum(), second.sum()) < 2:
        return float("inf")
    found = positions(cosine, lengths, labels, one, other)
    apart = max(float(found[first].mean() - found[second].mean()), 0.0)
    share = float(first.sum() / (first.sum() + second.sum()))
    sizes = np.bincount(labels)
    inside = found - (np.bincount(labels, found) / sizes)[labels]
    spread = float(inside @ inside) / (len(labels) - len(sizes))
    return apart**2 * share * (1 - share) / max(spread, float(np.finfo(float).tiny))


def gap_by_degrees(clients: int) -> float:
    """Return the `gap` that n clients seldom have if they differ only by degrees.

    It is `4 + 40 / (n - 3)`; for three clients, of whom one stands alone, as for four. If the
    positions are uniform, their best cut has 3 in the mean of many clients, and at most this in 92
    to 95 of 100 draws; if they are normal, 1.75, and at most this in more.
    """
    return 4 + 40 / max(clients - 3, 1)


def noise_within(cosine: Matrix, labels: Labels, *, unbiased: bool = False) -> float:
    """Return the standard deviation of products of centred vectors inside communities (n,).

    In a community of c clients, unrelated centred vectors with the mean square q have the mean
    product -q / (c - 1). Communities below FEWEST do not count; 0 if there is no other. With
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
