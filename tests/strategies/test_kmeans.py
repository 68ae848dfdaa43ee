"""Federated k-means when rounds are skipped: the runs themselves are in tests/kmeans."""

import numpy as np
import pytest
from flwr.common import FitRes

from fl_app.ingress.evaluations import EvaluationAnswer
from fl_app.ingress.rejection import RejectionError
from fl_app.strategies.kmeans import Best, KMeans
from fl_app.strategies.model_evaluation import Scores
from fl_app.strategies.replies import TooFewRepliesError
from fl_app.strategies.roster import Roster
from fl_app.testing.toy import builder, context, fresh, honest, play, reply, roster
from fl_app.types import Vector


def _method(**changes: object) -> KMeans:
    built = builder("kmeans", **changes)(context())
    assert isinstance(built, KMeans)
    return built


def _skip(strategy: KMeans, known: Roster, server_round: int) -> None:
    before = strategy.state.communities.models.copy()
    with pytest.raises(TooFewRepliesError):
        play(strategy, known, range(server_round, server_round + 1), client=lambda *_: None)
    np.testing.assert_array_equal(strategy.state.communities.models, before)


def _own(strategy: KMeans, skipped: set[int]) -> list[int]:
    """Play ten rounds, and return those in which all clients are asked for their centroids."""
    known, found = roster(12), []
    for now in range(1, 11):
        parameters = strategy.initialize_parameters(known)
        asked = strategy.configure_fit(now, parameters, known)
        own = {ins.config["own"] for _, ins in asked}
        assert own == {len(asked) == 12}
        found += [now] if own == {True} else []
        if now in skipped:
            _skip(strategy, known, now)
        else:
            play(strategy, known, range(now, now + 1))
    return found


@pytest.mark.parametrize("init", ["kfed", "kmeans++"])
@pytest.mark.parametrize(
    ("skipped", "own"),
    [
        (set(), [1, 6]),
        ({1}, [1, 2, 6]),
        ({1, 2, 4}, [1, 2, 3, 6]),
        ({5}, [1, 7]),
        ({6, 7}, [1, 6, 7, 8]),
    ],
)
def test_clients_send_their_own_centroids_until_a_start_has_some(
    init: str, skipped: set[int], own: list[int]
) -> None:
    strategy = _method(init=init, n_init=2, participation=0.5, patience=20)
    assert _own(strategy, skipped) == own
    assert strategy.state.number == 2
    assert strategy.state.begun == own[-1]


def test_a_start_alone_is_k_fed_though_its_first_round_is_skipped() -> None:
    strategy, known = _method(init="kfed", only_start=True, participation=1.0), roster(12)
    _skip(strategy, known, 1)
    skipped = strategy.outcome(1)
    assert not skipped.finished
    assert not skipped.measures
    play(strategy, known, range(2, 3))
    ended = strategy.outcome(2)
    assert ended.finished.startswith("strategy.only_start=true")
    assert ended.measures
    assert strategy.state.descent.moved is None
    assert strategy.state.descent.current.any()


def test_new_random_centroids_replace_the_others_once_a_round_with_them_succeeds() -> None:
    strategy, known = _method(init="random", n_init=2, participation=1.0, patience=20), roster(4)
    play(strategy, known, range(1, 6))
    _skip(strategy, known, 6)
    sent: list[Vector] = []

    def client(client_id: int, start: Vector, server_round: int) -> FitRes:
        sent.append(start)
        return honest(client_id, start, server_round)

    play(strategy, known, range(7, 8), client=client)
    assert len(sent) == 4
    for start in sent:
        np.testing.assert_array_equal(start[:5], fresh(7)[:5])
    assert strategy.state.number == 2


def test_the_best_start_is_used_though_the_last_round_is_skipped() -> None:
    strategy, known = _method(init="random", n_init=2, participation=1.0, patience=20), roster(4)
    play(strategy, known, range(1, 10))
    strategy.state.best = Best(0.5, np.arange(5.0)[None, :])
    _skip(strategy, known, 10)
    strategy.aggregate_evaluate(10, [], [])
    assert strategy.state.communities.models[0].tolist() == [0, 1, 2, 3, 4, 0]


