"""Storage of the clients' vectors: in memory, on disk in half precision, or as sketches.

All backends return rows, and inner products of some rows with all rows for cosine similarity;
none allocates an array of size (n, n, d). Products use torch, because the threads of numpy's
OpenBLAS wait actively for each other: on busy cores such long products took up to four hundred
times longer.
"""

import mmap
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
import torch

from fl_app.graph.parallel import in_order
from fl_app.rng import generator
from fl_app.types import Store, Vector

BLOCK_COLUMNS = 4096
"""Columns multiplied at a time, so that they stay in the processor's cache."""
TILE_BYTES = 4 * 2**20
"""Bytes of a block of columns that is converted at a time: about the size of the processor's
cache. Blocks above 32 MB would be newly allocated each time, which takes ten times as long as the
conversion."""
LEAST_COLUMNS, MOST_COLUMNS = 256, 65_536
MAPPED_BYTES = 2**30
"""Bytes of the file that are mapped before their pages are released."""
LONGEST = 1e18
"""Largest norm of a sketch, so that its square and products are finite in float32."""
Some = np.ndarray | slice
Stored = dict[str, np.ndarray]


@runtime_checkable
class VectorBackend(Protocol):
    """Rows of vectors, written one at a time.

    `precision` is the type in which distances of the rows are computed: double precision for
    exact rows. `whole`: whether the rows are the vectors and not sketches.
    """

    precision: ClassVar[torch.dtype]
    whole: ClassVar[bool]

    def put(self, row: int, vector: Vector) -> None:
        """Store `vector` (d,) as `row`, which is at most the number of rows."""

    def add(self, row: int, vector: Vector) -> None:
        """Add `vector` (d,) to a stored `row`."""

    def read(self, rows: Some, part: slice) -> torch.Tensor:
        """Return some columns of some rows, float32 and unscaled.

        The result may be a view, except if `precision` is float32.
        """

    def products(self, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return inner products (m, count) of `rows` (m,) with the first `count`, and the
        norms (count,) of the stored rows."""

    def stored(self, count: int) -> Stored:
        """Return the stored arrays of the first `count` rows, for a checkpoint."""

    def restore(self, stored: Mapping[str, np.ndarray]) -> None:
        """Restore what `stored` returned."""


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
        return torch.from_numpy(self._kept[_as_slice(rows), part])

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
        some = _as_slice(rows)
        scales = torch.from_numpy(self._scales[some])
        found = torch.from_numpy(self._kept[some, part]).to(torch.float32)
        self._release(found.numel() * 2)
        return found.mul_(scales[:, None])

    def products(self, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the sum of the products of blocks of columns, converted to float32."""

        def of_block(part: slice) -> torch.Tensor:
            tile = torch.from_numpy(self._kept[:count, part]).to(torch.float32)
            self._release(tile.numel() * 2)
            return tile[rows] @ tile.T

        found = torch.zeros(len(rows), count)
        for products in in_order(of_block, blocks(self._kept.shape[1], count)):
            found += products
        scales = self._scales[:count]
        return found.numpy() * scales[rows, None] * scales, self._lengths[:count]

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


def _as_slice(rows: Some) -> Some:
    """Return consecutive rows as a slice, which avoids a copy; other rows unchanged."""
    if isinstance(rows, slice) or not len(rows) or (np.diff(rows) != 1).any():
        return rows
    return slice(int(rows[0]), int(rows[-1]) + 1)


def blocks(length: int, rows: int) -> list[slice]:
    """Return slices of `length` columns; with `rows` rows, each block has about TILE_BYTES."""
    fitting = TILE_BYTES // (8 * max(1, rows))
    step = min(MOST_COLUMNS, max(LEAST_COLUMNS, fitting))
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]


def choose(
    store: Store,
    *,
    clients: int,
    length: int,
    memory_gb: float,
    dimension: int,
    seed: int,
    whole: bool = False,
) -> VectorBackend:
    """Return the backend named by `store`; `auto` is exact up to `memory_gb`, else sketches.

    `auto` is also exact if a sketch would not be smaller than a vector. With `whole`, for a method
    that needs the vectors themselves, `auto` beyond `memory_gb` means disk: every round reads
    every row, which takes fifty times as long as with sketches. Raises ValueError for sketches
    with `whole`.
    """
    if store == "sketch" and whole:
        raise ValueError("store must keep whole vectors, got sketch; use auto, exact or disk")
    if store == "auto":
        fits = clients * length * 4 / 2**30 <= memory_gb
        smaller = "disk" if whole else "exact" if length <= dimension else "sketch"
        store = "exact" if fits else smaller  # type: ignore[assignment]
    if store == "exact":
        return InMemory(capacity=clients)
    if store == "disk":
        return OnDisk(capacity=clients)
    return Sketched(dimension=dimension, seed=seed, capacity=clients)
