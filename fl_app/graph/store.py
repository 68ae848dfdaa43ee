"""The latest update of each client, and the similarity among them, kept up to date by rows."""

from collections.abc import Mapping

import numpy as np

from fl_app.graph.similarity import flic_rows
from fl_app.params import is_finite
from fl_app.types import Labels, Matrix, Vector, Vectors


class UpdateStore:
    """Keeps one update per client; only rows of clients that reported are recomputed.

    A client never seen is no node. Rows lie in order of first appearance, so that a new
    client moves nothing. `rows_computed` counts the rows of similarity computed so far.
    """

    def __init__(self) -> None:
        self._row: dict[int, int] = {}
        self._rounds: list[int] = []
        self._updates = np.empty((0, 0), np.float32)
        self._matrix = np.zeros((0, 0))
        self._changed: set[int] = set()
        self.rows_computed = 0

    def __len__(self) -> int:
        return len(self._row)

    def put(self, client_id: int, update: Vector, round: int) -> None:
        """Keep a copy of `update` (d,), sent in `round`, in place of the client's last one.

        Raises ValueError for an update that is not finite or of another length.
        """
        if len(self) and update.shape[0] != self._updates.shape[1]:
            raise ValueError(
                f"update of client {client_id} must have length {self._updates.shape[1]}, "
                f"got {update.shape[0]}; one store holds updates of one network"
            )
        if not is_finite(update):
            raise ValueError(f"update of client {client_id} is not finite; reject it before")
        row = self._row.setdefault(client_id, len(self))
        if row == len(self._rounds):
            self._rounds.append(round)
            self._grow(row + 1, update.shape[0])
        self._updates[row] = update
        self._rounds[row] = round
        self._changed.add(row)

    def similarity(self) -> tuple[Labels, Matrix]:
        """Return the sorted client ids (n,) and `1 + cos` of their updates (n, n)."""
        n = len(self)
        if self._changed:
            rows = np.array(sorted(self._changed))
            # copy of the changed rows: one BLAS product of (m, d) with (d, n)
            fresh = flic_rows(self._updates[rows], self._updates[:n])
            self._matrix[rows, :n] = fresh
            self._matrix[:n, rows] = fresh.T
            self._matrix[np.arange(n), np.arange(n)] = 0.0
            self.rows_computed += len(rows)
            self._changed.clear()
        ids, order = self._sorted()
        return ids, self._matrix[np.ix_(order, order)]

    def updates(self) -> tuple[Labels, Vectors]:
        """Return the sorted client ids (n,) and their updates (n, d)."""
        ids, order = self._sorted()
        return ids, self._updates[order]

    def rounds(self) -> Labels:
        """Return the round of each client's update (n,), in the order of the ids."""
        rounds: Labels = np.array(self._rounds, int)[self._sorted()[1]]
        return rounds

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the whole state for a checkpoint, in the order of the rows."""
        n = len(self)
        return {
            "ids": np.array(list(self._row), np.int64),
            "rounds": np.array(self._rounds, np.int64),
            "updates": self._updates[:n],
            "matrix": self._matrix[:n, :n],
            "changed": np.array(sorted(self._changed), np.int64),
            "rows_computed": np.array([self.rows_computed], np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "UpdateStore":
        """Return the store that `arrays` came from."""
        store = cls()
        store._row = {int(client): row for row, client in enumerate(arrays["ids"])}
        store._rounds = arrays["rounds"].tolist()
        store._updates = np.array(arrays["updates"], np.float32)
        store._matrix = np.array(arrays["matrix"], np.float64)
        store._changed = set(arrays["changed"].tolist())
        store.rows_computed = int(arrays["rows_computed"][0])
        return store

    def _grow(self, rows: int, length: int) -> None:
        """Make room for one more client; doubling keeps the copies few."""
        if rows <= self._updates.shape[0]:
            return
        room = max(8, 2 * self._updates.shape[0])
        updates = np.empty((room, length), np.float32)
        matrix = np.zeros((room, room))
        kept = self._updates.shape[0]
        if kept:
            updates[:kept], matrix[:kept, :kept] = self._updates, self._matrix
        self._updates, self._matrix = updates, matrix

    def _sorted(self) -> tuple[Labels, Labels]:
        ids = np.array(list(self._row), int)
        order = np.argsort(ids)
        return ids[order], order
