"""What loop, records and privacy budget read of a strategy after a round."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from methods import STRATEGIES

from fl_app.strategies.model_evaluation import Scores
from fl_app.strategies.outcome import CLUSTERED, FEDERATED, Event, Outcome, clustering
from fl_app.testing.toy import context, play, roster
from fl_app.types import Labels, Vectors


def _outcome(**changes: object) -> Outcome:
    values: dict[str, object] = {
        "models": np.zeros((2, 3), np.float32), "members": {0: 0, 1: 0, 2: 1}, "removed": {5: 4},
        "global_model": None, "phase": CLUSTERED, "view": None, "events": (), "cohort": (0, 1),
        "rejected": {}, "dominance": {}, "odd_updates": {}, "metrics": {}, "training_s": 0.0,
        "scores": Scores(assigned={7: 1}), "step": None,
    }  # fmt: skip
    return Outcome(**(values | changes))


def _second(models: Vectors, sizes: Labels) -> set[int]:
    assert sizes.tolist() == [2, 1]
    return {1}


def test_the_assignment_holds_members_and_clients_that_chose() -> None:
    assert _outcome().assignment == {0: 0, 1: 0, 2: 1, 7: 1}
    assert _outcome(phase=FEDERATED).assignment == {}
    scores = Scores(assigned={7: 1, 8: 0})
    chose = _outcome(members={}, choices={0: 1, 7: 0}, scores=scores)
    assert chose.assignment == {0: 1, 7: 0, 8: 0}
    assert chose.suspects(_second) == {5}


def test_suspects_are_outside_the_benign_communities_or_removed() -> None:
    assert _outcome().suspects(_second) == {0, 1, 5}
    assert _outcome(members={}).suspects(_second) == {5}


def test_the_view_of_a_round_is_made_once() -> None:
    strategy, calls = STRATEGIES["flic"](context()), []
    view = strategy.view
    strategy.view = lambda now: calls.append(now) or view(now)
    for now in (1, 2):
        play(strategy, roster(12), range(now, now + 1))
        first, second = strategy.outcome(now), strategy.outcome(now)
        assert first.view is second.view is not None
    assert calls == [1, 2]


def test_before_the_first_round_there_is_an_outcome_without_a_view() -> None:
    for name, build in STRATEGIES.items():
        outcome = build(context()).outcome(0)
        assert outcome.view is None, name
        assert not outcome.finished, name


def test_a_clustering_into_one_community_is_told_in_the_singular() -> None:
    assert clustering(np.array([0, 1, 0])) == Event("clustered", "2 communities of sizes [2, 1]")
    assert clustering(np.zeros(19, int), "reclustered") == Event(
        "reclustered", "1 community of size 19"
    )
