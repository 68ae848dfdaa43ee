"""How strong a split of clients is beside noise."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from fl_app.graph.contrast import centred, centred_cosines, centred_squares
from fl_app.types import Matrix, Members, Some, SomeMatrix

SIGNIFICANT = 2.0
"""A split is kept if its strength is this multiple of the noise beside it. Of groups drawn from one
distribution, Louvain's split of the positive cosines has 1 to 1.5, rarely up to 2."""
FALSE_SPLIT = 0.05
"""Bound on the probability that clients without groups are ever split, however often tested.

It holds for independent noise. What is left of a common drift is not noise: see `without_drift`."""
FEWEST = 3
"""Two clients are never told apart: there is nothing beside their difference to compare it with."""
MANY = 200
"""Rows of a matrix from which on its largest eigenvalue alone is computed."""
TOLERANCE = 1e-6
"""Residual of Lanczos' method. With 1e-4 it ended at the second largest eigenvalue where its start
was nearly orthogonal to the first eigenvector."""
TINY = float(np.finfo(float).eps)


def reach(clients: int, look: int) -> float:
    """Return `sqrt(n) + sqrt(2 ln(1 / p))` for n clients, with p the chance of test number `look`.

    Of n vectors of independent normal noise in r dimensions, with mean squared length 1, the
    largest eigenvalue of the inner products exceeds `(1 + reach / sqrt(r))^2` with a probability
    of at most p (Davidson and Szarek 2001, theorem II.13). Test t spends
    `p = FALSE_SPLIT / (t (t + 1))`; the sum over all tests is FALSE_SPLIT. `look` is at least 1.
    """
    return sqrt(clients) + sqrt(2 * log(look * (look + 1) / FALSE_SPLIT))


@dataclass(frozen=True)
class Noise:
    """The noise that a split must stand out of: its size and its `reach`, if it has one."""

    size: float
    """Standard deviation of the products of unrelated centred vectors: `deviation`."""
    far: float = 0.0
    least: float = 0.0
    """Lower limit of the size relative to the mean squared length of the centred vectors."""

    def edge(self, clients: int, square: float) -> float:
        """Return the edge of its spectrum for m clients with this mean squared length.

        It is `2 sqrt(m) s` (Wigner's semicircle), with s the size relative to the mean square.
        With a reach `far`, it is at least `far s + (far s)^2 / 2`: noise in 1 / s^2 dimensions then
        has a strength above SIGNIFICANT in no split, up to the chance of the reach.
        """
        s = max(self.size / square, self.least)
        reached = self.far * s
        return max(2 * sqrt(clients) * s, (2 * reached + reached**2) / SIGNIFICANT)


class Split:
    """A split of m clients in two parts; how strong it is beside the strongest other direction.

    With C the cosines (m, m) of the centred vectors and x the unit vector that is constant in each
    part and has mean 0, the strength of the split is x'(C - I)x. It is divided by the largest
    eigenvalue of C - I orthogonal to x, or by the edge of the `Noise` if that is larger. It is 0
    with fewer than FEWEST clients, or if all are alike.
    """

    def __init__(self, cosine: Matrix, one: Members, other: Members) -> None:
        """Measure the split between the rows (a,) and (b,) of cosines (n, n)."""
        self._cosine, self._rows = cosine, np.sort(np.concatenate([one, other]))
        self._square, self._beside = 0.0, None
        m, ones = len(self._rows), len(other)
        if m < FEWEST:
            return
        beside, self._square = _beside(cosine, self._rows)
        if self._square <= TINY:
            return
        high, low = ((m - ones) / (m * ones)) ** 0.5, (ones / (m * (m - ones))) ** 0.5
        self._x = np.where(np.isin(self._rows, other), high, -low)
        moved = beside @ self._x
        self._along = float(self._x @ moved)
        norm = float(np.vdot(beside, beside)) - 2 * float(moved @ moved) + self._along**2
        self._largest, self._known = sqrt(max(norm, 0.0)), False
        self._beside = beside

    def strength(self, noise: Noise) -> float:
        """Return the strength, or of a significant split a lower bound of at least SIGNIFICANT.

        The bound has the Frobenius norm in place of the eigenvalue, which is computed once.
        """
        if self._square <= TINY:
            return 0.0
        edge = max(noise.edge(len(self._rows), self._square), TINY)
        is_clear = self._along >= SIGNIFICANT * max(self._largest, edge)
        if not (self._known or is_clear or self._largest <= edge):
            self._largest, self._known = self._eigenvalue(), True
        self._beside = None
        return self._along / max(self._largest, edge)

    def _eigenvalue(self) -> float:
        """Return the largest eigenvalue of C - I orthogonal to x."""
        beside = _beside(self._cosine, self._rows)[0] if self._beside is None else self._beside
        moved = beside @ self._x - self._along / 2 * self._x
        beside -= np.outer(self._x, moved)
        beside -= np.outer(moved, self._x)
        beside -= 1.0  # a direction in which all vectors are alike is none in which they differ
        return largest_eigenvalue(beside)


def _beside(cosine: Matrix, rows: Some) -> tuple[SomeMatrix, float]:
    """Return C - I (m, m) of some rows of cosines (n, n), and the mean squared length."""
    inside = cosine[np.ix_(rows, rows)]
    square = float(centred_squares(inside).mean())
    found = centred_cosines(inside, inplace=True)
    np.fill_diagonal(found, np.diag(found) - 1.0)
    return found, square


def largest_eigenvalue(symmetric: Matrix) -> float:
    """Return the largest eigenvalue of a matrix (m, m); from MANY rows on by Lanczos' method."""
    if len(symmetric) >= MANY:
        start = np.cos(np.arange(len(symmetric), dtype=np.float32))  # the same in every run
        single = symmetric.astype(np.float32)
        try:
            found = eigsh(single, 1, which="LA", v0=start, tol=TOLERANCE, return_eigenvectors=False)
            return float(found[0])
        except ArpackNoConvergence:
            pass
    return float(np.linalg.eigvalsh(symmetric)[-1])


def squares_within(cosine: Matrix, rows: Some, *, unbiased: bool) -> tuple[float, int]:
    """Return the sum of squares of the products of a community's centred vectors, and how many.

    With c clients and mean squared length q, these are the products of pairs less the expected
    product -q / (c - 1). 0 and 0 below FEWEST clients. With `unbiased`, the squares are divided by
    `(1 - 1/c)^2 + 1/c^2`, by which the mean shrinks them.
    """
    c = len(rows)
    if c < FEWEST:
        return 0.0, 0
    inner = centred(cosine[np.ix_(rows, rows)])
    inner += float(np.trace(inner)) / c / (c - 1)
    np.fill_diagonal(inner, 0.0)
    shrunk = (1 - 1 / c) ** 2 + 1 / c**2 if unbiased else 1.0
    return float(np.vdot(inner, inner)) / 2 / shrunk, c * (c - 1) // 2


def deviation(squares: Sequence[tuple[float, int]]) -> float:
    """Return the root of the mean of all squares, given by sums and counts; 0 of none."""
    total, count = np.sum(np.array(squares).reshape(-1, 2), axis=0).tolist()
    return sqrt(total / count) if count else 0.0
