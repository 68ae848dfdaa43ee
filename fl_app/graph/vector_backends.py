"""Storage of the clients' vectors: in memory, on disk in half precision, or as sketches.

All backends return rows, and inner products of some rows with all rows for cosine similarity;
none allocates an array of size (n, n, d).
"""

from collections.abc import Mapping
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
import torch

from fl_app.graph.rows_in_memory import InMemory, Some, Stored, blocks
from fl_app.graph.rows_on_disk import OnDisk
from fl_app.graph.sketches import Sketched
from fl_app.types import Store, Vector

__all__ = ["InMemory", "OnDisk", "Sketched", "Some", "Stored", "VectorBackend", "blocks", "choose"]


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
