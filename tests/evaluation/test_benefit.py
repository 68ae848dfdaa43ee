"""The verdict on a split: who is better off, in spite of noise and liars."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_app.evaluation.benefit import (
    WORTH,
    Verdict,
    judge,
    p_above,
    rejected,
    relative_gains,
)


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
    assert _judge([0.5] * 6, [0, 1] * 3) == Verdict(True, served=frozenset({0, 1}))


def test_gains_that_differ_by_community_keep_a_split_that_serves_each() -> None:
    means = [0.1, 0.12, 0.06, 0.2, 0.08, 0.15, 0.95, 0.97, 0.9, 0.93]
    assert p_above(np.array(means) - WORTH, trimmed=0.2) > 0.05
    assert _judge(means, [0] * 6 + [1] * 4).keeps is True
    assert _judge(means, [0] * 6 + [1] * 2 + [2] * 2).keeps is True
    unequal = _gains(means) + np.repeat([0.0, 1.0], [9, 1])[:, None] * [-1.0, 1.0, -1.0, 1.0]
    rows = np.array([0] * 6 + [1] * 2 + [2] * 2)
    assert judge(np.arange(10), rows, unequal).keeps is None, "one of two does not show it"
    assert _judge([-0.01] * 6 + means[6:], [0] * 6 + [1] * 4).keeps is None


def test_a_split_without_an_effect_is_not_kept() -> None:
    assert _judge([-0.05] * 12, [0, 1, 2] * 4).keeps is False
    assert _judge([0.0, 0.4, -0.3, 0.2, -0.2, -0.1], [0, 1] * 3).keeps is None


def test_a_harmful_community_is_left_and_the_others_stay() -> None:
    found = _judge([0.5] * 4 + [-0.3] * 4, [0] * 4 + [1] * 4)
    assert found == Verdict(True, frozenset({1}), served=frozenset({0}))
    assert found.by_parts([0, 1], last=True) == found


def test_a_client_in_the_wrong_community_leaves_alone() -> None:
    found = _judge([0.5] * 5 + [-0.6], [0, 1] * 3)
    assert found == Verdict(True, clients=frozenset({5}), served=frozenset({0}))


def test_two_liars_of_twelve_move_neither_the_split_nor_a_community() -> None:
    honest = [0.4] * 10
    assert _judge([-1.0, -1.0, *honest], [0, 1] * 6).communities == frozenset()
    assert _judge([-1.0, -1.0, *honest], [0, 1] * 6).keeps
    assert not _judge([1.0, 1.0, *([-0.1] * 10)], [0, 1] * 6).keeps


def test_no_evidence_keeps_nothing() -> None:
    none = judge(np.array([], int), np.array([], int), np.empty((0, 4)))
    assert none == none.by_parts([0, 1], last=True) == Verdict(None)


def test_a_split_is_promising_if_each_community_seems_to_gain_and_none_is_shown_to() -> None:
    # the parts of a client differ, so that none is shown to be harmed
    unclear = np.array([0.5, 0.4, -0.1, -0.1, 0.6, 0.5, -0.2, -0.1])[:, None] + [-0.5, 0.5] * 2
    two, by_gain = np.array([0, 1] * 4), np.array([0, 0, 1, 1] * 2)
    assert judge(np.arange(8), two, unclear) == Verdict(None, promising=True, doubts=True)
    assert not judge(np.arange(8), by_gain, unclear).promising, "one of them loses"
    assert not _judge([0.5] * 8, [0, 1] * 4).promising, "it is shown"
    assert judge(np.arange(8), two, unclear).at_the_end().keeps is True
    other = judge(np.arange(8), by_gain, unclear)
    assert other.at_the_end() == other


def test_two_groups_of_two_clients_that_contradict_each_other_are_not_undone() -> None:
    # as seen: one model for all would have been right for the second group alone
    parts = np.array([[0.90, 0.89, 0.96, 0.85], [0.87, 0.52, 0.92, 0.77],
                      [0.35, 0.25, 0.02, 0.26], [-0.14, -0.34, 0.24, 0.43]])  # fmt: skip
    rows = np.array([0, 0, 1, 1])
    found = judge(np.arange(4), rows, parts)
    assert (found.keeps, found.served) == (None, {0})
    assert found.at_the_end() == Verdict(True, served=frozenset({0}), promising=True)
    worse = judge(np.arange(4), rows, parts - [[0.0], [0.0], [0.3], [0.3]])
    end = worse.at_the_end().by_parts(rows.tolist(), last=True)
    assert (end.keeps, end.communities) == (True, {1}), "that group alone takes the common model"


def test_of_a_split_that_serves_some_only_their_communities_stay_at_the_end() -> None:
    # the trimmed mean over all is near WORTH; one client alone shows it by its parts, or not
    gains = _gains([0.4] * 3 + [0.0] * 9 + [0.4] * 2)
    gains[13] += [-1.0, 1.0, -1.0, 1.0]
    found = judge(np.arange(14), np.array([0] * 3 + [1] * 9 + [2, 3]), gains)
    assert (found.keeps, found.served) == (None, {0, 2})
    assert found.by_parts(range(4), last=False).keeps is None
    end = found.by_parts(range(4), last=True)
    assert (end.keeps, end.communities) == (True, {1, 3})


def test_the_gain_of_a_community_is_tested_among_those_of_all() -> None:
    # 0.1 .. 0.4 exceed 0.03 by 0.22: t = 0.22 / (0.1291 / 2) = 3.408, p = 0.021 with 3 df
    means = np.array([0.1, 0.2, 0.3, 0.4, *[0.0] * 12])
    gains = np.repeat(means[:, None], 4, axis=1)
    two, three = np.repeat([0, 1], [4, 12]), np.repeat([0, 1, 2], [4, 6, 6])
    assert p_above(means[:4] - WORTH, trimmed=0.2) == pytest.approx(0.0211, abs=1e-4)
    assert judge(np.arange(16), two, gains).served == {0}  # 0.021 < 0.05 / 2
    assert judge(np.arange(16), three, gains).served == set()  # 0.021 > 0.05 / 3


def test_holm_s_method_stops_at_the_first_that_is_not_shown() -> None:
    assert rejected({0: 0.3, 1: 0.02, 2: 0.01}) == {1, 2}  # 0.01 < 0.05 / 3, 0.02 < 0.05 / 2
    assert rejected({0: 0.02, 1: 0.02, 2: 0.02}) == set()
    assert rejected({7: 0.04}) == {7}
    assert rejected({}) == set()


@given(st.data())
def test_names_and_order_of_clients_and_communities_change_nothing(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 12))
    rows = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    means = data.draw(
        st.lists(st.sampled_from([-0.5, -0.1, 0.0, 0.1, 0.5]), min_size=n, max_size=n)
    )
    gains, order = _gains(means), np.array(data.draw(st.permutations(range(n))))
    before = judge(np.arange(n), rows, gains)
    names = np.array(data.draw(st.permutations(range(4))))
    after = judge(100 + order, names[rows[order]], gains[order])
    assert after.keeps == before.keeps
    assert after.clients == {100 + client for client in before.clients}
    assert after.communities == {names[row] for row in before.communities}
    assert after.served == {names[row] for row in before.served}


@given(st.lists(st.integers(0, 3), max_size=12))
def test_equal_losses_never_keep_a_split(rows: list[int]) -> None:
    losses = np.random.default_rng(0).uniform(0, 3, (len(rows), 4))
    gains = relative_gains(losses, losses) if rows else losses
    found = judge(np.arange(len(rows)), np.array(rows, int), gains)
    assert not found.by_parts(rows, last=True).keeps
    assert found.communities == found.clients == found.served == frozenset()
