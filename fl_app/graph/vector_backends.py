"""Where the latest updates lie: in memory, on disk in half precision, or as sketches.

All give inner products of some rows with all rows, which is what cosine similarity needs;
none ever holds anything of size (n, n, d). Products are torch's: the threads of numpy's
OpenBLAS spin for each other, and beside other work on the same cores such long products then
took up to four hundred times longer.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch

from fl_app.rng import generator
from fl_app.types import Vector

BLOCK_BYTES = 256 * 2**20
"""Rows read from disk at a time: large enough for matrix multiplication to run at speed."""
BLOCK_COLUMNS = 4096
"""Columns multiplied at a time: short enough to stay in the processor's cache."""
LONGEST = 1e18
"""Norm of a sketch at most: its square, and products of two, stay finite in float32."""
Mode = Literal["auto", "exact", "disk", "sketch"]


@runtime_checkable
class VectorBackend(Protocol):
    """Rows of updates, written one at a time."""

    def put(self, row: int, update: Vector) -> None:
        """Keep `update` (d,) as `row`, which is at most the number of rows."""

    def products(self, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return inner products (m, count) of `rows` (m,) with the first `count`, and the
        lengths (count,)."""

    def updates(self, count: int) -> np.ndarray:
        """Return what is kept of the first `count` updates (count, w)."""

    def restore(self, kept: np.ndarray) -> None:
        """Take up what `updates` returned."""


class InMemory:
    """Exact: float32 in memory, n * d * 4 bytes."""

    def __init__(self, *, capacity: int = 0) -> None:
        # np.empty costs no memory until it is written: room for all clients is free
        self._capacity = capacity
        self._kept = np.empty((0, 0), np.float32)
        self._lengths = np.empty(0)

    def put(self, row: int, update: np.ndarray) -> None:
        """Keep an update; room doubles beyond the capacity."""
        if row >= len(self._kept):
            self._grow(row, update.shape[0])
        self._kept[row] = update
        self._lengths[row] = np.linalg.norm(update)

    def products(self, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Sum the products of blocks of columns: neither a copy of the rows nor a slow shape.

        A multiplication of few rows at full length took 1.4 times as long, and the copy, in
        fresh pages, as long again.
        """
        kept, chosen = torch.from_numpy(self._kept[:count]), torch.from_numpy(rows)
        found = torch.zeros(len(rows), count)
        for part in torch.split(kept, BLOCK_COLUMNS, dim=1):
            found.addmm_(part[chosen], part.T)
        return found.numpy(), self._lengths[:count]

    def updates(self, count: int) -> np.ndarray:
        """Return the updates (count, d), a view."""
        return self._kept[:count]

    def restore(self, kept: np.ndarray) -> None:
        """Take up the updates (n, d)."""
        for row, update in enumerate(kept):
            self.put(row, update)

    def _grow(self, row: int, length: int) -> None:
        room = max(8, self._capacity, 2 * row)
        kept, lengths = np.empty((room, length), np.float32), np.empty(room)
        if row:
            kept[:row], lengths[:row] = self._kept[:row], self._lengths[:row]
        self._kept, self._lengths = kept, lengths


class OnDisk:
    """Memory-mapped half precision: n * d * 2 bytes on disk, one block of rows in memory.

    Each update is scaled by its largest entry, so that small entries keep their digits:
    relative error 2^-11 of each entry, about 1e-6 of a cosine in 1e6 dimensions.
    """

    def __init__(self, *, capacity: int, folder: Path | None = None) -> None:
        self._capacity = capacity
        self._folder = TemporaryDirectory(prefix="fl-app-updates-", dir=folder)
        self._kept = np.empty((0, 0), np.float16)
        self._lengths = np.empty(capacity)

    def put(self, row: int, update: np.ndarray) -> None:
        """Keep the direction of an update; raises ValueError beyond the capacity."""
        if row >= self._capacity:
            raise ValueError(
                f"the store on disk has room for {self._capacity} clients, got one more; "
                "set population.clients to the number of clients that may come"
            )
        if not len(self._kept):
            self._open(update.shape[0])
        scaled = (update / (np.abs(update).max() or 1.0)).astype(np.float16)
        self._kept[row] = scaled
        self._lengths[row] = np.linalg.norm(scaled.astype(np.float32))

    def products(self, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Multiply block by block; blocks are as large as BLOCK_BYTES."""
        chosen = self._kept[rows].astype(np.float32)
        step = max(1, BLOCK_BYTES // (4 * self._kept.shape[1]))
        found = np.empty((len(rows), count), np.float32)
        for start in range(0, count, step):
            part = slice(start, min(start + step, count))
            block = self._kept[part].astype(np.float32)
            found[:, part] = (torch.from_numpy(chosen) @ torch.from_numpy(block).T).numpy()
        return found, self._lengths[:count]

    def updates(self, count: int) -> np.ndarray:
        """Return the scaled updates (count, d), a view of the disk."""
        return self._kept[:count]

    def restore(self, kept: np.ndarray) -> None:
        """Take up the scaled updates (n, d)."""
        for row, update in enumerate(kept):
            self.put(row, update.astype(np.float32))

    def _open(self, length: int) -> None:
        path = Path(self._folder.name) / "updates.f16"
        shape = (self._capacity, length)
        self._kept = np.memmap(path, np.float16, "w+", shape=shape)


class Sketched:
    """Count sketch: each entry, with a random sign, is added to one of `dimension` buckets.

    The inner product of two sketches is an unbiased estimate; the cosine c of two updates
    comes out with a standard error of about (1 - c^2) / sqrt(dimension): 0.008 at 16,384
    and c = 0. Buckets are filled evenly by one keyed permutation of the entries.
    Charikar et al., ICALP 2002; as random projection, Weinberger et al., ICML 2009, lemma 2.
    """

    def __init__(self, *, dimension: int, seed: int, capacity: int = 0) -> None:
        self.dimension = dimension
        self.seed = seed
        self._rows = InMemory(capacity=capacity)
        self._order = np.empty(0, np.intp)
        self._signs = np.empty(0, np.float32)

    def put(self, row: int, update: np.ndarray) -> None:
        """Keep the sketch of an update."""
        self._rows.put(row, self.sketch(update))

    def sketch(self, update: np.ndarray) -> np.ndarray:
        """Return the sketch (dimension,) of an update (d,)."""
        if len(self._order) != len(update):
            self._plan(len(update))
        each = -(-len(update) // self.dimension)
        dealt = np.zeros(each * self.dimension, np.float32)
        np.multiply(update[self._order], self._signs, out=dealt[: len(update)])
        # bucket b takes entries b, b + dimension, ...: the padding is spread evenly
        sums: np.ndarray = dealt.reshape(each, self.dimension).sum(axis=0)
        # signs that happen to agree make a sketch longer than its update: float32 must hold it
        length = float(np.linalg.norm(sums.astype(np.float64)))
        return sums if length <= LONGEST else (sums * (LONGEST / length)).astype(np.float32)

    def products(self, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Inner products and lengths of the sketches."""
        return self._rows.products(rows, count)

    def updates(self, count: int) -> np.ndarray:
        """Return the sketches (count, dimension), a view."""
        return self._rows.updates(count)

    def restore(self, kept: np.ndarray) -> None:
        """Take up the sketches (n, dimension)."""
        self._rows.restore(kept)

    def _plan(self, length: int) -> None:
        draw = generator(self.seed, purpose="sketch")
        self._order = draw.permutation(length)
        self._signs = draw.choice(np.array([-1, 1], np.float32), length)


def choose(
    mode: Mode, *, clients: int, length: int, memory_gb: float, dimension: int, seed: int
) -> VectorBackend:
    """Return the backend named by `mode`; `auto` is exact up to `memory_gb`, else sketches.

    Also exact where a sketch would be no smaller than an update. On disk only by name: every
    row is read every round, which takes fifty times as long as sketches do.
    """
    if mode == "auto":
        needed = clients * length * 4 / 2**30
        mode = "exact" if length <= dimension or needed <= memory_gb else "sketch"
    if mode == "exact":
        return InMemory(capacity=clients)
    if mode == "disk":
        return OnDisk(capacity=clients)
    return Sketched(dimension=dimension, seed=seed, capacity=clients)
