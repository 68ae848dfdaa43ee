"""The verdict on a split: who is better off, in spite of noise and liars."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_app.evaluation.benefit import Verdict, judge, p_above, relative_gains


def _gains(means: list[float], seed: int = 0) -> np.ndarray:
    """Return gains of clients in four parts with a little noise."""
    noise = np.random.default_rng(seed).normal(0, 0.05, (len(means), 4))
    return np.array(means)[:, None] + noise


def _judge(means: list[float], rows: list[int]) -> Verdict:
    return judge(np.arange(len(means)), np.array(rows), _gains(means))


def test_gains_are_relative_to_both_losses_and_the_usual_one() -> None:
    own, common = np.array([[1.0, 0.0], [3.0, 0.0]]), np.array([[2.0, 0.0], [1.0, 3.0]])
    # the mean |g| are 1 and 2, the lower median 1
    expected = [[(2 - 1) / (1 + 2 + 1), 0.0], [(1 - 3) / (3 + 1 + 1), 3 / (0 + 3 + 1)]]
    np.testing.assert_allclose(relative_gains(own, common), expected)
    assert not relative_gains(np.zeros((2, 2)), np.zeros((2, 2))).any()


@given(st.lists(st.floats(-1e30, 1e30), min_size=8, max_size=8))
def test_no_report_moves_a_gain_beyond_one(told: list[float]) -> None:
    losses = np.array(told).reshape(2, 4)
    assert np.abs(relative_gains(losses[:, :2], losses[:, 2:])).max() <= 1


def test_the_test_is_student_s_without_the_ends() -> None:
    values = np.array([-9.0, 1.0, 2.0, 3.0, 90.0])
    # winsorised 1 1 2 3 3: deviation 1, error 1/sqrt(5); t = 0.6 * 2 * sqrt(5) = 2.683 with 2 df
    assert p_above(values, trimmed=0.2) == pytest.approx(0.0577, abs=1e-4)
    assert p_above(np.array([1.0])) == 1.0
    assert p_above(np.array([2.0, 2.0, 2.0])) == 0.0
    assert p_above(np.zeros(3)) == 1.0


def test_a_split_that_serves_its_clients_is_kept() -> None:
    assert _judge([0.5] * 6, [0, 1] * 3) == Verdict(True, frozenset(), frozenset())


def test_a_split_without_an_effect_is_not_kept() -> None:
    assert _judge([-0.05] * 12, [0, 1, 2] * 4).keeps is False
    assert _judge([0.0, 0.4, -0.3, 0.2, -0.2, -0.1], [0, 1] * 3).keeps is None


def test_a_harmful_community_is_left_and_the_others_stay() -> None:
    found = _judge([0.5] * 4 + [-0.3] * 4, [0] * 4 + [1] * 4)
    assert found == Verdict(True, frozenset({1}), frozenset())


def test_a_client_in_the_wrong_community_leaves_alone() -> None:
    found = _judge([0.5] * 5 + [-0.6], [0, 1] * 3)
    assert found == Verdict(True, frozenset(), frozenset({5}))


def test_two_liars_of_twelve_move_neither_the_split_nor_a_community() -> None:
    honest = [0.4] * 10
    assert _judge([-1.0, -1.0, *honest], [0, 1] * 6).communities == frozenset()
    assert _judge([-1.0, -1.0, *honest], [0, 1] * 6).keeps
    assert not _judge([1.0, 1.0, *([-0.1] * 10)], [0, 1] * 6).keeps


def test_no_evidence_keeps_nothing() -> None:
    none = judge(np.array([], int), np.array([], int), np.empty((0, 4)))
    assert none == Verdict(None, frozenset(), frozenset())
