"""Descriptors of clients' data: made comparable, and their distances."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from fl_app.graph.pairwise import squared_distances
from fl_app.graph.vectors import ClientVectors
from fl_app.types import Labels, SomeVectors, Vectors

Blocks = Float[np.ndarray, "n blocks p"]
FENCE = 3.0
"""Values beyond the quartiles by more than this multiple of their distance set no scale."""
BEYOND = 1.0
"""How far a scaled value may lie outside of [0, 1]."""
ABSENT = 0.0
"""The scaled values of a block that a client has no samples for."""


def limits(blocks: Blocks, has: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and highest value (blocks,) of each block, of the clients with `has`.

    `has` (n, blocks). Only the `usual` values of a block count: a few clients cannot set the scale
    of all others. A block that no client has lies in [0, 0].
    """
    found = np.zeros((2, blocks.shape[1]))
    for block in range(blocks.shape[1]):
        values = blocks[has[:, block], block].astype(np.float64).ravel()
        if values.size:
            kept = usual(values)
            found[:, block] = kept.min(), kept.max()
    return found[0], found[1]


def usual(values: np.ndarray) -> np.ndarray:
    """Return those of the values (n,) in `[q1 - FENCE (q3 - q1), q3 + FENCE (q3 - q1)]`.

    q1 and q3 are their quartiles.
    """
    first, third = np.quantile(values, (0.25, 0.75))
    reach = FENCE * (third - first)
    kept: np.ndarray = values[(values >= first - reach) & (values <= third + reach)]
    return kept


def scaled(blocks: Blocks, has: np.ndarray, low: np.ndarray, high: np.ndarray) -> Vectors:
    """Return comparable descriptors (n, blocks * p).

    `(x - low) / (high - low)`, at most BEYOND outside of [0, 1]; 0 in a block where high is low,
    and ABSENT in a block that a client lacks: `has` (n, blocks).
    """
    width = np.where(high > low, high - low, np.inf)[:, None]
    shares = (blocks.astype(np.float64) - low[:, None]) / width
    bounded = np.clip(shares, -BEYOND, 1 + BEYOND)
    return np.where(has[:, :, None], bounded, ABSENT).astype(np.float32).reshape(len(blocks), -1)


def knee(distances: np.ndarray) -> float:
    """Return the value at the knee of a convex curve: `distances` (n,) in ascending order.

    The curve is scaled to the unit square; the knee is its point furthest below the diagonal.
    If all are equal, it is that value. Satopaa et al., ICDCS Workshops 2011, without its
    smoothing and without its threshold, which choose among several knees.
    """
    ordered = np.sort(distances)
    span = ordered[-1] - ordered[0]
    if span <= 0:
        return float(ordered[0])
    below = np.linspace(0, 1, len(ordered)) - (ordered - ordered[0]) / span
    return float(ordered[below.argmax()])


@dataclass(frozen=True)
class DescriptorDistance:
    """The Euclidean distance of scaled descriptors.

    Of a mean m and a standard deviation s of each direction, its square is
    `|m - m'|^2 + |s - s'|^2`: the squared 2-Wasserstein distance of two normal distributions with
    independent directions.
    """

    of_distance: ClassVar[bool] = True

    def rows(self, vectors: ClientVectors, rows: Labels) -> np.ndarray:
        """Return distances (m, n)."""
        every = vectors.read(np.arange(len(vectors)))
        square = squared_distances(every[rows], every, same=False, own=rows)
        distance: np.ndarray = np.sqrt(square)
        return distance


def centroids(descriptors: Vectors, labels: Labels) -> SomeVectors:
    """Return the mean descriptor of each community (m, d) from those of its clients (n, d)."""
    found: SomeVectors = np.stack(
        [
            descriptors[labels == row].mean(axis=0, dtype=np.float64)
            for row in range(int(labels.max()) + 1)
        ]
    ).astype(np.float32)
    return found


def nearest_rows(descriptors: Vectors, means: SomeVectors) -> Labels:
    """Return the row (n,) of the nearest of `means` (m, d) for each descriptor (n, d)."""
    rows: Labels = squared_distances(descriptors, means, same=False).argmin(axis=1)
    return rows
