"""Rows of vectors in 16 bits an entry in a file that is mapped into memory."""

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
BLOCK = 64
"""Consecutive entries of a vector that have one exponent."""
TOP, NORMAL = 15, 2.0**-14
"""The largest entry of a block is stored as 2^14 to 2^TOP; below NORMAL, halves lose digits."""
LEAST_EXPONENT, WIDE = -126, -128
"""The least exponent, whose power of two float32 has, and the mark of a block of bfloat16."""
LARGEST = float(torch.finfo(torch.bfloat16).max)


class OnDisk:
    """Memory-mapped: n * d * 2 bytes on disk; n * d / 64 bytes and a block of columns in memory.

    Each BLOCK of entries is stored in half precision, divided by a power of two that brings the
    largest of them to the upper end of that format. If its entries differ by more than 2^29, which
    half precision does not span, it is stored as bfloat16: a mask of -1e9 or a variance of 1e12
    leaves the weights beside it their digits. The relative error of each entry is at most 2^-11, or
    2^-8 in such a block, and that of a cosine about 1e-6 in 1e6 dimensions. Distances are computed
    in float32, which is more precise than the stored rows.
    """

    precision: ClassVar[torch.dtype] = torch.float32
    whole: ClassVar[bool] = True

    def __init__(self, *, capacity: int, folder: Path | None = None) -> None:
        self._capacity = capacity
        self._folder = TemporaryDirectory(prefix="fl-app-updates-", dir=folder)
        self._length = 0
        self._kept = np.empty((0, 0), np.int16)
        self._map: mmap.mmap | None = None
        self._exponents = np.empty((0, 0), np.int8)
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
        self._write(row, *_encoded(vector))

    def add(self, row: int, vector: np.ndarray) -> None:
        """Add a vector to a row, whose sum is rounded to 16 bits each time."""
        self.put(row, self.read(np.array([row]), slice(0, len(vector)))[0].numpy() + vector)

    def read(self, rows: Some, part: slice) -> torch.Tensor:
        """Return rows in float32."""
        some = as_slice(rows)
        start, stop, _ = part.indices(self._length)
        first, end = start // BLOCK, -(-stop // BLOCK)
        bits = torch.from_numpy(self._kept[some, first * BLOCK : end * BLOCK])
        found = _decoded(bits, self._exponents[some, first:end])
        self._release(found.numel() * 2)
        return found[:, start - first * BLOCK : stop - first * BLOCK]

    def products(self, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the sum of the products of blocks of columns, converted to float32."""
        of_block = partial(self._products, rows, count)
        found = torch.zeros(len(rows), count)
        for products in in_order(of_block, blocks(self._length, count)):
            found += products
        return found.numpy(), self._lengths[:count]

    def _products(self, rows: np.ndarray, count: int, part: slice) -> torch.Tensor:
        tile = self.read(slice(0, count), part)
        return tile[rows] @ tile.T

    def stored(self, count: int) -> Stored:
        """Return the bits of the vectors (count, d), a view of the file, and the exponents
        (count, blocks)."""
        return {
            "vectors": self._kept[:count, : self._length],
            "exponents": self._exponents[:count],
        }

    def restore(self, stored: Mapping[str, np.ndarray]) -> None:
        """Restore the vectors (n, d) and their exponents (n, blocks)."""
        vectors = stored["vectors"]
        if len(vectors) and not len(self._kept):
            self._open(vectors.shape[1])
        if "scales" in stored:  # an earlier checkpoint: halves, one scale for each vector
            for row, (vector, scale) in enumerate(zip(vectors, stored["scales"], strict=True)):
                self.put(row, vector.astype(np.float32) * scale)
            return
        for row, (bits, exponents) in enumerate(zip(vectors, stored["exponents"], strict=True)):
            self._write(row, bits, exponents)

    def _write(self, row: int, bits: np.ndarray, exponents: np.ndarray) -> None:
        self._kept[row, : len(bits)], self._exponents[row] = bits, exponents
        one = _decoded(torch.from_numpy(self._kept[row : row + 1]), exponents[None, :])
        self._lengths[row] = float(torch.linalg.vector_norm(one, dtype=torch.float64))
        self._release(2 * bits.nbytes)

    def _open(self, length: int) -> None:
        path = Path(self._folder.name) / "updates.16"
        count = -(-length // BLOCK)
        mapped = np.memmap(path, np.int16, "w+", shape=(self._capacity, count * BLOCK))
        # a plain view, since indexing a memmap is slower than converting a small block
        self._kept, self._map = np.asarray(mapped), mapped._mmap  # type: ignore[attr-defined]
        self._exponents = np.zeros((self._capacity, count), np.int8)
        self._length = length

    def _release(self, used: int) -> None:
        """Release mapped pages after MAPPED_BYTES; the system can still cache them."""
        self._mapped += used
        if self._map is not None and self._mapped > MAPPED_BYTES:
            self._mapped = 0
            self._map.madvise(mmap.MADV_DONTNEED)


def _encoded(vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bits (d,) of a vector (d,), padded to whole blocks, and their exponents."""
    padded = torch.zeros(-(-len(vector) // BLOCK) * BLOCK)
    padded[: len(vector)] = torch.from_numpy(np.ascontiguousarray(vector))
    entries = padded.view(-1, BLOCK)
    largest = entries.abs().amax(dim=1, keepdim=True)
    exponents = (torch.frexp(largest).exponent - TOP).clamp_(min=LEAST_EXPONENT)
    scaled = entries * _powers(-exponents.numpy())
    bits = scaled.to(torch.float16).view(torch.int16)
    wide = ((scaled != 0) & (scaled.abs() < NORMAL)).any(dim=1)
    if wide.any():
        inside = entries[wide].clamp_(-LARGEST, LARGEST)  # rounding could make them infinite
        bits[wide], exponents[wide] = inside.to(torch.bfloat16).view(torch.int16), WIDE
    return bits.view(-1).numpy(), exponents.view(-1).to(torch.int8).numpy()


def _decoded(bits: torch.Tensor, exponents: np.ndarray) -> torch.Tensor:
    """Return vectors (m, c) in float32 of bits (m, c) and exponents (m, blocks)."""
    shape = (*exponents.shape, BLOCK)
    found = bits.view(torch.float16).to(torch.float32)
    by_block = found.view(shape)
    by_block *= _powers(exponents)[..., None]
    wide = torch.from_numpy(exponents == WIDE)
    if wide.any():
        by_block[wide] = bits.view(torch.bfloat16).reshape(shape)[wide].to(torch.float32)
    return found


def _powers(exponents: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ldexp(np.float32(1), exponents))
