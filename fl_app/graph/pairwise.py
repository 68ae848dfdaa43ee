"""Squared distances of all pairs of rows, from inner products and right for every pair."""

from collections.abc import Callable, Iterator

import numpy as np
from scipy import sparse

COLUMNS = 65_536
"""Columns brought to double precision at a time: nothing of size (n, d) in double."""
ROUNDING = 1e-12
"""Squared distances below this share of the pair's own squares are zero but for rounding."""
VAGUE = 1e-6
"""Squared distances below this share of the pair's own squares are measured once more."""

Rows = np.ndarray | slice
Sums = np.ndarray
"""What is summed over columns for every pair (q, n, m): squared distances first, then the
squares of both rows around the centre, then whatever else a distance needs."""
Measure = Callable[[Rows, Rows], Sums]
"""Sums of some rows with some others, around the mean of the first."""


def squared_distances(models: np.ndarray, others: np.ndarray, *, same: bool) -> np.ndarray:
    """Return `|a - b|^2` (n, m) of models (n, d) and others (m, d), in double precision.

    `same` says that `others` are the models: the diagonal is 0. Each pair is right to about
    1e-9 of itself, however far other rows lie: see `refined`. Finite for finite float32 rows.
    """

    def measure(rows: Rows, columns: Rows) -> Sums:
        sums: Sums = np.zeros((2, *_shape(models, others, rows, columns)))
        for part in blocks(models.shape[1]):
            a, b = wide(models, rows, part), wide(others, columns, part)
            centre = a.mean(axis=0)
            a, b = a - centre, b - centre
            both = (a * a).sum(1)[:, None] + (b * b).sum(1)[None, :]
            sums[0] += both - 2.0 * (a @ b.T)
            sums[1] += both
        return sums

    return without_rounding(refined(measure, len(models), len(others), same=same))


def refined(measure: Measure, n: int, m: int, *, same: bool) -> Sums:
    """Return the sums (q, n, m) that `measure` gives for all pairs, each pair right by itself.

    An inner product loses the digits of a distance that is small beside the distance of both
    rows from the centre. One far row moves the centre of all, and would round the distances of
    the others to zero. So rows whose distance is below VAGUE of their squares are joined to
    groups, and each group is measured once more around its own centre. A level of groups
    costs no more than the first measurement; without far rows there is none.
    """
    found = measure(slice(None), slice(None))
    if same:
        found[0, range(n), range(n)] = 0.0
    waiting = list(_groups(found, np.arange(n), np.arange(m), same=same))
    while waiting:
        rows, columns = waiting.pop()
        place = np.ix_(np.arange(len(found)), rows, columns)
        found[place] = measure(rows, columns)
        if same:
            found[0, rows, rows] = 0.0
        for some, those in _groups(found[place], rows, columns, same=same):
            if len(some) + len(those) < len(rows) + len(columns):
                waiting.append((some, those))
    return found


def without_rounding(sums: Sums) -> np.ndarray:
    """Return squared distances (n, m), 0 where all there is may be the rounding of the pair."""
    return np.where(sums[0] > ROUNDING * sums[1], sums[0], 0.0)


def squared_lengths(rows: np.ndarray) -> np.ndarray:
    """Return `|a|^2` (n,) of rows (n, d) in double precision: 0 for rows of zeros alone."""
    found = np.zeros(len(rows))
    for part in blocks(rows.shape[1]):
        some = wide(rows, slice(None), part)
        found += np.einsum("nd,nd->n", some, some)
    return found


def blocks(length: int) -> Iterator[slice]:
    """Yield the columns in slices of at most COLUMNS."""
    for start in range(0, length, COLUMNS):
        yield slice(start, start + COLUMNS)


def wide(table: np.ndarray, rows: Rows, part: slice) -> np.ndarray:
    """Return some rows and columns of a table in double precision."""
    return table[rows, part].astype(np.float64)


def _shape(models: np.ndarray, others: np.ndarray, rows: Rows, columns: Rows) -> tuple[int, int]:
    return len(models[rows, :0]), len(others[columns, :0])


def _groups(
    sums: Sums, rows: np.ndarray, columns: np.ndarray, *, same: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows and columns that a vague pair joins, directly or through others."""
    vague = sums[0] < VAGUE * sums[1]
    if same:
        np.fill_diagonal(vague, False)
    if not vague.any():
        return
    edges = sparse.csr_array(vague)
    graph = edges if same else sparse.block_array([[None, edges], [edges.T, None]])
    label = sparse.csgraph.connected_components(graph, directed=False)[1]
    left, right = (label, label) if same else (label[: len(rows)], label[len(rows) :])
    for group in np.unique(label):
        some, those = rows[left == group], columns[right == group]
        if len(some) and len(those) and len(some) + len(those) > 2 * same:
            yield some, those
