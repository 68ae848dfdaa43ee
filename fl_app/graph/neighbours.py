"""The nearest neighbours of every client, kept up to date as rows of similarity change."""

import numpy as np
from scipy import sparse

from fl_app.types import Labels, Matrix

BLOCK = 256
"""Rows sorted at a time: their copies stay small beside the matrix."""


class Neighbours:
    """The `count` most similar others of each client, exact after every change.

    A change of a few rows touches few lists: those of the changed clients, those that hold
    one of them, and those that one of them now enters. Only these are sorted again.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._lists = np.empty((0, 0), np.intp)

    def update(self, matrix: Matrix, changed: np.ndarray) -> None:
        """Bring the lists up to date after `matrix` (n, n) changed in some rows and columns."""
        n, known = len(matrix), len(self._lists)
        width = min(self.count, n - 1)
        if self._lists.shape[1] != width:
            self._lists = nearest(matrix, np.arange(n), width)
            return
        lists = np.empty((n, width), np.intp)
        lists[:known] = self._lists
        stale = np.zeros(n, bool)
        stale[known:] = stale[changed] = True
        old = np.flatnonzero(~stale)
        moved = np.zeros(n, bool)
        moved[changed] = True
        holds = moved[lists[old]].any(axis=1)
        least = matrix[old[:, None], lists[old]].min(axis=1, initial=np.inf)
        enters = (matrix[np.ix_(old, changed)] >= least[:, None]).any(axis=1)
        stale[old] = holds | enters
        again = np.flatnonzero(stale)
        lists[again] = nearest(matrix, again, width)
        self._lists = lists

    def graph(self, matrix: Matrix, order: Labels) -> sparse.csr_matrix:
        """Return the symmetric graph (n, n) with clients in the given order of rows."""
        n = len(matrix)
        if len(self._lists) != n:
            self.update(matrix, np.arange(n))
        width = self._lists.shape[1]
        rows, columns = np.repeat(np.arange(n), width), self._lists.ravel()
        place = np.empty(n, np.intp)
        place[order] = np.arange(n)
        weights = matrix[rows, columns].astype(np.float64)
        half = sparse.csr_matrix((weights, (place[rows], place[columns])), (n, n))
        return half.maximum(half.T).tocsr()


def nearest(matrix: Matrix, rows: np.ndarray, count: int) -> np.ndarray:
    """Return the columns (m, count) of the largest entries of some rows, the diagonal aside.

    Of equal entries those of the smaller columns: the lists depend on the matrix alone, and
    not on the changes that led to it.
    """
    found = np.empty((len(rows), count), np.intp)
    for start in range(0, len(rows) if count else 0, BLOCK):
        some = rows[start : start + BLOCK]
        part = matrix[some]
        part[np.arange(len(some)), some] = -np.inf
        least = np.partition(part, -count, axis=1)[:, -count, None]
        above, equal = part > least, part == least
        room = count - above.sum(axis=1, keepdims=True)
        taken = above | (equal & (equal.cumsum(axis=1) <= room))
        found[start : start + BLOCK] = np.nonzero(taken)[1].reshape(len(some), count)
    return found
