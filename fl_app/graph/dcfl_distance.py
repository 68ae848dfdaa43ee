"""DCFL's distance of update vectors: starts and ends (n, d) in, (n, n) out."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from fl_app.graph.pairwise import VAGUE, Sums, refined, row_dots, shape, without_rounding
from fl_app.graph.parallel import in_order
from fl_app.graph.rows_in_memory import Some, blocks
from fl_app.graph.table import Rows, Table, precision, wide
from fl_app.types import Between, Matrix, SomeVectors, Vectors


def dcfl_distance(starts: Vectors, ends: Vectors) -> Matrix:
    """Return `|BD| exp(2w)` (n, n) of update vectors A -> B and C -> D; 0 where |BD| = 0.

    `w = ((B - A) - (D - C)) . (B - D) / (|BD| (|AB| + |CD|))` in [-1, 1]. The distance is small
    if the ends are close, and smaller if the updates converge. `starts` and `ends` (n, d);
    symmetric, diagonal 0. Computed from inner products in double precision, without an (n, n, d)
    array. Each pair is accurate even if other rows are far away, as in `pairwise.refined`.
    Augello et al., PerCom Workshops 2023, section III.
    """
    apart, divergence = _parts(starts, ends, starts, ends, own=np.arange(len(ends)))
    distance: Matrix = apart * divergence
    return distance


def dcfl_divergence(starts: Vectors, ends: Vectors) -> Matrix:
    """Return only the factor `exp(2w)` (n, n) of `dcfl_distance`, diagonal 0.

    It is below 1 if the updates of two clients converge, and above 1 if they diverge.
    """
    _, divergence = _parts(starts, ends, starts, ends, own=np.arange(len(ends)))
    np.fill_diagonal(divergence, 0.0)
    return divergence


def dcfl_between(
    starts: Vectors | Table,
    ends: Vectors | Table,
    others: SomeVectors | Table,
    other_ends: SomeVectors | Table,
    *,
    own: np.ndarray | None = None,
) -> Between:
    """Return the distance of `dcfl_distance` (n, m) from updates (n, d) to others (m, d).

    `own` (n,) is the index of each update among the others.
    """
    apart, divergence = _parts(starts, ends, others, other_ends, own=own)
    distance: Between = apart * divergence
    return distance


def divergence_between(
    starts: Vectors | Table,
    ends: Vectors | Table,
    others: SomeVectors | Table,
    other_ends: SomeVectors | Table,
    *,
    own: np.ndarray | None = None,
) -> Between:
    """Return the factor of `dcfl_divergence` (n, m) from updates (n, d) to others (m, d)."""
    divergence: Between = _parts(starts, ends, others, other_ends, own=own)[1]
    return divergence


def _parts(
    a: Rows, b: Rows, c: Rows, d: Rows, *, own: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return `|BD|` and `exp(2w)`, both (n, m)."""
    kind = precision(a, b, c, d)
    measure = partial(_measured, (a, b, c, d), kind)
    sums = refined(measure, len(a), len(c), same=b is d, own=own, vague=VAGUE[kind])
    apart = np.sqrt(without_rounding(sums, kind))
    scale = apart * (np.sqrt(sums[3]) + np.sqrt(sums[4]))
    w = np.divide(sums[2], scale, out=np.zeros(scale.shape), where=scale > 0)
    return apart, np.exp(2.0 * np.clip(w, -1.0, 1.0))


def _measured(points: Sequence[Rows], kind: torch.dtype, some: Some, those: Some) -> Sums:
    """Sum |BD|^2, the squares of B and D, w's numerator, |AB|^2 and |CD|^2."""
    a, _, c, _ = points
    sums = torch.zeros(5, *shape(a, c, some, those), dtype=torch.float64)
    of_block = partial(_measured_block, points, kind, some, those)
    for found in in_order(of_block, blocks(a.shape[1], max(sums.shape))):
        sums += found
    return sums.numpy()


def _measured_block(
    points: Sequence[Rows], kind: torch.dtype, some: Some, those: Some, part: slice
) -> torch.Tensor:
    a, b, c, d = points
    b_end, d_end = wide(b, some, part).to(kind), wide(d, those, part).to(kind)
    ab, cd = wide(a, some, part).to(kind), wide(c, those, part).to(kind)
    torch.sub(b_end, ab, out=ab)
    torch.sub(d_end, cd, out=cd)
    centre = b_end.mean(dim=0)
    b_end -= centre
    d_end -= centre
    # one product of many rows of ends, which costs little more than of half as many
    product, moved = torch.chunk(torch.cat([b_end, ab]) @ d_end.T, 2)
    both = row_dots(b_end, b_end)[:, None] + row_dots(d_end, d_end)
    inward = row_dots(ab, b_end)[:, None] + row_dots(cd, d_end) - moved - b_end @ cd.T
    own, theirs = (row_dots(each, each) for each in (ab, cd))
    lengths = own[:, None].expand_as(both), theirs.expand_as(both)
    return torch.stack([both - 2.0 * product, both, inward, *lengths])
