"""Squared distances of all pairs of rows from inner products, accurate for every pair."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from scipy import sparse

from fl_app.graph.parallel import in_order
from fl_app.graph.rows_in_memory import Some, blocks
from fl_app.graph.table import Rows, precision, wide

ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-6}
"""Squared distances below this share of the pair's squares are zero up to rounding."""
VAGUE = {torch.float64: 1e-6, torch.float32: 1e-3}
"""Squared distances below this share of the pair's squares are computed again."""

Sums = np.ndarray
"""Sums over columns for every pair (q, n, m): squared distances, then the squares of both rows
around the centre, then other sums that a distance needs."""
PairSums = Callable[[Some, Some], Sums]
"""Computes the sums of some rows with some others, around the mean of the first."""


def squared_distances(
    models: Rows, others: Rows, *, same: bool, own: np.ndarray | None = None
) -> np.ndarray:
    """Return `|a - b|^2` (n, m) of models (n, d) and others (m, d), in double precision.

    `same`: `others` are the models, and the diagonal is 0. `own` (n,) is the index of each model
    among the others. The relative error of each pair is about 1e-9, even if other rows are far
    away (see `refined`), or about 1e-3 for rows in half precision. Finite for finite rows.
    """
    kind = precision(models, others)
    if same:
        own = np.arange(len(models))
    measure = partial(_measured, models, others, kind)
    found = refined(measure, len(models), len(others), same=same, own=own, vague=VAGUE[kind])
    return without_rounding(found, kind)


def _measured(models: Rows, others: Rows, kind: torch.dtype, some: Some, those: Some) -> Sums:
    """Return the squared distances and squares (2, n, m) of some models and some others."""
    sums = torch.zeros(2, *shape(models, others, some, those), dtype=torch.float64)
    of_block = partial(_measured_block, models, others, kind, some, those)
    for found in in_order(of_block, blocks(models.shape[1], max(sums.shape))):
        sums += found
    return sums.numpy()


def _measured_block(
    models: Rows, others: Rows, kind: torch.dtype, some: Some, those: Some, part: slice
) -> torch.Tensor:
    a, b = wide(models, some, part).to(kind), wide(others, those, part).to(kind)
    centre = a.mean(dim=0)
    a -= centre
    b -= centre
    both = row_dots(a, a)[:, None] + row_dots(b, b)
    return torch.stack([both - 2.0 * (a @ b.T), both])


def refined(
    measure: PairSums,
    n: int,
    m: int,
    *,
    same: bool,
    own: np.ndarray | None = None,
    vague: float = VAGUE[torch.float64],
) -> Sums:
    """Return the sums (q, n, m) that `measure` gives for all pairs, accurate for each pair.

    An inner product loses the digits of a distance that is small compared with the distance of
    both rows from the centre. One far row moves the common centre, and the distances of the
    others would be rounded to zero. Therefore rows whose squared distance is below `vague` times
    their squares are joined to groups, and each group is measured again around its own centre. A
    level of groups costs no more than the first measurement; without far rows there is none.
    The distance between a row and its own column `own` (n,) is 0.
    """
    own = np.full(n, -1) if own is None else own
    known = np.flatnonzero(own >= 0)
    found = measure(slice(None), slice(None))
    waiting = list(_groups(found, np.arange(n), np.arange(m), vague, own, same=same))
    while waiting:
        rows, columns = waiting.pop()
        place = np.ix_(np.arange(len(found)), rows, columns)
        found[place] = measure(rows, columns)
        for some, those in _groups(found[place], rows, columns, vague, own, same=same):
            if len(some) + len(those) < len(rows) + len(columns):
                waiting.append((some, those))
    found[0, known, own[known]] = 0.0
    return found


def without_rounding(sums: Sums, kind: torch.dtype = torch.float64) -> np.ndarray:
    """Return squared distances (n, m), 0 for a value that can be rounding error of the pair."""
    return np.where(sums[0] > ROUNDING[kind] * sums[1], sums[0], 0.0)


def squared_lengths(rows: Rows) -> np.ndarray:
    """Return `|a|^2` (n,) of rows (n, d) in double precision; 0 only for rows of zeros."""
    found = torch.zeros(len(rows), dtype=torch.float64)
    for squares in in_order(partial(_squares, rows), blocks(rows.shape[1], len(rows))):
        found += squares
    return found.numpy()


def _squares(rows: Rows, part: slice) -> torch.Tensor:
    some = wide(rows, slice(None), part)
    return row_dots(some, some)


def row_dots(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return `a_i . b_i` (n,) of rows (n, d); four times as fast as torch's on many short rows."""
    return torch.from_numpy(np.einsum("ij,ij->i", a.numpy(), b.numpy()))


def inner_products(models: Rows, others: Rows) -> np.ndarray:
    """Return `a . b` (n, m) of models (n, d) and others (m, d)."""
    of_block = partial(_products, models, others, precision(models, others))
    found = torch.zeros(len(models), len(others), dtype=torch.float64)
    for products in in_order(of_block, blocks(models.shape[1], max(found.shape))):
        found += products
    return found.numpy()


def _products(models: Rows, others: Rows, kind: torch.dtype, part: slice) -> torch.Tensor:
    some, those = wide(models, slice(None), part), wide(others, slice(None), part)
    products: torch.Tensor = some.to(kind) @ those.to(kind).T
    return products


def shape(models: Rows, others: Rows, rows: Some, columns: Some) -> tuple[int, int]:
    """Return the number of selected models and of selected others."""
    return len(np.arange(len(models))[rows]), len(np.arange(len(others))[columns])


def _groups(
    sums: Sums,
    rows: np.ndarray,
    columns: np.ndarray,
    least: float,
    own: np.ndarray,
    *,
    same: bool,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield groups of rows and columns that vague pairs connect, directly or indirectly."""
    vague = sums[0] < least * sums[1]
    vague &= own[rows][:, None] != columns
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
