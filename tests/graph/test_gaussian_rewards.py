"""Gaussian rewards, the interaction matrix and its affinity, by hand and for any relabelling."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fl_app.graph.gaussian_rewards import affinity, gaussian_rewards
from fl_app.graph.interactions import Interactions


def test_rewards_by_hand() -> None:
    # mean 1 and variance 2 in the first part, mean 1 and variance 0 in the second
    found = gaussian_rewards(np.array([[0.0, 1.0], [0.0, 1.0], [3.0, 1.0]]))
    first = np.exp([-0.25, -0.25, -1.0])
    np.testing.assert_allclose(found, (first + 1) / 2)


def test_equal_losses_have_the_full_reward_and_huge_ones_a_finite_one() -> None:
    assert gaussian_rewards(np.full((4, 3), 0.7)).tolist() == [1.0] * 4
    found = gaussian_rewards(np.array([[1e30], [-1e30], [0.5]]))
    assert np.isfinite(found).all()
    assert found[2] == 1.0


LOSSES = arrays(float, st.tuples(st.integers(2, 6), st.integers(1, 4)), elements=st.floats(0, 10))


@given(LOSSES, st.randoms())
def test_rewards_are_in_0_to_1_and_follow_their_clients(losses: np.ndarray, draw: object) -> None:
    found = gaussian_rewards(losses)
    assert ((found >= 0) & (found <= 1)).all()
    np.testing.assert_allclose(gaussian_rewards(losses[::-1]), found[::-1], atol=1e-9)


def test_the_affinity_of_two_clients_leaves_out_their_own_entries() -> None:
    rewards = np.array([[0.0, 0.9, 0.5], [0.1, 0.0, 0.7], [0.3, 0.3, 0.0]])
    found = affinity(rewards, 1 - np.eye(3), beta=10.0)
    # 0 and 1 differ by 0.2 at client 2; 0 and 2 by 0.6 at client 1; 1 and 2 by 0.2 at client 0
    expected = np.exp(-10 * np.array([0.04, 0.36, 0.04]))
    np.testing.assert_allclose(found[[0, 0, 1], [1, 2, 2]], expected)
    np.testing.assert_array_equal(found, found.T)
    assert (np.diag(found) == 1).all()


def test_what_one_of_two_clients_does_not_know_is_left_out() -> None:
    rewards = np.array([[0.0, 0.0, 0.5, 0.4], [0.0, 0.0, 0.7, 9.0], [0.1] * 4, [0.1] * 4])
    met = 1 - np.eye(4)
    met[1, 3] = met[3, 1] = 0
    found = affinity(rewards * met, met, beta=10.0)
    assert found[0, 1] == pytest.approx(np.exp(-0.4))
    nobody = np.zeros((3, 3))
    np.testing.assert_array_equal(affinity(nobody, nobody, beta=10.0), np.eye(3))


def test_interactions_are_means_of_a_clients_rewards_with_each_other() -> None:
    pairs = Interactions()
    assert pairs.meet([5, 2], np.array([0.4, 0.8]), None) == pytest.approx((0.16 + 0.64) / 2)
    assert pairs.meet([2, 5, 7], np.array([0.6, 0.2, 1.0]), None) == pytest.approx(
        (2 * 0.1**2 + 0.6**2 + 0.2**2 + 2 * 1.0**2) / 6
    )
    whole = pairs.rewards
    assert pairs.rows_of([7, 2]).tolist() == [2, 1]
    assert pairs.rewards is whole  # no copy for known clients
    rewards, met = pairs.among([2, 5, 7])
    np.testing.assert_allclose(rewards, [[0, 0.7, 0.6], [0.3, 0, 0.2], [1, 1, 0]])
    np.testing.assert_array_equal(met, 1 - np.eye(3))


def test_a_weight_of_new_rewards_forgets_the_old_ones() -> None:
    pairs = Interactions()
    for reward in (0.4, 0.8):
        pairs.meet([0, 1], np.array([reward, 0.0]), 0.25)
    assert pairs.among([0, 1])[0][0, 1] == pytest.approx(0.5)


def test_forgotten_clients_have_met_nobody() -> None:
    pairs = Interactions()
    pairs.meet([0, 1, 2], np.array([0.4, 0.5, 0.6]), None)
    pairs.forget([0])
    np.testing.assert_array_equal(pairs.among([0, 1, 2])[1], [[0, 0, 0], [0, 0, 1], [0, 1, 0]])
    with pytest.raises(ValueError, match="at least two clients must meet, got 1"):
        pairs.meet([0], np.array([1.0]), None)
