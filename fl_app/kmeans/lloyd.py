"""Lloyd's iterations on one client's points."""

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

Points = Float[np.ndarray, "p d"]
Centroids = Float[np.ndarray, "k d"]
Counts = Int[np.ndarray, " k"]
Assigned = Int[np.ndarray, " p"]

BLOCK = 65_536
"""Points whose distances are held at a time."""


def assign(points: Points, centroids: Centroids) -> tuple[Assigned, Float[np.ndarray, " p"]]:
    """Return each point's nearest centroid (p,), the first of equals, and squared distance (p,)."""
    squares = np.empty(len(points))
    labels = nearest(points, centroids, near=squares)
    for start in range(0, len(points), BLOCK):
        part = points[start : start + BLOCK]
        squares[start : start + BLOCK] += np.einsum("pd,pd->p", part, part)
    return labels, np.maximum(squares, 0.0)


def nearest(
    points: Points, centroids: Centroids, *, near: Float[np.ndarray, " p"] | None = None
) -> Assigned:
    """Return each point's nearest centroid (p,), the first of equals.

    Found in the precision of the points. `near` (p,), where given, receives the squared
    distance less the squared norm of the point.
    """
    labels = np.empty(len(points), int)
    compared = centroids.astype(points.dtype, copy=False)
    norms = np.einsum("kd,kd->k", compared, compared)
    for start in range(0, len(points), BLOCK):
        part = slice(start, start + BLOCK)
        away = norms - 2.0 * (points[part] @ compared.T)
        labels[part] = away.argmin(axis=1)
        if near is not None:
            near[part] = away.min(axis=1)
    return labels


def local_update(
    points: Points, centroids: Centroids, *, steps: int, tolerance: float
) -> tuple[Centroids, Counts]:
    """Return centroids (k, d) after up to `steps` iterations, and the counts that weigh them.

    Counts (k,) are of the points (p, d) nearest to each *incoming* centroid: DWF's weights. A
    centroid without points stays where it is. Stops early when no centroid moves farther
    than `tolerance`. A client with fewer points than centroids, or none, moves only those
    that are nearest to a point. Raises ValueError for fewer than one step.
    Holzer et al., 2023, algorithm 1.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}; the paper's are 5")
    current = centroids.astype(np.float64)
    first = np.zeros(len(centroids), int)
    for step in range(steps):
        labels = nearest(points, current)
        counts = np.bincount(labels, minlength=len(centroids))
        if step == 0:
            first = counts
        moved = means(points, labels, counts, current)
        farthest = float(np.linalg.norm(moved - current, axis=1).max())
        current = moved
        if farthest <= tolerance:
            break
    return current, first


def means(points: Points, labels: Assigned, counts: Counts, current: Centroids) -> Centroids:
    """Return the mean of each centroid's points (k, d), in float64; `current` where none are."""
    member = sparse.csr_matrix(
        (np.ones(len(points)), (labels, np.arange(len(points)))), (len(counts), len(points))
    )
    sums = member @ points
    full = counts > 0
    found = current.copy()
    found[full] = sums[full] / counts[full, None]
    return found
