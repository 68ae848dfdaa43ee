"""Rows of vectors for distances: an array, or a part of a vector backend."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from fl_app.graph.vector_backends import Some, VectorBackend


@dataclass(frozen=True)
class Table:
    """Some rows (n,) and columns of a backend, as an array (n, d) that may exceed the memory."""

    backend: VectorBackend
    chosen: np.ndarray
    part: slice

    @property
    def shape(self) -> tuple[int, int]:
        """Return (n, d)."""
        return len(self.chosen), self.part.stop - self.part.start

    def __len__(self) -> int:
        return len(self.chosen)


Rows = np.ndarray | Table


def narrow(rows: Rows, part: slice) -> Rows:
    """Return some columns of rows (n, d), without a copy."""
    if not isinstance(rows, Table):
        view: np.ndarray = rows[:, part]
        return view
    start, stop, _ = part.indices(rows.shape[1])
    return replace(rows, part=slice(rows.part.start + start, rows.part.start + stop))


def wide(rows: Rows, some: Some, part: slice) -> torch.Tensor:
    """Return a copy of some rows and columns, in the precision of their backend."""
    if not isinstance(rows, Table):
        return torch.from_numpy(rows[some, part].astype(np.float64))
    start, stop, _ = part.indices(rows.shape[1])
    place = slice(rows.part.start + start, rows.part.start + stop)
    found = rows.backend.read(rows.chosen[some], place)
    return found.to(rows.backend.precision)


def precision(*tables: Rows) -> torch.dtype:
    """Return the lowest precision of the tables; arrays have double precision."""
    kinds = [
        each.backend.precision if isinstance(each, Table) else torch.float64 for each in tables
    ]
    return torch.float32 if torch.float32 in kinds else torch.float64
