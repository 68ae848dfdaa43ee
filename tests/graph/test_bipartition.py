"""The bipartition with the least largest cross similarity, against all there are."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_app.graph.bipartition import bipartition, mean_similarities, norm_of_mean


def _cross(similarity: np.ndarray, labels: np.ndarray) -> float:
    return float(similarity[np.ix_(labels == 0, labels == 1)].max())


def _least(similarity: np.ndarray) -> float:
    n = len(similarity)
    parts = (np.array((0, *rest)) for rest in product((0, 1), repeat=n - 1))
    return min(_cross(similarity, labels) for labels in parts if labels.any())


@given(st.integers(0, 2**31), st.integers(2, 9), st.booleans())
def test_it_is_the_best_of_all(seed: int, n: int, ties: bool) -> None:
    draw = np.random.default_rng(seed)
    matrix = draw.integers(-3, 4, (n, n)) / 3 if ties else draw.uniform(-1, 1, (n, n))
    similarity = (matrix + matrix.T) / 2
    labels, alpha = bipartition(similarity)
    assert alpha == _cross(similarity, labels)
    np.testing.assert_allclose(alpha, _least(similarity))
    assert (labels == 0).sum() >= (labels == 1).sum() > 0


def test_twelve_clients_against_all_2047_bipartitions() -> None:
    for seed in range(3):
        updates = np.random.default_rng(seed).normal(size=(12, 5))
        unit = updates / np.linalg.norm(updates, axis=1, keepdims=True)
        similarity = unit @ unit.T
        assert bipartition(similarity)[1] == pytest.approx(_least(similarity))


def test_two_opposed_groups_are_told_apart() -> None:
    groups = np.array([0, 1, 0, 0, 1])
    similarity = np.where(groups[:, None] == groups, 0.9, -0.8)
    labels, alpha = bipartition(similarity)
    assert labels.tolist() == groups.tolist()
    assert alpha == -0.8


def test_one_client_has_no_parts() -> None:
    with pytest.raises(ValueError, match="needs at least 2 clients, got 1"):
        bipartition(np.ones((1, 1)))


class _Counted(np.ndarray):
    """A matrix that counts the numbers that are read from it."""

    read = 0

    def __getitem__(self, key: Any) -> Any:
        found = self.view(np.ndarray)[key]
        _Counted.read += np.size(found)
        return found


def test_the_cut_reads_each_similarity_once_and_the_edges_of_the_tree_again() -> None:
    n = 300
    groups = np.arange(n) % 2
    similarity = np.where(groups[:, None] == groups, 0.9, -0.8).astype(np.float32)
    _Counted.read = 0
    labels, alpha = bipartition(similarity.view(_Counted))
    assert _Counted.read == n * n + n - 1
    assert labels.tolist() == groups.tolist()
    assert alpha == np.float32(-0.8)


def test_some_rows_are_cut_as_a_matrix_of_their_own() -> None:
    draw = np.random.default_rng(0)
    matrix = draw.normal(size=(9, 9))
    matrix += matrix.T
    among = np.array([7, 2, 5, 0])
    labels, alpha = bipartition(matrix, among)
    alone = bipartition(matrix[np.ix_(among, among)])
    assert (labels.tolist(), alpha) == (alone[0].tolist(), alone[1])


def test_mean_similarities_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fl_app.graph.bipartition.BLOCK_ROWS", 2)
    matrix = np.array([[9, 1, 2, 3], [1, 9, 4, 5], [2, 4, 9, 6], [3, 5, 6, 9.0]])
    assert mean_similarities(matrix, np.array([0, 0, 1, 1])) == ((1 + 6) / 2, (2 + 3 + 4 + 5) / 4)
    assert mean_similarities(matrix, np.array([0, 0, 1]), np.array([0, 3, 1])) == (3, 3.0)
    inside, across = mean_similarities(matrix, np.array([0, 1]), np.array([0, 1]))
    assert np.isnan(inside)
    assert across == 1.0


@given(st.integers(0, 2**31), st.integers(1, 300))
def test_the_norm_of_a_mean_comes_from_cosines_and_norms(seed: int, n: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(n, 4)) + 0.2
    norms = np.linalg.norm(vectors, axis=1)
    shifted = 1.0 + (vectors @ vectors.T) / np.outer(norms, norms)
    np.fill_diagonal(shifted, 0.0)
    found = norm_of_mean(shifted, norms, np.arange(n))
    np.testing.assert_allclose(found, np.linalg.norm(vectors.mean(axis=0)), rtol=1e-6, atol=1e-7)
