"""Trials in which every other client of a community trains the common model."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from told import told_losses

from fl_app.aggregation import weighted_mean
from fl_app.learner_reports import HELD_OUT
from fl_app.strategies.replies import Replies
from fl_app.strategies.state import Communities
from fl_app.strategies.trial import JudgedState, begin
from fl_app.strategies.turns import in_turns, learn_in_turns
from fl_app.testing.toy import SIZE

MODELS = np.repeat(np.arange(3, dtype=np.float32)[:, None], SIZE, axis=1)


def _on_trial() -> JudgedState:
    members = {0: 0, 1: 1, 2: 0, 3: 1, 4: 0, 5: 1}
    state = JudgedState(communities=Communities(MODELS[:2].copy(), members))
    begin(state, 1)
    return state


def test_every_other_client_of_a_community_trains_the_common_model_by_turns() -> None:
    state, rows = _on_trial(), [(0,), (1,), (0,), (1,), (0,), (1,)]
    for now in (2, 3):
        models, given, compared = in_turns(state, now, MODELS[:2], list(rows), 1.0)
        np.testing.assert_array_equal(models[2], state.common)
        # the first, third and fifth of (0, 2, 4, 1, 3, 5), or the others
        joint = {0, 4, 3} if now % 2 else {2, 1, 5}
        assert compared is not None
        for client, own in enumerate(rows):
            both = given[client], compared[client]
            assert both == (((2,), own[0]) if client in joint else (own, 2))
    assert rows == [(0,), (1,), (0,), (1,), (0,), (1,)]


def test_where_few_train_they_take_no_turns_and_all_train_the_common_model() -> None:
    state, rows = _on_trial(), [(0,), (1,), (0,)]
    for share, turns in ((0.5, 0), (0.7, 1)):
        _, given, compared = in_turns(state, 2, MODELS[:2], list(rows), share)
        assert given.count((2,)) == turns
        assert (compared == [2, 2, 2]) == (not turns)
    replies = Replies(
        client_ids=np.arange(3), models=MODELS, starts=np.array([0, 1, 0]), samples=np.ones(3),
        losses=np.ones(3), weights=np.ones(3), reports={HELD_OUT: np.ones((3, 8), np.float32)},
    )  # fmt: skip
    assert len(learn_in_turns(state, replies, 2, weighted_mean, None).models) == 3
    np.testing.assert_allclose(state.common, np.mean([0, 1, 2]))


def test_clients_that_choose_or_have_the_common_model_take_no_turns() -> None:
    for now in (2, 3):
        _, given, compared = in_turns(_on_trial(), now, MODELS[:2], [(0, 1), (2,)], 1.0)
        assert (given, compared) == ([(0, 1), (2,)], [2, 2])


def test_the_common_model_learns_from_its_own_replies_and_all_clients_are_heard() -> None:
    state = _on_trial()
    assert state.common is not None
    common = state.common.copy()
    starts = np.array([2, 0, 1, 2])
    received = [(MODELS[0], MODELS[1], common)[start if start < 2 else 2] for start in starts]
    told = [told_losses(state, start, 1.0, 3.0) for start in received]
    values = np.array([10.0, 0.0, 1.0, 20.0], np.float32)
    replies = Replies(
        client_ids=np.array([0, 2, 3, 5]), models=np.repeat(values[:, None], SIZE, axis=1),
        starts=starts, samples=np.ones(4), losses=np.ones(4),
        weights=np.array([1.0, 1.0, 1.0, 3.0]), reports={HELD_OUT: np.array(told)},
    )  # fmt: skip
    mine = learn_in_turns(state, replies, 2, weighted_mean, None)
    assert mine.client_ids.tolist() == [2, 3]
    np.testing.assert_allclose(state.common, (10 + 3 * 20) / 4)
    # (3 - 1) / (3 + 1 + 3) for all, whichever model they trained
    np.testing.assert_allclose([state.gains[c] for c in (0, 2, 3, 5)], 2 / 7, rtol=1e-6)


def test_without_a_trial_all_replies_are_the_methods_own() -> None:
    state = _on_trial()
    state.common = None
    replies = Replies(
        client_ids=np.array([0]), models=MODELS[:1], starts=np.array([2]), samples=np.ones(1),
        losses=np.ones(1), weights=np.ones(1),
    )  # fmt: skip
    assert learn_in_turns(state, replies, 2, weighted_mean, None) is replies
