"""Louvain: planted graphs, both backends, direction of resolution, degenerate matrices."""

import ctypes
from functools import partial
from typing import get_args

import numpy as np
import pytest
from scipy import sparse

from fl_app.evaluation.agreement import adjusted_rand
from fl_app.graph import communities
from fl_app.graph.communities import canonical
from fl_app.graph.validity import modularity, silhouette
from fl_app.types import Backend

BACKENDS = get_args(Backend)
louvain = partial(communities.louvain, resolution=1.0, seed=0, backend="python-louvain")
agglomerative = partial(communities.agglomerative, linkage="average")


def _planted(groups: np.ndarray, seed: int, inside: float = 1.6, across: float = 1.0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0, 0.05, (len(groups), len(groups)))
    matrix = np.where(groups[:, None] == groups, inside, across) + (noise + noise.T) / 2
    np.fill_diagonal(matrix, 0)
    return matrix


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [2, 4, 5])
def test_both_backends_find_the_planted_groups(count: int, seed: int) -> None:
    groups = np.arange(60) % count
    matrix = _planted(groups, seed)
    plain, *others = (louvain(matrix, seed=seed, backend=backend) for backend in BACKENDS)
    assert adjusted_rand(plain, groups) == 1.0
    for labels in others:
        np.testing.assert_array_equal(plain, labels)


@pytest.mark.parametrize("backend", BACKENDS)
def test_higher_resolution_gives_more_communities(backend: str) -> None:
    triangle = np.array([[0, 1.1, 1.72], [1.1, 0, 1.07], [1.72, 1.07, 0]])
    found = [louvain(triangle, resolution=r, backend=backend).tolist() for r in (1.0, 1.5, 2.0)]
    assert found == [[0, 0, 0], [0, 1, 0], [0, 1, 2]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_relabelling_clients_relabels_the_communities(backend: str) -> None:
    groups = np.array([0, 1, 2, 0, 1, 2, 0, 1, 0])
    order = np.random.default_rng(3).permutation(9)
    matrix = _planted(groups, 1)
    moved = louvain(matrix[np.ix_(order, order)], backend=backend)
    np.testing.assert_array_equal(moved, canonical(louvain(matrix, backend=backend)[order]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_degenerate_graphs_are_defined(backend: str) -> None:
    assert louvain(np.zeros((1, 1)), backend=backend).tolist() == [0]
    assert louvain(np.zeros((3, 3)), backend=backend).tolist() == [0, 1, 2]
    assert louvain(np.array([[0, 2.0], [2.0, 0]]), backend=backend).tolist() == [0, 0]
    assert louvain(np.ones((5, 5)), backend=backend).tolist() == [0] * 5


def test_labels_are_canonical() -> None:
    assert canonical(np.array([7, 3, 3, 9, 9, 3])).tolist() == [2, 0, 0, 1, 1, 0]
    assert canonical(np.array([5, 4])).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("matrix", "resolution", "message"),
    [
        (np.ones((2, 2)), 0.0, "resolution must be positive, got 0.0"),
        (np.array([[0, 1.0], [2.0, 0]]), 1.0, "must be symmetric"),
        (np.array([[0, -1.0], [-1.0, 0]]), 1.0, "must be non-negative, got -1.0"),
        (np.ones((0, 0)), 1.0, "not empty"),
    ],
)
def test_matrices_that_are_no_graph_are_refused(
    matrix: np.ndarray, resolution: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        louvain(matrix, resolution=resolution)


def test_modularity_of_two_pairs_by_hand() -> None:
    # two edges of weight 1: each community has e = 1/2 and a = 1/2, so Q = 2 (1/2 - 1/4)
    pairs = np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], float)
    assert modularity(pairs, np.array([0, 0, 1, 1])) == pytest.approx(0.5)
    assert modularity(pairs, np.array([0, 0, 0, 0])) == pytest.approx(0.0)
    assert modularity(pairs, np.array([0, 0, 1, 1]), resolution=2.0) == pytest.approx(0.0)


def test_silhouette_by_hand_and_where_it_is_undefined() -> None:
    # points 0, 1 | 10: s = (9.5 - 1)/..., computed from a = 1, b = 10 and 9; a singleton scores 0
    distance = np.abs(np.subtract.outer([0.0, 1.0, 10.0], [0.0, 1.0, 10.0]))
    assert silhouette(distance, np.array([0, 0, 1])) == pytest.approx((0.9 + 8 / 9 + 0) / 3)
    assert silhouette(distance, np.array([0, 0, 0])) is None
    assert silhouette(distance, np.array([0, 1, 2])) is None


def test_agglomerative_by_hand() -> None:
    # on a line at 0, 1, 3, 10
    places = np.array([0.0, 1.0, 3.0, 10.0])
    distance = np.abs(places[:, None] - places[None, :])
    assert agglomerative(distance, threshold=0.5).tolist() == [0, 1, 2, 3]
    assert agglomerative(distance, threshold=1.5).tolist() == [0, 0, 1, 2]
    assert agglomerative(distance, threshold=2.1, linkage="single").tolist() == [0, 0, 0, 1]
    assert agglomerative(distance, threshold=2.1, linkage="complete").tolist() == [0, 0, 1, 2]
    assert agglomerative(distance, threshold=20.0).tolist() == [0, 0, 0, 0]
    assert agglomerative(np.zeros((1, 1)), threshold=1.0).tolist() == [0]
    with pytest.raises(ValueError, match="threshold must be at least 0, got -1"):
        agglomerative(distance, threshold=-1.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_communities_depend_on_the_seed_and_on_nothing_drawn_before(backend: Backend) -> None:
    noise = np.random.default_rng(0).normal(size=(8, 60, 60))
    graphs = [np.clip(each + each.T, 0.0, None) * (1 - np.eye(60)) for each in noise]

    def found() -> list[list[int]]:
        dense = [louvain(graph, seed=4, backend=backend).tolist() for graph in graphs]
        if backend == "python-louvain":
            return dense
        many = partial(communities.sparse_communities, resolution=1.0, seed=4, backend=backend)
        return dense + [many(sparse.csr_matrix(graph)).tolist() for graph in graphs]

    first = found()
    np.random.rand()
    ctypes.CDLL(None).rand()  # Leiden of scikit-network draws with it
    assert found() == first


@pytest.mark.parametrize("seed", range(3))
def test_a_dense_matrix_has_the_communities_of_its_sparse_graph(seed: int) -> None:
    noise = np.random.default_rng(seed).normal(size=(150, 150))
    matrix = np.clip(noise + noise.T, 0.0, None)
    edges = sparse.csr_matrix(matrix - np.diag(np.diag(matrix)))
    found = louvain(matrix, seed=seed, backend="fast")
    same = communities.sparse_communities(edges, resolution=1.0, seed=seed, backend="fast")
    np.testing.assert_array_equal(found, same)
    assert 1 < found.max() + 1 < 150
