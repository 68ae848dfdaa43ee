"""Nearest neighbours: kept up to date, the same as computed from nothing."""

from dataclasses import replace

import numpy as np
import pytest

from fl_app.config import load
from fl_app.evaluation.agreement import adjusted_rand
from fl_app.graph.client_graph import ClientGraph
from fl_app.graph.detection import ByModularity
from fl_app.graph.measures import EuclideanDistance, Measure, ShiftedCosine
from fl_app.graph.neighbours import neighbour_lists
from fl_app.params import Layout
from fl_app.server_wiring import detection


def _update(client: int, round: int, groups: int = 4) -> np.ndarray:
    centre = np.random.default_rng(client % groups).normal(size=60)
    noise = np.random.default_rng((client, round)).normal(size=60)
    return (centre + noise).astype(np.float32)


DETECTION = detection(load([]))


def _graph(measure: Measure | None = None, **how: object) -> ClientGraph:
    return ClientGraph(measure or ShiftedCosine(), ByModularity(replace(DETECTION, **how)))


DISTANCE = EuclideanDistance(Layout(("w",), ((6, 10),), 1))


@pytest.mark.parametrize("measure", [ShiftedCosine(), DISTANCE])
def test_lists_after_changes_equal_lists_from_nothing(measure: Measure) -> None:
    graph, draw = _graph(measure), np.random.default_rng(0)
    for round in range(1, 40):
        for client in draw.choice(50, 4, replace=False).tolist():
            graph.put(client, _update(client, round), round)
        edges, matrix = graph.nearest(5), graph.values()
        expected = np.zeros_like(matrix)
        width, smallest = min(5, len(graph) - 1), measure.of_distance
        lists = neighbour_lists(matrix, np.arange(len(graph)), width, smallest=smallest)
        for row, columns in enumerate(lists):
            expected[row, columns] = matrix[row, columns]
        expected = np.maximum(expected, expected.T)
        np.testing.assert_array_equal(edges.toarray(), expected)
        among = graph.vectors.order[::2]
        some = graph.nearest(5, among).toarray()
        alone = matrix[::2, ::2]
        kept = neighbour_lists(
            alone, np.arange(len(among)), min(5, len(among) - 1), smallest=smallest
        )
        assert all(some[row, columns].all() for row, columns in enumerate(kept))
        assert (some[some > 0] == alone[some > 0]).all()


def test_of_equal_entries_the_first_are_taken_and_never_oneself() -> None:
    for smallest in (False, True):
        found = neighbour_lists(np.ones((4, 4)), np.arange(4), 2, smallest=smallest)
        assert found.tolist() == [[1, 2], [0, 2], [0, 1], [0, 1]]
    assert neighbour_lists(np.zeros((1, 1)), np.arange(1), 0).shape == (1, 0)


@pytest.mark.parametrize("backend", ["python-louvain", "leiden"])
@pytest.mark.parametrize("groups", [2, 5])
@pytest.mark.parametrize("exponent", [None, 3.0])
def test_sparse_and_dense_graphs_give_the_same_communities(
    groups: int, backend: str, exponent: float | None
) -> None:
    measure = ShiftedCosine() if exponent is None else DISTANCE
    graph = _graph(measure)
    for client in range(120):
        graph.put(client, _update(client, 0, groups), 1, odd=client % 7 == 0)
    dense, sparse = (
        ByModularity(replace(DETECTION, backend=backend, **more), exponent)(
            graph, graph.vectors.order
        )
        for more in ({}, {"sparse_above": 100, "neighbours": 12})
    )
    np.testing.assert_array_equal(dense, sparse)
    assert adjusted_rand(dense, np.arange(120) % groups) == 1.0


def test_few_clients_have_fewer_neighbours() -> None:
    graph = _graph(sparse_above=0)
    for client, found in ((9, [0]), (4, [0, 0])):
        graph.put(client, _update(0, 0), 1)
        assert graph.labels().tolist() == found
