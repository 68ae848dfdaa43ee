"""The matrix of all clients, updated row by row, and its communities."""

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

import numpy as np
from scipy import sparse

from fl_app.graph.measures import Measure
from fl_app.graph.neighbours import Neighbours, neighbour_lists, symmetric
from fl_app.graph.vectors import ClientVectors
from fl_app.types import Labels, Matrix, Vector

BLOCK_ROWS = 256
"""Rows computed at a time, so that a first round with many clients needs little memory."""
Weigh = Callable[[np.ndarray], np.ndarray]


@runtime_checkable
class Detection(Protocol):
    """Finds communities among some clients of a graph."""

    def __call__(self, graph: "ClientGraph", among: Labels) -> Labels:
        """Return the community of each of the rows `among` (m,), numbered as by `louvain`."""

    def similarity(self, graph: "ClientGraph", among: Labels) -> Matrix | None:
        """Return the similarity (m, m) in which communities are found, None if there is none."""


class ClientGraph:
    """The matrix of a measure on the latest vectors of the clients, and their communities.

    Only rows of clients with a new vector are recomputed. A client without a vector is not a node.
    The matrix is float32, n * n * 4 bytes, in the order of the rows of `vectors`, with diagonal 0.
    `among` (m,) selects rows, by default those of all clients in the order of their ids.
    `rows_computed` is the number of rows computed so far.
    """

    def __init__(
        self, measure: Measure, detection: Detection, vectors: ClientVectors | None = None
    ) -> None:
        self.measure, self.detection = measure, detection
        self.vectors = ClientVectors() if vectors is None else vectors
        self.rows_computed = 0
        self._matrix = np.zeros((0, 0), np.float32)
        self._neighbours: Neighbours | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    def put(self, client_id: int, vector: Vector, round: int, *, odd: bool = False) -> None:
        """Store the latest vector of a client: see `ClientVectors.put`."""
        self.vectors.put(client_id, vector, round, odd=odd)

    def add(self, client_id: int, vector: Vector, round: int) -> None:
        """Add to the vector of a client: see `ClientVectors.add`."""
        self.vectors.add(client_id, vector, round)

    def labels(self, among: Labels | None = None) -> Labels:
        """Return the community (m,) of each client."""
        return self.detection(self, self._chosen(among))

    def similarity(self, among: Labels | None = None) -> Matrix | None:
        """Return the similarity (m, m) in which communities are found, None if there is none."""
        return self.detection.similarity(self, self._chosen(among))

    def distance(self, among: Labels | None = None) -> Matrix | None:
        """Return the distances (m, m), None if the measure is a similarity."""
        return self.values(among) if self.measure.of_distance else None

    def values(self, among: Labels | None = None) -> Matrix:
        """Return a copy of the values of the measure (m, m)."""
        chosen = self._chosen(among)
        values: Matrix = self.matrix()[np.ix_(chosen, chosen)]
        return values

    def matrix(self) -> Matrix:
        """Return the updated values (n, n) in the order of the rows, as a view; do not write."""
        self._refresh()
        n = len(self)
        return self._matrix[:n, :n]

    def nearest(
        self, neighbours: int, among: Labels | None = None, *, weigh: Weigh | None = None
    ) -> sparse.csr_matrix:
        """Return the sparse symmetric graph (m, m) of nearest neighbours.

        Two clients have an edge if one is among the `neighbours` nearest clients of the other. Its
        weight is the value of the measure, or `weigh` of it.
        """
        chosen, matrix = self._chosen(among), self.matrix()
        if len(chosen) == len(self):
            place = np.empty(len(self), np.intp)
            place[chosen] = np.arange(len(self))
            lists = place[self._lists(neighbours)[chosen]]
        else:
            width = min(neighbours, len(chosen) - 1)
            smallest = self.measure.of_distance
            lists = neighbour_lists(matrix, chosen, width, columns=chosen, smallest=smallest)
        weights = matrix[chosen[:, None], chosen[lists]].astype(np.float64)
        return symmetric(lists, weights if weigh is None else weigh(weights))

    def extremes(self, among: Labels, counted: np.ndarray) -> tuple[float, float]:
        """Return the smallest and largest value between different clients of `among` (m,).

        Only clients with `counted` (m,) are used.
        """
        rows, matrix = among[counted], self.matrix()
        whole = len(rows) == len(matrix)
        low, high = np.inf, -np.inf
        for start in range(0, len(rows) if len(rows) > 1 else 0, BLOCK_ROWS):
            some = rows[start : start + BLOCK_ROWS]
            block = matrix[some] if whole else matrix[np.ix_(some, rows)]
            place = some if whole else np.arange(start, start + len(some))
            own = np.arange(len(some)), place
            block[own] = np.inf
            low = min(low, float(block.min()))
            block[own] = -np.inf
            high = max(high, float(block.max()))
        return (low, high) if low <= high else (0.0, 0.0)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the whole state for a checkpoint, in the order of the rows."""
        n = min(len(self), len(self._matrix))
        return self.vectors.arrays() | {
            "matrix": self._matrix[:n, :n],
            "computed": np.array([self.rows_computed], np.int64),
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the state that `arrays` returned, on an empty backend of the same kind."""
        self.vectors.restore(arrays)
        self._matrix = np.array(arrays["matrix"], np.float32)
        self.rows_computed = int(arrays["computed"][0])
        self._neighbours = None

    def _chosen(self, among: Labels | None) -> Labels:
        return self.vectors.order if among is None else among

    def _lists(self, neighbours: int) -> np.ndarray:
        """Return the nearest neighbours of every row (n, w), updated incrementally."""
        if self._neighbours is None or self._neighbours.count != neighbours:
            self._neighbours = Neighbours(neighbours, smallest=self.measure.of_distance)
        return self._neighbours.lists(self.matrix())

    def _refresh(self) -> None:
        """Compute the rows and columns of the clients with a new vector."""
        if not self.vectors.changed:
            return
        n, changed = len(self), np.array(sorted(self.vectors.changed))
        self._grow(n)
        for start in range(0, len(changed), BLOCK_ROWS):
            rows = changed[start : start + BLOCK_ROWS]
            fresh = self.measure.rows(self.vectors, rows).astype(np.float32)
            fresh[:, rows] = (fresh[:, rows] + fresh[:, rows].T) / 2
            self._matrix[rows, :n] = fresh
            self._matrix[:n, rows] = fresh.T
        self._matrix[changed, changed] = 0.0
        self.rows_computed += len(changed)
        self.vectors.changed.clear()
        if self._neighbours is not None:
            self._neighbours.update(self._matrix[:n, :n], changed)

    def _grow(self, rows: int) -> None:
        """Allocate space for more clients; doubling makes copies rare."""
        size = len(self._matrix)
        if rows > size:
            matrix = np.zeros((max(8, 2 * size, rows),) * 2, np.float32)
            matrix[:size, :size] = self._matrix
            self._matrix = matrix
