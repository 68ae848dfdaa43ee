"""DCFL's distance of update vectors: starts and ends (n, d) in, (n, n) out."""

import numpy as np

from fl_app.graph.pairwise import Rows, Sums, blocks, refined, wide, without_rounding
from fl_app.types import Between, Matrix, SomeVectors, Vectors


def dcfl_distance(starts: Vectors, ends: Vectors) -> Matrix:
    """Return `|BD| exp(2w)` (n, n) of update vectors A -> B and C -> D; 0 where |BD| = 0.

    `w = ((B - A) - (D - C)) . (B - D) / (|BD| (|AB| + |CD|))` in [-1, 1]: near where the ends
    are, and nearer where the updates bring them together. `starts` and `ends` (n, d);
    symmetric, diagonal 0. From inner products in double precision, never an (n, n, d) array;
    each pair is right however far other rows lie, as in `pairwise.refined`.
    Augello et al., PerCom Workshops 2023, section III.
    """
    apart, divergence = _parts(starts, ends, starts, ends, same=True)
    distance: Matrix = apart * divergence
    return distance


def dcfl_divergence(starts: Vectors, ends: Vectors) -> Matrix:
    """Return the factor `exp(2w)` (n, n) of `dcfl_distance` alone, diagonal 0.

    Below 1 where updates bring two clients together, above 1 where they part them.
    """
    _, divergence = _parts(starts, ends, starts, ends, same=True)
    np.fill_diagonal(divergence, 0.0)
    return divergence


def dcfl_between(
    starts: Vectors, ends: Vectors, others: SomeVectors, other_ends: SomeVectors
) -> Between:
    """Return the distance of `dcfl_distance` (n, m) from updates (n, d) to others (m, d)."""
    apart, divergence = _parts(starts, ends, others, other_ends, same=False)
    distance: Between = apart * divergence
    return distance


def _parts(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray, *, same: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return `|BD|` and `exp(2w)`, both (n, m)."""

    def measure(rows: Rows, columns: Rows) -> Sums:
        """Sum |BD|^2, the squares of B and D, w's numerator, |AB|^2 and |CD|^2."""
        sums: Sums = np.zeros((5, len(a[rows, :0]), len(c[columns, :0])))
        for part in blocks(a.shape[1]):
            b_end, d_end = wide(b, rows, part), wide(d, columns, part)
            ab, cd = b_end - wide(a, rows, part), d_end - wide(c, columns, part)
            centre = b_end.mean(axis=0)
            b_end, d_end = b_end - centre, d_end - centre
            both = (b_end**2).sum(1)[:, None] + (d_end**2).sum(1)
            sums[0] += both - 2.0 * (b_end @ d_end.T)
            sums[1] += both
            own, theirs = (ab * b_end).sum(1)[:, None], (cd * d_end).sum(1)
            sums[2] += own + theirs - ab @ d_end.T - b_end @ cd.T
            sums[3] += (ab * ab).sum(1)[:, None]
            sums[4] += (cd * cd).sum(1)
        return sums

    sums = refined(measure, len(a), len(c), same=same)
    apart = np.sqrt(without_rounding(sums))
    scale = apart * (np.sqrt(sums[3]) + np.sqrt(sums[4]))
    w = np.divide(sums[2], scale, out=np.zeros(scale.shape), where=scale > 0)
    return apart, np.exp(2.0 * np.clip(w, -1.0, 1.0))