def test_the_same_sample_of_the_clients_scores_all_starts() -> None:
    built = builder("kmeans", init="random", n_init=2, participation=1.0, patience=20)
    strategy, known, scored = built(context(evaluate_at_most=3)), roster(12), []
    for now in range(1, 11):
        play(strategy, known, range(now, now + 1))
        scored.append(strategy.to_evaluate(now, range(12)))
    assert scored[4] == scored[9]
    assert len({tuple(each) for each in scored}) > 5


def test_one_client_does_not_decide_which_start_is_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    strategy, known = _method(init="random", n_init=3, participation=1.0, patience=20), roster(4)
    monkeypatch.setattr(strategy.evaluation, "receive", lambda *_: None)

    def best(rounds: range, distances: list[float]) -> list[float]:
        """Play a start of which the clients tell these distances; return those of the best one."""
        play(strategy, known, rounds)
        strategy.evaluation.scores = Scores(answers=[*map(_answer, range(4), distances)])
        strategy.aggregate_evaluate(rounds[-1], [], [])
        assert strategy.state.best is not None
        return list(strategy.state.best.distances.values())

    assert best(range(1, 4), [2.0, 9.0, 4.0, 0.0]) == [2.0, 9.0, 4.0, 0.0]
    assert best(range(4, 7), [1.9, 8.5, 3.8, 1e30]) == [1.9, 8.5, 3.8, 1e30]
    assert best(range(7, 11), [2.0, 9.0, 4.0, 0.0]) == [1.9, 8.5, 3.8, 1e30]


def test_a_start_from_a_checkpoint_without_distances_is_compared_by_the_mean() -> None:
    strategy = _method(n_init=2)
    strategy.evaluation.scores = Scores(answers=[_answer(0, 1.0)])
    strategy.state.best = Best(0.5, np.zeros((1, 5)))
    assert strategy._is_best(0.4)
    assert not strategy._is_best(0.6)


def _answer(client: int, distance: float, classes: int = 3) -> EvaluationAnswer:
    table = np.eye(1, classes, dtype=np.int64) * 10
    told = table.tobytes()
    return EvaluationAnswer(client, 0, None, distance, distance, 10, 10, None, told, {})


def test_a_table_of_other_classes_than_the_data_is_a_lie() -> None:
    strategy = _method()
    strategy.evaluation.check(_answer(0, 1.0))
    with pytest.raises(RejectionError, match="table must be of 3 classes, as the data have, got 1"):
        strategy.evaluation.check(_answer(0, 1.0, classes=1))


@pytest.mark.parametrize(
    ("widths", "kept", "named"),
    [([3, 3, 1], [0, 1], [2]), ([3, 1, 3], [0, 2], [1]), ([1, 3], [], []), ([1, 3, 2], [], [])],
)
def test_where_the_classes_are_unknown_only_a_majority_rejects_a_table(
    widths: list[int], kept: list[int], named: list[int]
) -> None:
    strategy = builder("kmeans")(context(classes=None))
    assert isinstance(strategy, KMeans)
    answers = [_answer(client, 1.0, width) for client, width in enumerate(widths)]
    strategy.evaluation.scores = Scores(answers=answers)
    assert [each.client_id for each in strategy._agreeing()] == kept
    assert list(strategy.rejections.by_client) == named


def _drifts(client_id: int, start: Vector, server_round: int) -> FitRes:
    """Move the centroid into the data; client 4 moves it 100 times as far, away from them."""
    points = np.random.default_rng(client_id).normal(0, 1, 5)
    update = points - start[:5]
    if client_id == 4:
        update = np.full(5, 100 * np.linalg.norm(update))
    return reply(np.append(start[:5] + update, 10).astype(np.float32))


def test_a_client_that_moves_the_centroids_far_in_every_round_does_not_take_them_along() -> None:
    built = builder("kmeans", init="random", participation=1.0, patience=100)
    far = {}
    for clip in (None, 2.0):
        strategy = built(context(clip_update=clip, rounds=60))
        play(strategy, roster(9), range(1, 61), client=_drifts)
        far[clip] = float(np.abs(strategy.state.descent.current).max())
    assert far[None] > 100
    assert far[2.0] < 3
