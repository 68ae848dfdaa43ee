"""The bipartition with the least largest cross similarity, against all there are."""

from itertools import product
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_app.graph.communities import bipartition


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


def test_two_thousand_clients_are_cut_in_a_moment() -> None:
    groups = np.arange(2000) % 2
    similarity = np.where(groups[:, None] == groups, 0.9, -0.8).astype(np.float32)
    began = perf_counter()
    labels, alpha = bipartition(similarity)
    assert perf_counter() - began < 2.0
    assert labels.tolist() == groups.tolist()
    assert alpha == np.float32(-0.8)
