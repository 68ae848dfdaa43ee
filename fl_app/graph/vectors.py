"""The latest vector of each client: an update, a model, or another vector for a measure."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from fl_app.graph.pairwise import squared_lengths
from fl_app.graph.parallel import in_order
from fl_app.graph.table import Rows, Table, narrow
from fl_app.graph.vector_backends import InMemory, VectorBackend, blocks
from fl_app.params import is_finite
from fl_app.types import Labels, SomeVectors, Vector, Vectors, Weights

Rule = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Combines vectors (n, c) with weights (n,) to one vector (c,), coordinate by coordinate."""
STORED = "stored."


class ClientVectors:
    """One vector (d,) per client, with its norm, its round, and whether it is odd.

    Rows are in order of first appearance, so that a new client moves no row; results for all
    clients are in the order of their ids. `backend` stores the vectors, by default exactly and in
    memory. Norms are exact for every backend. `changed` are the rows that were stored since it
    was last cleared.
    """

    def __init__(self, backend: VectorBackend | None = None) -> None:
        self.backend: VectorBackend = backend or InMemory()
        self.changed: set[int] = set()
        self.length = 0
        self._row: dict[int, int] = {}
        self._rounds: list[int] = []
        self._norms: list[float] = []
        self._counts: list[int] = []
        self._odd: list[bool] = []
        self._order = np.empty(0, int)
        self._lengths: dict[tuple[tuple[int, int], ...], np.ndarray] = {}

    def __len__(self) -> int:
        return len(self._row)

    def put(self, client_id: int, vector: Vector, round: int, *, odd: bool = False) -> None:
        """Store a copy of `vector` (d,), sent in `round`; it replaces the client's last vector.

        `odd` marks an odd update (see `ingress.screen`). Raises ValueError for a vector that is
        not finite or has another length.
        """
        if len(self) and vector.shape[0] != self.length:
            raise ValueError(
                f"vector of client {client_id} must have length {self.length}, "
                f"got {vector.shape[0]}; use one store per network"
            )
        with np.errstate(over="ignore", invalid="ignore"):
            norm = float(np.linalg.norm(vector))  # if it is finite, so is every entry
        if not np.isfinite(norm) and not is_finite(vector):
            raise ValueError(f"vector of client {client_id} must be finite; reject it before")
        row = self._row.get(client_id, len(self))
        self.backend.put(row, vector)
        self.length = vector.shape[0]
        if row == len(self):
            self._row[client_id] = row
            self._rounds.append(round)
            self._norms.append(0.0)
            self._counts.append(1)
            self._odd.append(odd)
        self._odd[row], self._counts[row] = odd, 1
        self._note(row, round, norm)

    def add(self, client_id: int, vector: Vector, round: int) -> None:
        """Add `vector` (d,), sent in `round`, to the client's stored vector, as `put` stores it.

        The norm is that of the sum; with sketches it is estimated.
        """
        row = self._row.get(client_id)
        if row is None:
            self.put(client_id, vector, round)
            return
        self.move(client_id, vector)
        self._counts[row] += 1
        self._rounds[row] = round

    def move(self, client_id: int, step: Vector) -> None:
        """Add `step` (d,) to the stored vector of a known client, which stays one of its round.

        The norm is as in `add`.
        """
        row = self._row[client_id]
        self.backend.add(row, step)
        width = self.table().shape[1]
        norm = float(np.linalg.norm(self.read(np.array([row]), slice(0, width))[0]))
        self._note(row, self._rounds[row], norm)

    def _note(self, row: int, round: int, norm: float) -> None:
        """Note the round and the norm of a row that was stored."""
        self._rounds[row], self._norms[row] = round, norm
        self.changed.add(row)
        for lengths in self._lengths.values():
            lengths[:, row : row + 1] = np.nan

    @property
    def client_ids(self) -> Labels:
        """The sorted ids (n,) of the clients that have a vector."""
        return self.ids_of(self.order)

    @property
    def order(self) -> Labels:
        """The row of each client (n,), in the order of the ids."""
        if len(self._order) != len(self):
            self._order = np.argsort(np.array(list(self._row), int))
        return self._order

    def rows_of(self, client_ids: Sequence[int]) -> Labels:
        """Return the rows (m,) of some clients, which must be known."""
        return np.array([self._row[client] for client in client_ids], int)

    def ids_of(self, rows: Labels) -> Labels:
        """Return the client ids (m,) of some rows."""
        ids: Labels = np.array(list(self._row), int)[rows]
        return ids

    def fresh(self, server_round: int, max_age: int | None) -> Labels:
        """Return the rows (m,) of the last `max_age` rounds, by client id; None means all rows."""
        least = server_round - max_age if max_age is not None else -1
        rows: Labels = self.order[np.array(self._rounds, int)[self.order] > least]
        return rows

    def rounds(self) -> Labels:
        """Return the round of each client's vector (n,), in the order of the ids."""
        rounds: Labels = np.array(self._rounds, int)[self.order]
        return rounds

    def norms(self, rows: Labels) -> Weights:
        """Return the exact norms (m,) of the vectors of some rows."""
        norms: Weights = np.array(self._norms, float)[rows]
        return norms

    def mean_norms(self, rows: Labels) -> Weights:
        """Return the norms (m,) of some rows, each divided by the number of vectors in its sum."""
        found: Weights = self.norms(rows) / np.array(self._counts, float)[rows]
        return found

    def odd(self, rows: Labels) -> np.ndarray:
        """Return which of the rows (m,) are marked as odd."""
        odd: np.ndarray = np.array(self._odd, bool)[rows]
        return odd

    def table(self, rows: Labels | None = None, part: slice | None = None) -> Table:
        """Return some rows and columns, by default all, without reading them."""
        chosen = np.arange(len(self)) if rows is None else rows
        width = (
            self.length
            if self.backend.whole
            else self.backend.read(slice(0, 1), slice(None)).shape[1]
        )
        whole = Table(self.backend, chosen, slice(0, width))
        table = whole if part is None else narrow(whole, part)
        assert isinstance(table, Table)
        return table

    def read(self, rows: Labels, part: slice | None = None) -> Vectors:
        """Return some rows (m, c), float32; sketches if the backend stores only sketches."""
        table = self.table(rows, part)
        found: Vectors = table.backend.read(rows, table.part).numpy()
        return found

    def lengths(self, parts: Sequence[slice]) -> np.ndarray:
        """Return the norms of l parts of every vector (l, n); reads only new vectors."""
        key = tuple((part.start, part.stop) for part in parts)
        known = self._lengths.get(key, np.empty((len(parts), 0)))
        lengths = np.full((len(parts), len(self)), np.nan)
        lengths[:, : known.shape[1]] = known
        stale = np.flatnonzero(np.isnan(lengths).any(axis=0))
        for place, part in enumerate(parts if len(stale) else ()):
            lengths[place, stale] = np.sqrt(squared_lengths(self.table(stale, part)))
        self._lengths[key] = lengths
        return lengths

    def combine(
        self,
        rule: Rule,
        groups: Sequence[np.ndarray],
        weights: Sequence[np.ndarray],
        part: slice | None = None,
    ) -> SomeVectors:
        """Return one vector for each of k groups of rows (k, c), by a coordinate-wise rule.

        Each block of columns is read once for all groups.
        """
        if not groups:
            return self.read(np.empty(0, int), part)
        rows, places = np.unique(np.concatenate(groups), return_inverse=True)
        inside = np.split(places, np.cumsum([len(group) for group in groups])[:-1])
        table = self.table(rows, part)
        found = np.empty((len(groups), table.shape[1]), np.float32)
        work = partial(_combined, rule, table, list(zip(inside, weights, strict=True)))
        every = blocks(table.shape[1], len(rows))
        for block, values in zip(every, in_order(work, every), strict=True):
            found[:, block] = values
        return found

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the whole state for a checkpoint, in the order of the rows."""
        stored = self.backend.stored(len(self))
        state: dict[str, np.ndarray] = {
            "ids": np.array(list(self._row), np.int64),
            "rounds": np.array(self._rounds, np.int64),
            "norms": np.array(self._norms, np.float64),
            "counts": np.array(self._counts, np.int64),
            "odd": np.array(self._odd, np.uint8),
            "changed": np.array(sorted(self.changed), np.int64),
            "length": np.array([self.length], np.int64),
        }
        return state | {STORED + name: array for name, array in stored.items()}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the state that `arrays` returned, on an empty backend of the same kind."""
        self._row = {int(client): row for row, client in enumerate(arrays["ids"])}
        self._rounds, self._norms = arrays["rounds"].tolist(), arrays["norms"].tolist()
        self._counts = arrays["counts"].tolist()
        self._odd = arrays["odd"].astype(bool).tolist()
        self.changed = set(arrays["changed"].tolist())
        self.length = int(arrays["length"][0])
        names = [name for name in arrays if name.startswith(STORED)]
        self.backend.restore({name.removeprefix(STORED): arrays[name] for name in names})


def _combined(
    rule: Rule, table: Rows, groups: Sequence[tuple[np.ndarray, np.ndarray]], block: slice
) -> np.ndarray:
    """Return some columns of the combined vectors (k, c) of groups of rows and their weights."""
    columns = narrow(table, block)
    assert isinstance(columns, Table)
    read = columns.backend.read(columns.chosen, columns.part).numpy()
    return np.stack([rule(read[rows], shares) for rows, shares in groups])
