"""FLIC similarity: literals, invariants, degenerate updates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fl_app.graph.similarity import flic_similarity

UPDATES = arrays(np.float32, (5, 3), elements=st.floats(-8, 8, width=16))


def test_orthogonal_opposite_and_equal_directions() -> None:
    updates = np.array([[3, 0], [0, 2], [-1, 0], [5, 0]], np.float32)
    expected = [[0, 1, 0, 2], [1, 0, 1, 1], [0, 1, 0, 0], [2, 1, 0, 0]]
    np.testing.assert_allclose(flic_similarity(updates), expected, atol=1e-7)


@given(UPDATES, st.permutations(range(5)))
def test_relabelling_clients_permutes_the_matrix(updates: np.ndarray, order: list[int]) -> None:
    expected = flic_similarity(updates)[np.ix_(order, order)]
    np.testing.assert_allclose(flic_similarity(updates[order]), expected, atol=1e-6)


@given(UPDATES, st.floats(0.5, 100))
def test_length_does_not_matter_and_values_stay_in_range(updates: np.ndarray, scale: float) -> None:
    matrix = flic_similarity(updates)
    np.testing.assert_allclose(
        matrix, flic_similarity((updates * scale).astype(np.float32)), atol=1e-4
    )
    assert (matrix >= 0).all()
    assert (matrix <= 2).all()
    np.testing.assert_array_equal(matrix, matrix.T)


def test_a_client_that_did_not_move_has_no_direction() -> None:
    updates = np.array([[1, 0], [0, 0]], np.float32)
    np.testing.assert_array_equal(flic_similarity(updates), [[0, 1], [1, 0]])


def test_updates_that_are_not_finite_are_refused_by_row() -> None:
    with pytest.raises(ValueError, match="got nan for update 1"):
        flic_similarity(np.array([[1, 0], [np.nan, 0]], np.float32))


@pytest.mark.parametrize("far", [1e7, 9e17])
def test_a_far_update_disturbs_no_other_pair(far: float) -> None:
    updates = np.random.default_rng(0).normal(size=(6, 400)).astype(np.float32)
    alone = flic_similarity(updates[1:])
    updates[0] *= far / np.linalg.norm(updates[0])
    with np.errstate(over="raise", invalid="raise"):
        found = flic_similarity(updates)
    np.testing.assert_allclose(found[1:, 1:], alone, atol=1e-6)
    assert np.isfinite(found).all()
