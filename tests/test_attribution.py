"""Which model a client receives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_app.attribution import margin, mixed, nearest_models, weighted_nearest


def test_nearest_takes_the_first_of_equals() -> None:
    assert nearest_models(np.array([[2.0, 1.0, 1.0], [0.0, 5.0, 0.0]])).tolist() == [1, 0]


def test_weights_by_hand() -> None:
    distance = np.array([[np.log(2.0), 0.0, 9.0, np.log(4.0)]])
    # exp(-d) of the three nearest: 1/2, 1, 1/4
    expected = np.array([[2, 4, 0, 1]]) / 7
    np.testing.assert_allclose(weighted_nearest(distance, neighbours=3, beta=1.0), expected)
    np.testing.assert_allclose(weighted_nearest(distance, neighbours=1, beta=1.0), [[0, 1, 0, 0]])
    equal = weighted_nearest(distance, neighbours=3, beta=0.0)
    np.testing.assert_allclose(equal, np.array([[1, 1, 0, 1]]) / 3)


@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 8), st.floats(0, 1e6))
def test_weights_sum_to_one_however_far(seed: int, k: int, neighbours: int, beta: float) -> None:
    distance = np.random.default_rng(seed).exponential(1e4, size=(5, k))
    weights = weighted_nearest(distance, neighbours=neighbours, beta=beta)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    assert ((weights > 0).sum(axis=1) <= min(k, neighbours)).all()
    assert (weights[range(5), nearest_models(distance)] == weights.max(axis=1)).all()


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one community"):
        nearest_models(np.empty((2, 0)))
    with pytest.raises(ValueError, match="finite"):
        weighted_nearest(np.array([[np.nan]]), neighbours=3, beta=1.0)
    with pytest.raises(ValueError, match="got 0 and"):
        weighted_nearest(np.ones((1, 1)), neighbours=0, beta=1.0)


def test_a_mixture_has_the_same_bits_by_parts() -> None:
    weights = np.array([0.0, 0.7, 0.3])
    models = np.random.default_rng(0).normal(size=(3, 1000)).astype(np.float32)
    whole = mixed(weights, models)
    np.testing.assert_allclose(whole, weights @ models, atol=1e-6)
    parts = [mixed(weights, part) for part in np.split(models, [3, 77, 640], axis=1)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    np.testing.assert_array_equal(mixed(weights[1:], models[1:]), whole)
    with pytest.raises(ValueError, match="must not all be 0"):
        mixed(np.zeros(3), models)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([3.0, 1.0], 2 / 3),
        ([2.0, 2.0, 2.0], 0.0),
        ([5.0], None),
        ([0.0, 0.0], 0.0),
        ([4, 0, 9], 1),
        ([-1.0, -4.0], 0.75),  # losses such as those of counts can be negative
        ([-2.0, -2.0], 0.0),
        ([0.0, -3.0], 1.0),
        ([1.0, -1.0], 2.0),
    ],
)
def test_the_margin_is_the_distance_to_the_second(values: list[float], found: float | None) -> None:
    assert margin(np.array(values, np.float32)) == (None if found is None else pytest.approx(found))
