"""The latest update of each client, and the similarity among them, kept up to date by rows."""

from collections.abc import Mapping

import numpy as np
from scipy import sparse

from fl_app.graph.neighbours import Neighbours
from fl_app.graph.similarity import shifted_cosine
from fl_app.graph.vector_backends import InMemory, VectorBackend
from fl_app.params import is_finite
from fl_app.types import Labels, Matrix, Vector

BLOCK_ROWS = 256
"""Rows computed at a time, so that a first round of many clients stays small in memory."""


class UpdateStore:
    """Keeps one update per client; only rows of clients that reported are recomputed.

    A client never seen is no node. Rows lie in order of first appearance, so that a new
    client moves nothing. `backend` says where the updates lie, by default exact in memory;
    the matrix is float32, n * n * 4 bytes. `rows_computed` counts the rows of similarity
    computed so far.
    """

    def __init__(self, backend: VectorBackend | None = None) -> None:
        self._row: dict[int, int] = {}
        self._rounds: list[int] = []
        self._length = 0
        self._backend: VectorBackend = backend or InMemory()
        self._matrix = np.zeros((0, 0), np.float32)
        self._changed: set[int] = set()
        self._neighbours: Neighbours | None = None
        self.rows_computed = 0

    def __len__(self) -> int:
        return len(self._row)

    def put(self, client_id: int, update: Vector, round: int) -> None:
        """Keep a copy of `update` (d,), sent in `round`, in place of the client's last one.

        Raises ValueError for an update that is not finite or of another length.
        """
        if len(self) and update.shape[0] != self._length:
            raise ValueError(
                f"update of client {client_id} must have length {self._length}, "
                f"got {update.shape[0]}; one store holds updates of one network"
            )
        if not is_finite(update):
            raise ValueError(f"update of client {client_id} is not finite; reject it before")
        row = self._row.get(client_id, len(self))
        self._backend.put(row, update)
        self._length = update.shape[0]
        if row == len(self):
            self._row[client_id] = row
            self._rounds.append(round)
        self._rounds[row] = round
        self._changed.add(row)

    def similarity(self) -> tuple[Labels, Matrix]:
        """Return the sorted client ids (n,) and `1 + cos` of their updates (n, n)."""
        self._refresh()
        ids, order = self._sorted()
        return ids, self._matrix[np.ix_(order, order)]

    def nearest(self, neighbours: int) -> tuple[Labels, sparse.csr_matrix]:
        """Return the sorted client ids (n,) and the similarity of nearest neighbours (n, n).

        Sparse and symmetric: an edge where one of two clients is among the `neighbours`
        most similar ones of the other.
        """
        if self._neighbours is None or self._neighbours.count != neighbours:
            self._neighbours = Neighbours(neighbours)
        self._refresh()
        ids, order = self._sorted()
        return ids, self._neighbours.graph(self._matrix[: len(self), : len(self)], order)

    def client_ids(self) -> Labels:
        """Return the sorted ids (n,) of the clients that are nodes."""
        return self._sorted()[0]

    def updates(self) -> tuple[Labels, np.ndarray]:
        """Return the sorted client ids (n,) and what is held of their updates (n, w)."""
        ids, order = self._sorted()
        return ids, self._backend.updates(len(self))[order]

    def rounds(self) -> Labels:
        """Return the round of each client's update (n,), in the order of the ids."""
        rounds: Labels = np.array(self._rounds, int)[self._sorted()[1]]
        return rounds

    def fresh(self, server_round: int, max_age: int | None) -> np.ndarray:
        """Return which clients (n,) sent theirs in the last `max_age` rounds; None: all."""
        known = self.rounds()
        return known > (server_round - max_age if max_age is not None else -1)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the whole state for a checkpoint, in the order of the rows."""
        n = len(self)
        return {
            "ids": np.array(list(self._row), np.int64),
            "rounds": np.array(self._rounds, np.int64),
            "updates": self._backend.updates(n),
            "matrix": self._matrix[:n, :n],
            "changed": np.array(sorted(self._changed), np.int64),
            "counts": np.array([self.rows_computed, self._length], np.int64),
        }

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, np.ndarray], backend: VectorBackend | None = None
    ) -> "UpdateStore":
        """Return the store that `arrays` came from, on an empty backend of the same kind."""
        store = cls(backend)
        store.restore(arrays)
        return store

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over what `arrays` returned, on an empty backend of the same kind."""
        self._row = {int(client): row for row, client in enumerate(arrays["ids"])}
        self._rounds = arrays["rounds"].tolist()
        self._backend.restore(arrays["updates"])
        self._matrix = np.array(arrays["matrix"], np.float32)
        self._changed = set(arrays["changed"].tolist())
        self.rows_computed, self._length = (int(count) for count in arrays["counts"])

    def _refresh(self) -> None:
        """Compute the rows and columns of the clients that reported since the last time."""
        if not self._changed:
            return
        n, changed = len(self), np.array(sorted(self._changed))
        self._grow(n)
        for start in range(0, len(changed), BLOCK_ROWS):
            rows = changed[start : start + BLOCK_ROWS]
            products, lengths = self._backend.products(rows, n)
            fresh = shifted_cosine(products, lengths[rows], lengths).astype(np.float32)
            fresh[:, rows] = (fresh[:, rows] + fresh[:, rows].T) / 2
            self._matrix[rows, :n] = fresh
            self._matrix[:n, rows] = fresh.T
        self._matrix[changed, changed] = 0.0
        self.rows_computed += len(changed)
        self._changed.clear()
        if self._neighbours is not None:
            self._neighbours.update(self._matrix[:n, :n], changed)

    def _grow(self, rows: int) -> None:
        """Make room for more clients; doubling keeps the copies few."""
        kept = len(self._matrix)
        if rows > kept:
            matrix = np.zeros((max(8, 2 * kept, rows),) * 2, np.float32)
            matrix[:kept, :kept] = self._matrix
            self._matrix = matrix

    def _sorted(self) -> tuple[Labels, Labels]:
        ids = np.array(list(self._row), int)
        order = np.argsort(ids)
        return ids[order], order
