"""Aggregation rules on literals, beside slow references, and with members that hold anything."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fl_app.aggregation import (
    COLUMNS,
    Rule,
    dominant,
    geometric_median,
    keep_equal,
    lower_median,
    median,
    sample_weights,
    weighted_mean,
)
from fl_app.attribution import mixed

MIXED: Rule = lambda models, weights: mixed(weights / weights.sum(), models)  # noqa: E731
MODELS = np.array([[1, 10], [2, 20], [6, -90]], np.float32)


def test_literals() -> None:
    weights = np.array([1.0, 2.0, 1.0])
    np.testing.assert_allclose(weighted_mean(MODELS, weights), [11 / 4, -10])
    np.testing.assert_array_equal(median(MODELS, weights), [2, 10])
    np.testing.assert_array_equal(median(MODELS[:2], weights[:2]), [1.5, 15])


@given(st.permutations(range(3)), st.floats(0.1, 10))
def test_order_and_scale_of_weights_do_not_matter(order: list[int], scale: float) -> None:
    weights = np.array([1.0, 5.0, 3.0])
    for rule in (weighted_mean, median):
        expected = rule(MODELS, weights)
        np.testing.assert_allclose(rule(MODELS[order], scale * weights[order]), expected, rtol=1e-5)


def test_mean_agrees_with_double_precision() -> None:
    draw = np.random.default_rng(0)
    models, weights = draw.normal(size=(10, 5000)).astype(np.float32), draw.uniform(1, 600, 10)
    exact = np.average(models.astype(np.float64), axis=0, weights=weights)
    np.testing.assert_allclose(weighted_mean(models, weights), exact, atol=1e-6)


@pytest.mark.parametrize("rule", [median, geometric_median, weighted_mean, MIXED])
@pytest.mark.parametrize("clients", [1, 3, 7, 10, 49])
def test_what_all_models_hold_is_kept_to_the_bit(rule: Rule, clients: int) -> None:
    # shares of these weights are no binary fractions
    draw = np.random.default_rng(0)
    constants = np.array([-1e9, 0.1, 1 / 3, 7e14, -3e-39], np.float32)
    models = draw.normal(size=(clients, 9)).astype(np.float32)
    models[:, :5] = constants
    found = rule(models, draw.integers(1, 1000, clients).astype(float))
    assert found[:5].tolist() == constants.tolist()
    assert found[5:].tolist() != models[0, 5:].tolist() or clients == 1


def test_no_further_model_is_compared_once_all_entries_differ() -> None:
    read = list[int]()

    class Models(np.ndarray):
        def __getitem__(self, row: int) -> np.ndarray:
            read.append(row)
            return np.asarray(self)[row]

    models = np.arange(20, dtype=np.float32).reshape(10, 2)
    models[:3, 0] = 0.0
    mean = np.ones(2, np.float32)
    keep_equal(mean, models.view(Models), np.arange(10))
    assert read == [0, 1, 2, 3]
    assert mean.tolist() == [1, 1]


@pytest.mark.parametrize("rule", [weighted_mean, MIXED])
def test_a_model_without_weight_changes_no_constant(rule: Rule) -> None:
    models = np.array([[-1e9], [0], [-1e9], [-1e9]], np.float32)
    assert rule(models, np.array([3.0, 0.0, 7.0, 11.0])).tolist() == [-1e9]


def test_weights_that_are_all_zero_are_the_plain_mean() -> None:
    np.testing.assert_allclose(weighted_mean(MODELS, np.zeros(3)), [3, -20])


@pytest.mark.parametrize("largest", [2.0**53, 1e308])
def test_no_weight_and_no_model_overflows(largest: float) -> None:
    models = np.array([[7e17, 7e17], [7e17, -7e17]], np.float32)
    with np.errstate(over="raise", invalid="raise"):
        found = weighted_mean(models, np.array([largest, largest]))
        np.testing.assert_allclose(found, [7e17, 0], rtol=1e-6)
        uneven = weighted_mean(models, np.array([largest, 1.0]))
        np.testing.assert_allclose(uneven, models[0], rtol=1e-6)


@pytest.mark.parametrize("weights", [[1.0, -1.0, 3.0], [1.0, np.nan, 1.0], [np.inf, 1.0, 1.0]])
def test_weights_that_are_none_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights must be finite and non-negative"):
        weighted_mean(MODELS, np.array(weights))


ONES = np.ones(12)


def _members(count: int = 12, length: int = 50) -> np.ndarray:
    return np.random.default_rng(0).normal(3, 0.01, (count, length)).astype(np.float32)


def _reference(vectors: np.ndarray) -> np.ndarray:
    """The least sum of distances by gradient descent with backtracking, in double precision."""
    wide = vectors.astype(float)
    point, rate = np.median(wide, axis=0), 1.0
    total = np.linalg.norm(wide - point, axis=1).sum()
    for _ in range(3000):
        away = point - wide
        lengths = np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-9)
        gradient = (away / lengths).sum(axis=0)
        trial = point - rate * gradient
        now = np.linalg.norm(wide - trial, axis=1).sum()
        if now < total:
            point, total, rate = trial, now, 1.5 * rate
        else:
            rate /= 2
    return point


def test_geometric_median_by_hand() -> None:
    # of a triangle with an angle of 120 degrees or more, that corner: Fermat's point
    triangle = np.array([[0, 0], [10, 1], [-10, 1]], np.float32)
    np.testing.assert_allclose(geometric_median(triangle, ONES[:3]), [0, 0], atol=0.01)
    square = np.array([[0, 0], [2, 0], [2, 2], [0, 2]], np.float32)
    np.testing.assert_allclose(geometric_median(square, ONES[:4]), [1, 1], rtol=1e-6)


def test_geometric_median_of_one_of_two_and_of_the_same() -> None:
    members = _members()
    np.testing.assert_array_equal(geometric_median(members[:1], ONES[:1]), members[0])
    middle = members[:2].mean(axis=0)
    np.testing.assert_allclose(geometric_median(members[:2], ONES[:2]), middle, rtol=1e-6)
    same = np.repeat(members[:1], 5, axis=0)
    np.testing.assert_array_equal(geometric_median(same, ONES[:5]), members[0])
    most = np.concatenate([same, members[1:4]])
    np.testing.assert_array_equal(geometric_median(most, ONES[:8]), members[0])
    zeros = np.zeros((3, 2), np.float32)
    np.testing.assert_array_equal(geometric_median(zeros, ONES[:3]), [0, 0])


@given(st.integers(0, 2**31), st.integers(3, 9), st.integers(1, 6))
@example(493, 7, 2)  # begins at one of the vectors, which is not the median
@example(114, 3, 2)
@settings(max_examples=20)
def test_geometric_median_agrees_with_a_descent(seed: int, n: int, d: int) -> None:
    vectors = np.random.default_rng(seed).normal(5, 1, (n, d)).astype(np.float32)
    slow = _reference(vectors)

    def total(point: np.ndarray) -> float:
        return float(np.linalg.norm(vectors - point, axis=1).sum())

    assert total(geometric_median(vectors, np.ones(n))) <= total(slow) * (1 + 1e-3)


@pytest.mark.parametrize("far", [1e3, 1e6, 1e9, 1e17])
@pytest.mark.parametrize("liars", [1, 2, 5])
def test_a_minority_moves_no_robust_mean_farther_than_the_members_lie(
    far: float, liars: int
) -> None:
    """Whatever the minority holds: the error does not grow with it."""
    members = _members()
    spread = np.linalg.norm(members - 3, axis=1).max()
    members[:liars] = far * np.random.default_rng(1).normal(size=members[0].shape)
    with np.errstate(over="raise", invalid="raise"):
        for rule in (geometric_median, median):
            found = rule(members, ONES)
            assert np.linalg.norm(found - 3) < 1.5 * spread


def test_geometric_median_in_more_than_one_block_of_columns() -> None:
    members = _members(5, COLUMNS + 3)
    found = geometric_median(members, ONES[:5])
    order = np.arange(COLUMNS + 3)[::-1]
    again = geometric_median(np.ascontiguousarray(members[:, order]), ONES[:5])
    np.testing.assert_allclose(found[order], again, rtol=1e-6)


def test_the_lower_median_is_one_of_the_values() -> None:
    assert lower_median(np.array([5.0, 1.0, 3.0])) == 3.0
    assert lower_median(np.array([5.0, 1.0, 3.0, 1e300])) == 3.0
    assert lower_median(np.array([1e300, 1.0])) == 1.0


def test_what_a_client_claims_weighs_no_more_than_the_cap() -> None:
    samples = np.array([10.0, 20.0, 1e9, 0.0])
    assert sample_weights(samples, how="capped", cap=3.0).tolist() == [10, 20, 60, 0]
    assert sample_weights(samples, how="samples", cap=3.0).tolist() == samples.tolist()
    assert sample_weights(samples, how="uniform", cap=3.0).tolist() == [1, 1, 1, 1]
    assert sample_weights(np.zeros(2), how="capped", cap=3.0).tolist() == [0, 0]


@given(st.lists(st.integers(1, 100), min_size=1, max_size=20))
def test_ordinary_claims_are_not_capped(samples: list[int]) -> None:
    given_samples = np.array(samples, float)
    np.testing.assert_array_equal(
        sample_weights(given_samples, how="capped", cap=100.0), given_samples
    )


def test_who_holds_more_than_half_is_found() -> None:
    assert dominant(np.array([1.0, 5.0, 2.0])) == (1, 5 / 8)
    assert dominant(np.array([1.0, 1.0])) is None
    assert dominant(np.array([7.0])) is None
    assert dominant(np.zeros(3)) is None
