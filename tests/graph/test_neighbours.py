"""Nearest neighbours: kept up to date, the same as computed from nothing."""

import numpy as np
import pytest

from fl_app.evaluation.agreement import adjusted_rand
from fl_app.graph.communities import CommunityDetection, find
from fl_app.graph.neighbours import nearest
from fl_app.graph.store import UpdateStore


def _update(client: int, round: int, groups: int = 4) -> np.ndarray:
    centre = np.random.default_rng(client % groups).normal(size=60)
    noise = np.random.default_rng((client, round)).normal(size=60)
    return (centre + noise).astype(np.float32)


def test_lists_after_changes_equal_lists_from_nothing() -> None:
    store, draw = UpdateStore(), np.random.default_rng(0)
    for round in range(1, 40):
        for client in draw.choice(50, 4, replace=False).tolist():
            store.put(client, _update(client, round), round)
        ids, graph = store.nearest(5)
        _, matrix = store.similarity()
        expected = np.zeros_like(matrix)
        lists = nearest(matrix, np.arange(len(ids)), min(5, len(ids) - 1))
        for row, columns in enumerate(lists):
            expected[row, columns] = matrix[row, columns]
        expected = np.maximum(expected, expected.T)
        np.testing.assert_array_equal(graph.toarray(), expected)


def test_of_equal_entries_the_first_are_taken_and_never_oneself() -> None:
    assert nearest(np.ones((4, 4)), np.arange(4), 2).tolist() == [[1, 2], [0, 2], [0, 1], [0, 1]]
    assert nearest(np.zeros((1, 1)), np.arange(1), 0).shape == (1, 0)


@pytest.mark.parametrize("backend", ["python-louvain", "leiden"])
@pytest.mark.parametrize("groups", [2, 5])
def test_sparse_and_dense_graphs_give_the_same_communities(groups: int, backend: str) -> None:
    store = UpdateStore()
    for client in range(120):
        store.put(client, _update(client, 0, groups), 1)
    dense = find(store, CommunityDetection(backend=backend))
    sparse = find(store, CommunityDetection(backend=backend, sparse_above=100, neighbours=12))
    assert adjusted_rand(dense, np.arange(120) % groups) == 1.0
    np.testing.assert_array_equal(dense, sparse)


def test_few_clients_have_fewer_neighbours() -> None:
    store = UpdateStore()
    for client, found in ((9, [0]), (4, [0, 0])):
        store.put(client, _update(0, 0), 1)
        assert find(store, CommunityDetection(sparse_above=0)).tolist() == found
