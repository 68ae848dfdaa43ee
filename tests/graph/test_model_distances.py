"""Distances of models and normalised similarity: hand-worked values and invariants."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_app.graph.similarity import (
    DISTANCES,
    normalised_similarity,
    trusted_between,
    trusted_distance,
)
from fl_app.params import Layout

LAYOUT = Layout(("first", "bias", "second"), ((1, 2), (2,), (1, 1)), 3)


def _models(*rows: list[float]) -> np.ndarray:
    return np.array(rows, np.float32)


def _direct(models: np.ndarray) -> np.ndarray:
    """The paper's formula, pair by pair and layer by layer."""
    parts = (slice(0, 2), slice(4, 5))
    n = len(models)
    found = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            terms = [
                1 + np.linalg.norm(models[i, p] - models[j, p]) / np.linalg.norm(models[i, p])
                for p in parts
            ]
            found[i, j] = np.prod(terms) - 1
    return (found + found.T) / 2


def test_trusted_distance_by_hand() -> None:
    models = _models([3, 4, 9, 9, 2], [3, 0, -5, 7, 1])
    there, back = (1 + 4 / 5) * (1 + 1 / 2) - 1, (1 + 4 / 3) * (1 + 1 / 1) - 1
    expected = (there + back) / 2
    np.testing.assert_allclose(
        trusted_distance(models, LAYOUT), [[0, expected], [expected, 0]], rtol=1e-6
    )


@given(st.integers(0, 2**31), st.integers(1, 7), st.floats(0.01, 100))
def test_trusted_distance_is_the_formula_at_any_scale(seed: int, n: int, scale: float) -> None:
    models = np.random.default_rng(seed).normal(size=(n, 5)).astype(np.float32)
    found = trusted_distance(models, LAYOUT)
    np.testing.assert_allclose(found, _direct(models.astype(float)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found, found.T)
    scaled = trusted_distance(models * np.float32(scale), LAYOUT)
    np.testing.assert_allclose(scaled, found, rtol=1e-4, atol=1e-6)


def test_models_that_are_nearly_the_same_are_told_apart() -> None:
    model = np.full(5, 1000.0, np.float32)
    near = model.copy()
    near[0] += 0.125
    found = trusted_between(model[None], near[None], LAYOUT)
    np.testing.assert_allclose(found, [[0.125 / (1000 * np.sqrt(2))]], rtol=1e-3)


def test_a_hundred_layers_do_not_overflow_on_the_way() -> None:
    names = tuple(f"layer {i}" for i in range(100))
    layout = Layout(names, ((1, 1),) * 100, 100)
    models = np.stack([np.ones(100), np.full(100, 1.5)]).astype(np.float32)
    expected = (1.5**100 + (4 / 3) ** 100) / 2 - 1
    np.testing.assert_allclose(trusted_distance(models, layout)[0, 1], expected, rtol=1e-4)


def test_biases_and_buffers_do_not_count() -> None:
    layout = Layout(("w", "b", "running_mean"), ((1, 2), (1,), (1, 2)), 2)
    models = _models([1, 2, 5, 0, 0], [1, 2, -7, 9, 9])
    np.testing.assert_allclose(trusted_distance(models, layout), np.zeros((2, 2)), atol=1e-7)


def test_a_layer_without_length_is_named() -> None:
    models = _models([3, 4, 0, 0, 2], [3, 4, 1, 1, 0])
    with pytest.raises(ValueError, match="'second' of model 1 is all zero"):
        trusted_distance(models, LAYOUT)


@pytest.mark.parametrize("name", ["euclidean", "cosine"])
def test_other_distances_by_hand(name: str) -> None:
    models = _models([3, 4, 0, 0, 0], [0, 5, 0, 0, 0])
    expected = {"euclidean": np.sqrt(10), "cosine": 1 - 0.8}[name]
    np.testing.assert_allclose(DISTANCES[name](models, models, LAYOUT)[0, 1], expected, rtol=1e-6)


def test_normalised_similarity_by_hand() -> None:
    distance = np.array([[0.0, 1, 2], [1, 0, 3], [2, 3, 0]])
    expected = np.array([[0.0, 1, 0.125], [1, 0, 0], [0.125, 0, 0]])
    np.testing.assert_allclose(normalised_similarity(distance), expected)
    np.testing.assert_allclose(normalised_similarity(distance, exponent=1.0)[0], [0, 1, 0.5])


def test_equal_distances_are_all_similar_and_one_client_has_no_pair() -> None:
    equal = 0.7 * (1 - np.eye(3))
    np.testing.assert_array_equal(normalised_similarity(equal), 1 - np.eye(3))
    np.testing.assert_array_equal(normalised_similarity(np.zeros((1, 1))), [[0.0]])
    with pytest.raises(ValueError, match="exponent must be positive, got 0"):
        normalised_similarity(equal, exponent=0.0)
