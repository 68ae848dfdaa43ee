"""Rows of vectors in memory, exact; their blocks of columns, which all backends multiply.

Products use torch, because the threads of numpy's OpenBLAS wait actively for each other: on busy
cores such long products took up to four hundred times longer.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from fl_app.graph.parallel import in_order

BLOCK_COLUMNS = 4096
"""Columns multiplied at a time, so that they stay in the processor's cache."""
TILE_BYTES = 4 * 2**20
"""Bytes of a block of columns that is converted at a time: about the size of the processor's
cache. Blocks above 32 MB would be newly allocated each time, which takes ten times as long as the
conversion."""
LEAST_COLUMNS, MOST_COLUMNS = 256, 65_536
Some = np.ndarray | slice
Stored = dict[str, np.ndarray]


class InMemory:
    """Exact: float32 in memory, n * d * 4 bytes."""

    precision: ClassVar[torch.dtype] = torch.float64
    whole: ClassVar[bool] = True

    def __init__(self, *, capacity: int = 0) -> None:
        # np.empty uses no memory until it is written, so the full capacity is free
        self._capacity = capacity
        self._kept = np.empty((0, 0), np.float32)
        self._lengths = np.empty(0)

    def put(self, row: int, vector: np.ndarray) -> None:
        """Store a vector; beyond the capacity, the space doubles."""
        if row >= len(self._kept):
            self._grow(row, vector.shape[0])
        self._kept[row] = vector
        self._lengths[row] = np.linalg.norm(vector)

    def add(self, row: int, vector: np.ndarray) -> None:
        """Add a vector to a row."""
        self.put(row, self._kept[row] + vector)

    def read(self, rows: Some, part: slice) -> torch.Tensor:
        """Return rows; slices of rows are views."""
        return torch.from_numpy(self._kept[as_slice(rows), part])

    def products(self, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the sum of the products of blocks of columns, without a copy of the rows.

        A multiplication of few rows at full length took 1.4 times as long, and the copy took the
        same time again.
        """
        kept, chosen = torch.from_numpy(self._kept[:count]), torch.from_numpy(rows)
        found = torch.zeros(len(rows), count)
        parts = torch.split(kept, BLOCK_COLUMNS, dim=1)
        for products in in_order(lambda part: part[chosen] @ part.T, parts):
            found += products
        return found.numpy(), self._lengths[:count]

    def stored(self, count: int) -> Stored:
        """Return the vectors (count, d), a view."""
        return {"vectors": self._kept[:count]}

    def restore(self, stored: Mapping[str, np.ndarray]) -> None:
        """Restore the vectors (n, d)."""
        for row, vector in enumerate(stored["vectors"]):
            self.put(row, vector)

    def _grow(self, row: int, length: int) -> None:
        room = max(8, self._capacity, 2 * row)
        kept, lengths = np.empty((room, length), np.float32), np.empty(room)
        if row:
            kept[:row], lengths[:row] = self._kept[:row], self._lengths[:row]
        self._kept, self._lengths = kept, lengths


def as_slice(rows: Some) -> Some:
    """Return consecutive rows as a slice, which avoids a copy; other rows unchanged."""
    if isinstance(rows, slice) or not len(rows) or (np.diff(rows) != 1).any():
        return rows
    return slice(int(rows[0]), int(rows[-1]) + 1)


def blocks(length: int, rows: int) -> list[slice]:
    """Return slices of `length` columns; with `rows` rows, each block has about TILE_BYTES."""
    fitting = TILE_BYTES // (8 * max(1, rows))
    step = min(MOST_COLUMNS, max(LEAST_COLUMNS, fitting))
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]
