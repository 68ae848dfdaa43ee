"""Rows of vectors in half precision in a file that is mapped into memory."""

import mmap
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import numpy as np
import torch

from fl_app.graph.parallel import in_order
from fl_app.graph.rows_in_memory import Some, Stored, as_slice, blocks

MAPPED_BYTES = 2**30
"""Bytes of the file that are mapped before their pages are released."""


class OnDisk:
    """Memory-mapped half precision: n * d * 2 bytes on disk, one block of columns in memory.

    Each vector is divided by its largest absolute entry, which is stored as its scale, so that
    small entries keep their digits. The relative error is 2^-11 for each entry and about 1e-6 for
    a cosine in 1e6 dimensions. Distances are computed in float32, which is more precise than the
    stored rows.
    """

    precision: ClassVar[torch.dtype] = torch.float32
    whole: ClassVar[bool] = True

    def __init__(self, *, capacity: int, folder: Path | None = None) -> None:
        self._capacity = capacity
        self._folder = TemporaryDirectory(prefix="fl-app-updates-", dir=folder)
        self._kept = np.empty((0, 0), np.float16)
        self._map: mmap.mmap | None = None
        self._scales = np.ones(capacity, np.float32)
        self._lengths = np.empty(capacity)
        self._mapped = 0

    def put(self, row: int, vector: np.ndarray) -> None:
        """Store a vector; raises ValueError beyond the capacity."""
        if row >= self._capacity:
            raise ValueError(
                f"the store on disk must have at most {self._capacity} clients, got one more; "
                "set population.clients to the largest number of clients"
            )
        if not len(self._kept):
            self._open(vector.shape[0])
        given = torch.from_numpy(np.ascontiguousarray(vector))
        scale = np.float32(given.abs().max()) or np.float32(1.0)
        self._write(row, given.div(float(scale)).to(torch.float16).numpy(), scale)

    def add(self, row: int, vector: np.ndarray) -> None:
        """Add a vector to a row, whose sum is rounded to half precision each time."""
        self.put(row, self.read(np.array([row]), slice(0, len(vector)))[0].numpy() + vector)

    def read(self, rows: Some, part: slice) -> torch.Tensor:
        """Return rows in float32, multiplied by their scales."""
        some = as_slice(rows)
        scales = torch.from_numpy(self._scales[some])
        found = torch.from_numpy(self._kept[some, part]).to(torch.float32)
        self._release(found.numel() * 2)
        return found.mul_(scales[:, None])

    def products(self, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the sum of the products of blocks of columns, converted to float32."""
        of_block = partial(self._products, rows, count)
        found = torch.zeros(len(rows), count)
        for products in in_order(of_block, blocks(self._kept.shape[1], count)):
            found += products
        scales = self._scales[:count]
        return found.numpy() * scales[rows, None] * scales, self._lengths[:count]

    def _products(self, rows: np.ndarray, count: int, part: slice) -> torch.Tensor:
        tile = torch.from_numpy(self._kept[:count, part]).to(torch.float32)
        self._release(tile.numel() * 2)
        return tile[rows] @ tile.T

    def stored(self, count: int) -> Stored:
        """Return the scaled vectors (count, d), a view of the file, and their scales (count,)."""
        return {"vectors": self._kept[:count], "scales": self._scales[:count]}

    def restore(self, stored: Mapping[str, np.ndarray]) -> None:
        """Restore the scaled vectors (n, d) and their scales (n,)."""
        if len(stored["vectors"]) and not len(self._kept):
            self._open(stored["vectors"].shape[1])
        for row, (vector, scale) in enumerate(
            zip(stored["vectors"], stored["scales"], strict=True)
        ):
            self._write(row, vector, scale)

    def _write(self, row: int, scaled: np.ndarray, scale: np.float32) -> None:
        self._kept[row], self._scales[row] = scaled, scale
        self._lengths[row] = float(scale) * float(torch.from_numpy(scaled).float().norm())
        self._release(scaled.nbytes)

    def _open(self, length: int) -> None:
        path = Path(self._folder.name) / "updates.f16"
        shape = (self._capacity, length)
        mapped = np.memmap(path, np.float16, "w+", shape=shape)
        # a plain view, since indexing a memmap is slower than converting a small block
        self._kept, self._map = np.asarray(mapped), mapped._mmap  # type: ignore[attr-defined]

    def _release(self, used: int) -> None:
        """Release mapped pages after MAPPED_BYTES; the system can still cache them."""
        self._mapped += used
        if self._map is not None and self._mapped > MAPPED_BYTES:
            self._mapped = 0
            self._map.madvise(mmap.MADV_DONTNEED)
