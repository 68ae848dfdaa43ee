"""Lower bounds of epsilon: by hand, and that they hold and are not idle for known mechanisms."""

from math import inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_app.evaluation.privacy_audit import (
    area,
    audit,
    epsilon_bound,
    gaussian_epsilon,
    most_provable,
    separation,
    upper_rate,
)


def _numbers(*values: float) -> np.ndarray:
    return np.array(values, float)


def test_limits_of_error_rates_by_hand() -> None:
    # without an error the limit l solves (1 - l)^n = 0.025
    np.testing.assert_allclose(upper_rate(np.array([0, 1]), 1, 0.95), [0.975, 1.0])
    np.testing.assert_allclose(upper_rate(np.array([0]), 100, 0.95), 1 - 0.025**0.01)
    # with one error of two: 1 - l^2 = 0.025
    np.testing.assert_allclose(upper_rate(np.array([1]), 2, 0.95), 0.975**0.5)


def test_bounds_of_epsilon_by_hand() -> None:
    found = epsilon_bound(_numbers(0.1, 0.5, 0.2), _numbers(0.2, 0.5, 0.1), delta=0.0)
    np.testing.assert_allclose(found, [log(8), 0.0, log(8)])
    found = epsilon_bound(_numbers(0.1, 1.0), _numbers(0.2, 1.0), delta=0.1)
    np.testing.assert_allclose(found, [log(7), 0.0])


def test_the_gaussian_bound_by_hand() -> None:
    found = separation(_numbers(0.158655254, 0.5, 0.7), _numbers(0.158655254, 0.5, 0.4))
    np.testing.assert_allclose(found, [2.0, 0.0, 0.0], atol=1e-7)
    # Balle and Wang, ICML 2018: deviation 0.49989 of the sensitivity is (10, 1e-5)
    assert gaussian_epsilon(1 / 0.49989, delta=1e-5) == pytest.approx(10.0, abs=1e-3)
    assert gaussian_epsilon(0.0, delta=1e-5) == gaussian_epsilon(1e-6, delta=1e-5) == 0.0
    assert gaussian_epsilon(200.0, delta=1e-5) == inf


def test_the_area_counts_pairs_in_the_right_order_and_ties_half() -> None:
    assert area(_numbers(1, 3), _numbers(2, 0)) == 0.75
    assert area(_numbers(1, 1), _numbers(1)) == 0.5


def test_an_attack_without_errors_proves_what_the_trials_allow() -> None:
    found = audit(np.ones(40), np.zeros(40), delta=0.0)
    limit = 1 - 0.025 ** (1 / 20)
    assert found.epsilon == pytest.approx(log((1 - limit) / limit)) == most_provable(40)
    assert (found.accuracy, found.auc, found.trials) == (1.0, 1.0, 40)
    same = audit(np.ones(40), np.ones(40), delta=0.0)
    assert (same.epsilon, same.gaussian, same.accuracy, same.auc) == (0.0, 0.0, 0.5, 0.5)


def test_randomised_response_is_seldom_above_its_epsilon_and_not_far_below() -> None:
    draw, epsilon, bounds = np.random.default_rng(1), 1.0, []
    truth = 1 / (1 + np.exp(-epsilon))
    for _ in range(200):
        answers = draw.random((2, 1000)) < truth
        inside, outside = answers[0].astype(float), 1 - answers[1].astype(float)
        bounds.append(audit(inside, outside, delta=0.0).epsilon)
    assert sum(bound > epsilon for bound in bounds) <= 10  # 5 %
    assert np.mean(bounds) > 0.75 * epsilon


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_gaussian_noise_is_seldom_above_its_epsilon_and_not_far_below(mu: float) -> None:
    draw, delta = np.random.default_rng(2), 1e-5
    true = gaussian_epsilon(mu, delta=delta)
    found = [
        audit(draw.normal(mu, 1, 4000), draw.normal(0, 1, 4000), delta=delta) for _ in range(60)
    ]
    assert sum(each.gaussian > true for each in found) <= 3  # 5 %
    assert sum(each.epsilon > true for each in found) == 0
    assert np.mean([each.gaussian for each in found]) > 0.6 * true


@given(st.integers(0, 2**31), st.sampled_from([0.25, 2.0, 64.0]), st.integers(-10, 10))
def test_unit_and_origin_of_scores_do_not_count(seed: int, factor: float, shift: int) -> None:
    draw = np.random.default_rng(seed)
    inside, outside = draw.integers(2, 9, 30) * 1.0, draw.integers(0, 7, 30) * 1.0
    moved = audit(factor * inside + shift, factor * outside + shift, delta=1e-5)
    assert moved == audit(inside, outside, delta=1e-5)
    assert 0 <= moved.epsilon <= most_provable(30)


@pytest.mark.parametrize(
    ("inside", "outside", "delta", "message"),
    [
        (np.ones(19), np.ones(19), 0.0, "at least 20, got 19 and 19"),
        (np.ones(30), np.ones(20), 0.0, "as many trials inside as outside"),
        (np.full(20, np.nan), np.ones(20), 0.0, "must be finite"),
        (np.ones(20), np.ones(20), 1.0, "delta must be in"),
    ],
)
def test_wrong_trials_are_refused(
    inside: np.ndarray, outside: np.ndarray, delta: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        audit(inside, outside, delta=delta)
