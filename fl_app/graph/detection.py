"""Methods that find communities in a graph: by modularity, exemplars, merges or a cut."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from fl_app.aggregation import lower_median
from fl_app.graph.bipartition import bipartition
from fl_app.graph.client_graph import ClientGraph, Weigh
from fl_app.graph.communities import (
    CommunityDetection,
    Linkage,
    affinity_propagation,
    agglomerative,
    apart,
    density,
    louvain,
    sparse_communities,
)
from fl_app.graph.contrast import contrast, halves
from fl_app.graph.descriptors import knee, usual
from fl_app.graph.normalised import nearness, normalised_similarity, sets_scale
from fl_app.graph.significant import Partition, significant
from fl_app.types import Labels, Matrix


@dataclass(frozen=True)
class ByModularity:
    """Louvain or Leiden: see `louvain`.

    It uses the values of the measure, or, with an `exponent`, the normalised similarity of its
    distances. With `heed_odd`, clients out of scale whose last update was odd do not affect the
    normalisation, nor the communities of the others: see `apart`. With more than `sparse_above`
    clients, it uses the graph of their nearest `neighbours` and scikit-network, since
    python-louvain takes seconds from a thousand clients on.
    """

    how: CommunityDetection
    exponent: float | None = None
    heed_odd: bool = True

    def __call__(self, graph: ClientGraph, among: Labels) -> Labels:
        """Return the communities (m,)."""
        how, counted = self.how, self._counted(graph, among)
        if len(among) <= how.sparse_above:
            find = partial(louvain, backend=how.backend, resolution=how.resolution, seed=how.seed)
            return apart(self.similarity(graph, among), counted, find)
        weigh = None if self.exponent is None else self._weigh(graph, among, self.exponent, counted)
        edges = graph.nearest(how.neighbours, among, weigh=weigh)
        quick = partial(
            sparse_communities, backend=how.quick, resolution=how.resolution, seed=how.seed
        )
        return apart(edges, counted, quick)

    def similarity(self, graph: ClientGraph, among: Labels) -> Matrix:
        """Return the values of the measure, or their normalised similarity (m, m)."""
        values = graph.values(among)
        if self.exponent is None:
            return values
        odd = graph.vectors.odd(among) if self.heed_odd else None
        return normalised_similarity(values.astype(np.float64), exponent=self.exponent, odd=odd)

    def _counted(self, graph: ClientGraph, among: Labels) -> np.ndarray:
        """Return which of these clients (m,) affect the normalisation."""
        odd = graph.vectors.odd(among)
        if self.exponent is None or not self.heed_odd or not odd.any():
            return np.ones(len(among), bool)
        return sets_scale(graph.values(among), odd)

    def _weigh(
        self, graph: ClientGraph, among: Labels, exponent: float, counted: np.ndarray
    ) -> Weigh:
        """Return the function from distances of these clients to normalised similarities."""
        low, high = graph.extremes(among, counted)
        return lambda distances: nearness(distances, low, high) ** exponent


@dataclass(frozen=True)
class BySignificance:
    """Communities of a partition in cosines, without splits that noise would give: `significant`.

    `partition` returns the one for a number of clients. Clients that differ only by degrees are not
    split either: see `gap`.
    The threshold grows with the `number` of this test of the clients, from 1 on. None: they are
    tested after every round, and it grows with the rounds.
    """

    partition: Callable[[int], Partition]
    number: Callable[[], int] | None = None

    def __call__(self, graph: ClientGraph, among: Labels) -> Labels:
        """Return the communities (m,)."""
        # a round without a vector is no test, so the last round is at least the number of tests
        last = int(graph.vectors.rounds().max(initial=1))
        look = last if self.number is None else self.number()
        size = max(1, graph.vectors.length)
        return significant(
            self._cosines(graph, among),
            self.partition(len(among)),
            look=look,
            parameters=size,
            lengths=graph.vectors.mean_norms(among),
        )

    def similarity(self, graph: ClientGraph, among: Labels) -> Matrix:
        """Return the positive part of the cosines of centred vectors (m, m)."""
        return contrast(self._cosines(graph, among))

    def _cosines(self, graph: ClientGraph, among: Labels) -> Matrix:
        values = graph.values(among).astype(np.float64)
        np.fill_diagonal(values, graph.vectors.norms(among) > 0)
        return values


@dataclass(frozen=True)
class BySignificantCut(BySignificance):
    """The two parts of these communities that are least alike: see `halves`."""

    def __call__(self, graph: ClientGraph, among: Labels) -> Labels:
        """Return the part (m,) of each client; one part if no split is significant."""
        return halves(self._cosines(graph, among), super().__call__(graph, among))


@dataclass(frozen=True, kw_only=True)
class ByExemplars:
    """Affinity propagation: see `affinity_propagation`."""

    damping: float
    preference: float | None
    seed: int

    def __call__(self, graph: ClientGraph, among: Labels) -> Labels:
        """Return the communities (m,)."""
        distance = graph.values(among).astype(np.float64)
        return affinity_propagation(
            distance, damping=self.damping, preference=self.preference, seed=self.seed
        )

    def similarity(self, graph: ClientGraph, among: Labels) -> None:
        """Return None, since it uses distances."""


@dataclass(frozen=True, kw_only=True)
class ByMerging:
    """Agglomerative clustering: see `agglomerative`."""

    threshold: float
    linkage: Linkage

    def __call__(self, graph: ClientGraph, among: Labels) -> Labels:
        """Return the communities (m,)."""
        return agglomerative(graph.values(among), threshold=self.threshold, linkage=self.linkage)

    def similarity(self, graph: ClientGraph, among: Labels) -> None:
        """Return None, since it uses distances."""


@dataclass(frozen=True, kw_only=True)
class ByDensity:
    """DBSCAN: see `density`.

    With the radius `knee` it is `scale` times the `knee` of the `usual` distances of clients to the
    nearest other client, or their lower median if that is more: a few clients that are far from all
    others, or send the same vector, do not set it.
    """

    radius: float | Literal["knee"]
    scale: float

    def __call__(self, graph: ClientGraph, among: Labels) -> Labels:
        """Return the communities (m,)."""
        distance = graph.values(among)
        return density(distance, radius=self._radius(distance))

    def similarity(self, graph: ClientGraph, among: Labels) -> None:
        """Return None, since it uses distances."""

    def _radius(self, distance: Matrix) -> float:
        if self.radius != "knee":
            return self.radius
        if len(distance) < 2:
            return 0.0
        # row by row: a copy without the diagonal would be as large as the matrix
        every = [np.delete(row, own).min() for own, row in enumerate(distance)]
        nearest = usual(np.array(every, np.float64))
        return self.scale * max(knee(nearest), lower_median(nearest))


@dataclass(frozen=True)
class ByCut:
    """The bipartition with the smallest maximal cross similarity: see `bipartition`."""

    def __call__(self, graph: ClientGraph, among: Labels) -> Labels:
        """Return the part (m,) of each client."""
        return bipartition(graph.matrix(), among)[0]

    def similarity(self, graph: ClientGraph, among: Labels) -> Matrix:
        """Return the values of the measure (m, m)."""
        return graph.values(among)
