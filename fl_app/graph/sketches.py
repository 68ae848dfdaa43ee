"""Rows of sketches: each vector is projected to a fixed, smaller dimension."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from fl_app.graph.rows_in_memory import InMemory, Some, Stored
from fl_app.rng import generator

LONGEST = 1e18
"""Largest norm of a sketch, so that its square and products are finite in float32."""


class Sketched:
    """Count sketch: each entry, with a random sign, is added to one of `dimension` buckets.

    The inner product of two sketches is an unbiased estimate. The estimate of a cosine c has a
    standard error of about (1 - c^2) / sqrt(dimension): 0.008 for 16,384 and c = 0. A seeded
    permutation of the entries fills the buckets evenly.
    Charikar et al., ICALP 2002; as random projection, Weinberger et al., ICML 2009, lemma 2.
    """

    precision: ClassVar[torch.dtype] = torch.float64
    whole: ClassVar[bool] = False

    def __init__(self, *, dimension: int, seed: int, capacity: int = 0) -> None:
        self.dimension = dimension
        self.seed = seed
        self._rows = InMemory(capacity=capacity)
        self._order = np.empty(0, np.intp)
        self._signs = np.empty(0, np.float32)

    def put(self, row: int, vector: np.ndarray) -> None:
        """Store the sketch of a vector."""
        self._rows.put(row, self.sketch(vector))

    def add(self, row: int, vector: np.ndarray) -> None:
        """Add the sketch of a vector: the sum of sketches is the sketch of the sum."""
        self._rows.add(row, self.sketch(vector))

    def sketch(self, vector: np.ndarray) -> np.ndarray:
        """Return the sketch (dimension,) of a vector (d,)."""
        if len(self._order) != len(vector):
            self._plan(len(vector))
        each = -(-len(vector) // self.dimension)
        dealt = np.zeros(each * self.dimension, np.float32)
        np.multiply(vector[self._order], self._signs, out=dealt[: len(vector)])
        # bucket b gets entries b, b + dimension, ..., which spreads the padding evenly
        sums: np.ndarray = dealt.reshape(each, self.dimension).sum(axis=0)
        # by chance a sketch can be longer than its vector, but float32 must represent it
        length = float(np.linalg.norm(sums.astype(np.float64)))
        return sums if length <= LONGEST else (sums * (LONGEST / length)).astype(np.float32)

    def read(self, rows: Some, part: slice) -> torch.Tensor:
        """Return sketches."""
        return self._rows.read(rows, part)

    def products(self, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return inner products and norms of the sketches."""
        return self._rows.products(rows, count)

    def stored(self, count: int) -> Stored:
        """Return the sketches (count, dimension), a view."""
        return self._rows.stored(count)

    def restore(self, stored: Mapping[str, np.ndarray]) -> None:
        """Restore the sketches (n, dimension)."""
        self._rows.restore(stored)

    def _plan(self, length: int) -> None:
        draw = generator(self.seed, purpose="sketch")
        self._order = draw.permutation(length)
        self._signs = draw.choice(np.array([-1, 1], np.float32), length)
