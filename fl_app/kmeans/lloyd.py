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
    labels, squares = np.empty(len(points), int), np.empty(len(points))
    norms = (centroids * centroids).sum(axis=1)
    for start in range(0, len(points), BLOCK):
        part = slice(start, start + BLOCK)
        near = norms - 2.0 * (points[part] @ centroids.T)
        labels[part] = near.argmin(axis=1)
        own = (points[part] * points[part]).sum(axis=1)
        squares[part] = np.maximum(own + near.min(axis=1), 0.0)
    return labels, squares


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
    k = len(centroids)
    current = centroids.astype(np.float64)
    first = np.zeros(k, int)
    for step in range(steps):
        labels, _ = assign(points, current)
        counts = np.bincount(labels, minlength=k)
        if step == 0:
            first = counts
        moved = _means(points, labels, counts, current)
        farthest = float(np.linalg.norm(moved - current, axis=1).max())
        current = moved
        if farthest <= tolerance:
            break
    return current, first


def _means(points: Points, labels: Assigned, counts: Counts, current: Centroids) -> Centroids:
    member = sparse.csr_matrix(
        (np.ones(len(points)), (labels, np.arange(len(points)))), (len(counts), len(points))
    )
    sums = member @ points.astype(np.float64)
    full = counts > 0
    means = current.copy()
    means[full] = sums[full] / counts[full, None]
    return means
