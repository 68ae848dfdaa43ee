"""Aggregation rules on literals, and the mean beside its slow reference."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_app.aggregation import (
    dominant,
    lower_median,
    median,
    sample_weights,
    weighted_mean,
)

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


@pytest.mark.parametrize("weights", [[0.0, 0.0, 0.0], [1.0, -1.0, 3.0]])
def test_weights_that_are_none_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights must be non-negative"):
        weighted_mean(MODELS, np.array(weights))


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
