"""Lloyd's iterations on one client's points."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

Points = Float[np.ndarray, "p d"]
Centroids = Float[np.ndarray, "k d"]
Counts = Int[np.ndarray, " k"]
Assigned = Int[np.ndarray, " p"]

BLOCK = 65_536
"""Points whose distances are computed at a time."""
COORDINATES = 262_144
"""Coordinates that are centred at a time, so that they fit into the processor's cache."""
SAMPLE = 64
"""Points whose mean is the centre for the computation of distances."""
FEW = 8
"""Up to this number of dimensions, sums are computed column by column."""


def assign(points: Points, centroids: Centroids) -> tuple[Assigned, Float[np.ndarray, " p"]]:
    """Return each point's nearest centroid (p,), the first of equals, and squared distance (p,).

    Computed in the precision of the points and around the mean of some of them, so that the error
    depends only on their spread.
    """
    labels, squares = np.empty(len(points), int), np.empty(len(points))
    centre = _centre(points).astype(points.dtype)
    around = (centroids - centre).astype(points.dtype)
    norms = np.einsum("kd,kd->k", around, around)
    step = max(1, COORDINATES // points.shape[1])
    for start in range(0, len(points), step):
        part = slice(start, start + step)
        some = points[part] - centre
        away = norms - 2.0 * (some @ around.T)
        labels[part] = found = away.argmin(axis=1)
        squares[part] = np.einsum("pd,pd->p", some, some) + away[range(len(found)), found]
    return labels, np.maximum(squares, 0.0)


def nearest_centroids(points: Points, centroids: Centroids) -> Assigned:
    """Return each point's nearest centroid (p,), the first of equals.

    With c' = c - o around the mean o of some of the points, `|p - c|^2` is
    `|c'|^2 + 2 o.c' - 2 p.c'` plus terms that do not depend on c, so the points need no copy.
    Computed in the precision of the points: two centroids can be confused if their squared
    distances to a point differ by less than about `eps |p| |c'|`, with eps 1e-7 in float32 and
    2e-16 in float64. In the plane and in float32, centroids with distance 1 are distinguished at
    offsets up to 1e6, where the spacing of float32 is 0.06.
    """
    labels = np.empty(len(points), int)
    centre = _centre(points)
    around = centroids - centre
    halves = np.einsum("kd,kd->k", around, around) / 2 + around @ centre
    compared, levels = around.T.astype(points.dtype), halves.astype(points.dtype)
    for start in range(0, len(points), BLOCK):
        part = slice(start, start + BLOCK)
        labels[part] = (levels - points[part] @ compared).argmin(axis=1)
    return labels


def _centre(points: Points) -> Float[np.ndarray, " d"]:
    """Return the mean (d,) of at most SAMPLE of the points (p, d); zeros if there are none."""
    some = points[:: max(1, -(-len(points) // SAMPLE))]
    total: Float[np.ndarray, " d"] = some.sum(axis=0, dtype=np.float64) / max(1, len(some))
    return total


@dataclass
class LastAssignment:
    """The last round of a client: the assignment of its points, and the centroids it found.

    `labels` (p,) are the nearest incoming centroids, `means` (k, d) those of their points, and
    `found` (k, d) the centroids after all steps. None if a centroid had no points, since then the
    result also depends on its position. `found` is also None if the tolerance ended the first
    step: from other centroids with the same labels there could be more steps.
    """

    labels: Assigned | None = None
    means: Centroids | None = None
    found: Centroids | None = None

    def result(
        self, labels: Assigned, centroids: Centroids, *, tolerance: float
    ) -> Centroids | None:
        """Return what the iterations from centroids (k, d) would find (k, d); None: not known.

        `labels` (p,) are the nearest of them. Only whether the first step is within the tolerance
        depends on more than these.
        """
        if self.labels is None or self.means is None or not np.array_equal(labels, self.labels):
            return None
        return self.means if farthest_move(centroids, self.means) <= tolerance else self.found


def local_update(
    points: Points,
    centroids: Centroids,
    *,
    steps: int,
    tolerance: float,
    labels: Assigned | None = None,
    memory: LastAssignment | None = None,
) -> tuple[Centroids, Counts]:
    """Return centroids (k, d) after up to `steps` iterations, and their counts as weights.

    The counts (k,) are the numbers of points (p, d) nearest to each *incoming* centroid, the
    weights of DWF. A centroid without points does not move. Stops early if no centroid moves
    farther than `tolerance`. `labels` (p,) are the nearest incoming centroids, if already known.
    With the `memory` of one client and the same settings, an assignment equal to that of its last
    round returns the same result without a computation, if the memory has it. Raises ValueError for
    fewer than one step. Holzer et al., 2023, algorithm 1.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}; use 5 as in the paper")
    memory = memory or LastAssignment()
    k = len(centroids)
    first = labels = nearest_centroids(points, centroids) if labels is None else labels
    weights = counts = np.bincount(labels, minlength=k)
    known = memory.result(labels, centroids, tolerance=tolerance)
    if known is not None:
        return known, weights
    sums, full = totals(points, labels, k), True
    current = means = centroids.astype(np.float64)
    for step in range(steps):
        if step > 0:
            before, labels = labels, nearest_centroids(points, current)
            changed = np.flatnonzero(labels != before)
            if not len(changed):
                break
            counts = np.bincount(labels, minlength=k)
            some = points[changed]
            sums += totals(some, labels[changed], k) - totals(some, before[changed], k)
        full, last = full and bool(counts.all()), current
        current = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], last)
        means = current if step == 0 else means
        if farthest_move(last, current) <= tolerance:
            break
    found = None if step == 0 and steps > 1 else current
    memory.labels, memory.means, memory.found = (first, means, found) if full else (None,) * 3
    return current, weights


def farthest_move(start: Centroids, end: Centroids) -> float:
    """Return the largest distance between a centroid (k, d) at the start and at the end."""
    away = end - start
    return float(np.sqrt(np.einsum("kd,kd->k", away, away).max()))


def totals(points: Points, labels: Assigned, k: int) -> Centroids:
    """Return the sum of the points (p, d) of each label (k, d), in float64."""
    if points.shape[1] <= FEW:
        columns = [np.bincount(labels, weights=column, minlength=k) for column in points.T]
        return np.stack(columns, axis=1)
    # rows already sorted, since scipy's sorting would take longer than the sums
    ends = np.concatenate([[0], np.bincount(labels, minlength=k).cumsum()])
    order, ones = labels.argsort(kind="stable"), np.ones(len(points))
    member = sparse.csr_array((ones, order, ends), (k, len(points)))
    found: Centroids = member @ points
    return found
