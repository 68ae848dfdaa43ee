"""Measures: they compute rows of the matrix of the clients from their vectors.

A measure can compute single rows, so that a round computes only the rows of clients that replied.
`of_distance`: whether the values are distances; otherwise they are similarities.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

from fl_app.graph.dcfl_distance import dcfl_between, divergence_between
from fl_app.graph.pairwise import inner_products, squared_distances
from fl_app.graph.rows_in_memory import blocks
from fl_app.graph.similarity import UpdateDistance, shifted_cosine, trusted_between, weight_parts
from fl_app.graph.vectors import ClientVectors
from fl_app.params import Layout
from fl_app.types import Labels

Block = np.ndarray
"""Values between m rows and all n rows (m, n)."""
DcflKind = Literal["complete", "divergence", UpdateDistance]


@runtime_checkable
class Measure(Protocol):
    """Values between some rows and all rows."""

    of_distance: ClassVar[bool]

    def rows(self, vectors: ClientVectors, rows: Labels) -> Block:
        """Return the values (m, n) between rows (m,) and all rows."""


@dataclass(frozen=True)
class ShiftedCosine:
    """`1 + cos` of the vectors, as `flic_similarity`."""

    of_distance: ClassVar[bool] = False

    def rows(self, vectors: ClientVectors, rows: Labels) -> Block:
        """Return similarities in [0, 2]."""
        products, lengths = vectors.backend.products(rows, len(vectors))
        return shifted_cosine(products, lengths[rows], lengths)


@dataclass(frozen=True)
class Cosine:
    """The cosine of the vectors; 0 for a zero vector."""

    of_distance: ClassVar[bool] = False

    def rows(self, vectors: ClientVectors, rows: Labels) -> Block:
        """Return cosines in [-1, 1]."""
        return ShiftedCosine().rows(vectors, rows) - 1.0


@dataclass(frozen=True)
class CosineDistance:
    """`1 - cos` of the trainable part of the vectors."""

    layout: Layout
    of_distance: ClassVar[bool] = True

    def rows(self, vectors: ClientVectors, rows: Labels) -> Block:
        """Return distances in [0, 2].

        The products of the backend are in single precision, for which models that have nearly
        converged are all in one direction.
        """
        part = _direction(vectors, self.layout)
        (lengths,) = vectors.lengths([part])
        products = inner_products(vectors.table(rows, part), vectors.table(part=part))
        return 2.0 - shifted_cosine(products, lengths[rows], lengths)


@dataclass(frozen=True)
class EuclideanDistance:
    """`|a - b|` of the trainable part of the vectors."""

    layout: Layout
    of_distance: ClassVar[bool] = True

    def rows(self, vectors: ClientVectors, rows: Labels) -> Block:
        """Return distances."""
        part = _direction(vectors, self.layout)
        some, those = vectors.table(rows, part), vectors.table(part=part)
        distance: Block = np.sqrt(squared_distances(some, those, same=False, own=rows))
        return distance


@dataclass(frozen=True)
class TrustedDistance:
    """The trusted distance of models; it needs whole layers, which sketches do not have."""

    layout: Layout
    of_distance: ClassVar[bool] = True

    def rows(self, vectors: ClientVectors, rows: Labels) -> Block:
        """Return distances in [0, FARTHEST]."""
        lengths = vectors.lengths(weight_parts(self.layout))
        return trusted_between(
            vectors.table(rows), vectors.table(), self.layout,
            own=rows, lengths=(lengths[:, rows], lengths),
        )  # fmt: skip


@dataclass(frozen=True)
class OwnDistance:
    """A distance function of the user: models (n, d), others (m, d) and the layout to (n, m).

    It receives the others in blocks; the matrix is the mean of both directions.
    """

    function: Callable[..., np.ndarray]
    layout: Layout
    of_distance: ClassVar[bool] = True

    def rows(self, vectors: ClientVectors, rows: Labels) -> Block:
        """Return distances."""
        some = vectors.read(rows)
        found = np.empty((len(rows), len(vectors)))
        for part in blocks(len(vectors), vectors.length):
            others = vectors.read(np.arange(part.start, part.stop))
            there = self.function(some, others, self.layout)
            found[:, part] = (there + self.function(others, some, self.layout).T) / 2
        return found


@dataclass(frozen=True)
class DcflDistance:
    """DCFL's distance of update vectors, or a part of it; a vector is start and end (2d,)."""

    kind: DcflKind
    layout: Layout
    of_distance: ClassVar[bool] = True

    @property
    def starts(self) -> slice:
        """The trainable columns of the start in a vector."""
        return self.layout.direction

    @property
    def ends(self) -> slice:
        """The trainable columns of the end in a vector."""
        return slice(self.layout.size, self.layout.size + self.layout.direction.stop)

    def rows(self, vectors: ClientVectors, rows: Labels) -> Block:
        """Return distances."""
        some = vectors.table(rows, self.starts), vectors.table(rows, self.ends)
        those = vectors.table(part=self.starts), vectors.table(part=self.ends)
        if self.kind == "euclidean":
            plain: Block = np.sqrt(squared_distances(some[1], those[1], same=False, own=rows))
            return plain
        if self.kind == "cosine":
            return _cosine_of_steps(vectors, rows, self.starts, self.ends)
        between = dcfl_between if self.kind == "complete" else divergence_between
        return between(*some, *those, own=rows)


def model_measure(name: str, layout: Layout, own: Callable[..., np.ndarray]) -> Measure:
    """Return the measure of models with this name; for another name, the function `own`."""
    named: dict[str, Callable[[Layout], Measure]] = {
        "trusted": TrustedDistance,
        "euclidean": EuclideanDistance,
        "cosine": CosineDistance,
    }
    return named[name](layout) if name in named else OwnDistance(own, layout)


def _direction(vectors: ClientVectors, layout: Layout) -> slice:
    """Return the trainable columns of a vector; all columns of a sketch."""
    width = vectors.table().shape[1]
    return layout.direction if vectors.backend.whole else slice(0, width)


def _cosine_of_steps(vectors: ClientVectors, rows: Labels, starts: slice, ends: slice) -> Block:
    """Return `1 - cos` of the steps from start to end."""
    products = np.zeros((len(rows), len(vectors)))
    squares = np.zeros(len(vectors))
    every = np.arange(len(vectors))
    for part in blocks(starts.stop, len(vectors)):
        there = slice(ends.start + part.start, ends.start + part.stop)
        steps = vectors.read(every, there).astype(float) - vectors.read(every, part)
        squares += np.einsum("nd,nd->n", steps, steps)
        products += steps[rows] @ steps.T
    lengths = np.sqrt(squares)
    return 2.0 - shifted_cosine(products, lengths[rows], lengths)
