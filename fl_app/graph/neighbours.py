"""The nearest neighbours of every client, updated when rows of the matrix change."""

import numpy as np
from scipy import sparse

from fl_app.types import Matrix

BLOCK = 256
"""Rows sorted at a time, so that copies are small compared with the matrix."""


class Neighbours:
    """The `count` nearest others of each client, exact after every change.

    The nearest clients have the largest entries, or with `smallest` the smallest entries. A change
    of a few rows affects few lists: those of the changed clients, those that contain one of them,
    and those that one of them now enters. Only these are sorted again.
    """

    def __init__(self, count: int, *, smallest: bool = False) -> None:
        self.count, self.smallest = count, smallest
        self._lists = np.empty((0, 0), np.intp)

    def update(self, matrix: Matrix, changed: np.ndarray) -> None:
        """Update the lists after a change of some rows and columns of `matrix` (n, n)."""
        n, known = len(matrix), len(self._lists)
        width = min(self.count, n - 1)
        if self._lists.shape[1] != width:
            self._lists = neighbour_lists(matrix, np.arange(n), width, smallest=self.smallest)
            return
        lists = np.empty((n, width), np.intp)
        lists[:known] = self._lists
        stale = np.zeros(n, bool)
        stale[known:] = stale[changed] = True
        old = np.flatnonzero(~stale)
        moved = np.zeros(n, bool)
        moved[changed] = True
        stale[old] = moved[lists[old]].any(axis=1) | self._entered(matrix, lists, old, changed)
        again = np.flatnonzero(stale)
        lists[again] = neighbour_lists(matrix, again, width, smallest=self.smallest)
        self._lists = lists

    def _entered(
        self, matrix: Matrix, lists: np.ndarray, old: np.ndarray, changed: np.ndarray
    ) -> np.ndarray:
        """Return which of the old lists (o,) a changed client enters."""
        held, come = matrix[old[:, None], lists[old]], matrix[np.ix_(old, changed)]
        if self.smallest:
            held, come = -held, -come
        least = held.min(axis=1, initial=np.inf)
        entered: np.ndarray = (come >= least[:, None]).any(axis=1)
        return entered

    def lists(self, matrix: Matrix) -> np.ndarray:
        """Return the columns (n, w) of the neighbours of every row."""
        n = len(matrix)
        if len(self._lists) != n:
            self.update(matrix, np.arange(n))
        return self._lists


def symmetric(lists: np.ndarray, weights: np.ndarray) -> sparse.csr_matrix:
    """Return the symmetric graph (n, n) of neighbours (n, w) with edge weights (n, w)."""
    n, width = lists.shape
    rows = np.repeat(np.arange(n), width)
    half = sparse.csr_matrix((weights.ravel(), (rows, lists.ravel())), (n, n))
    whole = half.maximum(half.T).tocsr()
    whole.eliminate_zeros()
    return whole


def neighbour_lists(
    matrix: Matrix,
    rows: np.ndarray,
    count: int,
    *,
    columns: np.ndarray | None = None,
    smallest: bool = False,
) -> np.ndarray:
    """Return the columns (m, count) of the largest entries of some rows, without the diagonal.

    With `smallest`, of the smallest entries. With `columns` (c,), which must be the rows in the
    same order, only these columns are used, and indices into them are returned. Among equal
    entries, those with the smaller column are selected, so that the lists depend only on the
    matrix and not on the changes before.
    """
    found = np.empty((len(rows), count), np.intp)
    for start in range(0, len(rows) if count else 0, BLOCK):
        some = rows[start : start + BLOCK]
        part = matrix[some] if columns is None else matrix[np.ix_(some, columns)]
        if smallest:
            np.negative(part, out=part)
        own = some if columns is None else np.arange(start, start + len(some))
        part[np.arange(len(some)), own] = -np.inf
        least = np.partition(part, -count, axis=1)[:, -count, None]
        above, equal = part > least, part == least
        room = count - above.sum(axis=1, keepdims=True)
        taken = above | (equal & (equal.cumsum(axis=1) <= room))
        found[start : start + BLOCK] = np.nonzero(taken)[1].reshape(len(some), count)
    return found
