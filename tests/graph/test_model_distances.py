"""Distances of models: hand-worked values, invariants, and rows that hold anything finite."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_app.graph.measures import model_measure
from fl_app.graph.similarity import (
    DISTANCES,
    FARTHEST,
    ModelDistance,
    ignored,
    trusted_between,
    trusted_distance,
)
from fl_app.graph.vectors import ClientVectors
from fl_app.params import Layout

LAYOUT = Layout(("first", "bias", "second"), ((1, 2), (2,), (1, 1)), 3)


def test_each_named_distance_has_its_function() -> None:
    assert set(DISTANCES) == set(get_args(ModelDistance))


@pytest.mark.parametrize("name", list(DISTANCES))
def test_the_measure_of_a_name_gives_its_distance(name: str) -> None:
    models = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    vectors = ClientVectors()
    for client, model in enumerate(models):
        vectors.put(client, model, 1)
    found = model_measure(name, LAYOUT, DISTANCES[name]).rows(vectors, np.arange(6))
    expected = DISTANCES[name](models, models, LAYOUT)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


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
    models[1, ignored(LAYOUT)] = 1e9
    found = trusted_distance(models, LAYOUT)
    np.testing.assert_allclose(found, [[0, expected], [expected, 0]], rtol=1e-6)
    assert ignored(LAYOUT).tolist() == [2, 3]


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


def test_a_layer_of_zeros_is_measured_by_the_norm_of_the_other() -> None:
    # first layer: ratio 1 both ways; second: |2 - 1| / 2 there, |1 - 2| / 1 back
    models = _models([0, 0, 9, 9, 2], [3, 4, 0, 0, 1])
    there, back = 2 * (1 + 1 / 2) - 1, 2 * (1 + 1) - 1
    np.testing.assert_allclose(trusted_distance(models, LAYOUT)[0, 1], (there + back) / 2)
    # zero in both is no difference: what is left is the second layer
    models = _models([0, 0, 0, 0, 2], [0, 0, 0, 0, 1])
    np.testing.assert_allclose(trusted_distance(models, LAYOUT)[0, 1], (1 / 2 + 1) / 2)


def test_a_model_of_zeros_is_far_from_all_but_its_own_kind() -> None:
    models = _models([0, 0, 0, 0, 0], [3, 4, 0, 0, 1], [3, 4.5, 0, 0, 1.1], [0, 0, 1, 1, 0])
    found = trusted_distance(models, LAYOUT)
    np.testing.assert_allclose(found[0], [0, 3, 3, 0])
    assert found[1, 2] < 0.5


def test_a_distance_that_would_overflow_ends_at_the_farthest() -> None:
    names = tuple(f"layer {i}" for i in range(40))
    layout = Layout(names, ((1, 1),) * 40, 40)
    honest = np.random.default_rng(0).normal(1, 0.1, (4, 40)).astype(np.float32)
    models = np.concatenate([honest, 1e9 * honest[:1]]).astype(np.float32)
    with np.errstate(over="raise", invalid="raise"):
        found = trusted_distance(models, layout)
    # back, |b - a| / |b| is 1 for each layer: 2^40; there it is 1e9 for each, which saturates
    np.testing.assert_allclose(found[4, :4], FARTHEST / 2)
    np.testing.assert_allclose(found[:4, :4], trusted_distance(honest, layout), rtol=1e-6)


@given(
    st.integers(0, 2**31),
    st.lists(st.sampled_from([0.0, 1e-30, 1e-6, 1.0, -1.0, 1e7, 4e17]), min_size=1, max_size=6),
)
@pytest.mark.parametrize("name", list(DISTANCES))
def test_every_finite_model_has_a_distance(name: str, seed: int, factors: list[float]) -> None:
    models = np.random.default_rng(seed).uniform(-1, 1, (len(factors), 5))
    models = (models * np.array(factors)[:, None]).astype(np.float32)
    with np.errstate(over="raise", invalid="raise"):
        found = DISTANCES[name](models, models, LAYOUT)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    np.testing.assert_allclose(found, found.T, rtol=1e-6)


@pytest.mark.parametrize("far", [1e7, 4e17, 0.0, -1.0])
@pytest.mark.parametrize("name", list(DISTANCES))
def test_honest_distances_are_those_without_the_far_rows(name: str, far: float) -> None:
    draw = np.random.default_rng(0)
    layout = Layout(("a", "b"), ((4, 50), (3, 30)), 2)
    honest = draw.normal(size=290) + draw.normal(0, 1e-3, (6, 290))
    wild = far * honest[:2] if far else np.zeros((2, 290))
    models = np.concatenate([wild, honest]).astype(np.float32)
    found = DISTANCES[name](models, models, layout)[2:, 2:]
    alone = DISTANCES[name](models[2:], models[2:], layout)
    tolerance = 1e-6 if name == "cosine" else 0.0
    np.testing.assert_allclose(found, alone, rtol=1e-6, atol=tolerance)


def test_long_float32_models_a_hair_apart_beside_a_far_one() -> None:
    draw = np.random.default_rng(0)
    length = 1_000_000
    layout = Layout(("w",), ((1000, 1000),), 1)
    models = np.ones((3, length), np.float32)
    models[1, :4] += np.float32(2**-10)
    models[2] = 1e12 * draw.normal(size=length)
    found = DISTANCES["euclidean"](models, models, layout)
    np.testing.assert_allclose(found[0, 1], 2 * 2**-10, rtol=1e-9)
    trusted = trusted_distance(models, layout)
    there, back = 2 * 2**-10 / 1000, 2 * 2**-10 / np.linalg.norm(models[1].astype(float))
    np.testing.assert_allclose(trusted[0, 1], (there + back) / 2, rtol=1e-8)


@pytest.mark.parametrize("name", ["euclidean", "cosine"])
def test_other_distances_by_hand(name: str) -> None:
    models = _models([3, 4, 0, 0, 0], [0, 5, 0, 0, 0])
    expected = {"euclidean": np.sqrt(10), "cosine": 1 - 0.8}[name]
    np.testing.assert_allclose(DISTANCES[name](models, models, LAYOUT)[0, 1], expected, rtol=1e-6)
