"""IFCA: which models are trained, what becomes of unchosen ones, and which start is the best."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.common import FitRes

from fl_app.strategies.ifca import Ifca
from fl_app.strategies.replies import TooFewRepliesError
from fl_app.strategies.serving import served
from fl_app.testing.toy import SIZE, context, fresh, honest, play, reply, roster
from fl_app.types import Vector
from fl_app.wiring import made

ifca = partial(made, "strategy=ifca", unchosen="keep")
Client = Callable[[int, Vector, int], FitRes | None]


def test_it_leaves_a_model_that_nobody_chose_and_averages_the_others() -> None:
    strategy = ifca(context(), participation=1.0, communities=5)
    before = strategy.state.communities.models.copy()
    play(strategy, roster(6), range(1, 2))
    chosen = set(strategy.state.choices.values())
    for row in range(5):
        moved = not np.array_equal(strategy.state.communities.models[row], before[row])
        assert moved == (row in chosen)


def test_it_restarts_a_model_that_is_nobodys_last_choice_from_one_of_the_largest() -> None:
    strategy = ifca(context(), participation=1.0, communities=3)
    before = strategy.state.communities.models.copy()
    replied = np.arange(24, dtype=np.float32).reshape(4, SIZE)
    replies = SimpleNamespace(
        starts=np.array([0, 1, 1, 1]), models=replied, client_ids=np.array([4, 5, 6, 7])
    )
    strategy.state.choices = {4: 0, 5: 1, 6: 1, 7: 1}
    strategy.chose({8: 2, 9: 1})
    strategy._restart_unchosen(3, replies)
    models = strategy.state.communities.models
    np.testing.assert_array_equal(models[:2], before[:2])
    assert any(np.array_equal(models[2], each) for each in replied[1:])
    assert [event.kind for event in strategy.events] == ["restarted"]
    assert strategy.state.evaluated == {9: 1}
    # the last choice of a client that is absent counts too
    strategy.state.choices |= {8: 2}
    strategy._restart_unchosen(4, SimpleNamespace(**{**vars(replies), "models": replied + 99}))
    assert not (strategy.state.communities.models == replied[1] + 99).all(axis=1).any()
    assert len(strategy.events) == 1


def test_a_client_is_served_the_newer_of_its_choices_in_training_and_in_an_evaluation() -> None:
    strategy = ifca(context(), participation=1.0, communities=2)
    strategy.chose(dict.fromkeys(range(5), 1))
    play(strategy, roster(4), range(1, 2), client=_training(0))
    assert served(strategy, range(5), 1).clients == {
        **dict.fromkeys(range(4), ("community_0",)), 4: ("community_1",)
    }  # fmt: skip
    strategy.chose({2: 1})
    assert served(strategy, [1, 2], 1).clients == {1: ("community_0",), 2: ("community_1",)}


def test_its_assignment_and_its_view_are_the_choices_in_training() -> None:
    strategy = ifca(context(), participation=1.0, communities=3)
    play(strategy, roster(6), range(1, 3))
    strategy.evaluation.scores.assigned = {0: 1 - strategy.state.choices[0], 9: 2}
    outcome = strategy.outcome(2)
    assert outcome.view is not None
    shown = dict(zip(outcome.view.client_ids.tolist(), outcome.view.labels.tolist(), strict=True))
    assert outcome.assignment == {**shown, 9: 2}
    assert shown.keys() == set(range(6))


def _training(row: int) -> Client:
    """Return honest clients that train the model of a row."""

    def client(client_id: int, start: Vector, server_round: int) -> FitRes:
        answer = honest(client_id, start, server_round)
        answer.metrics["choice"] = row
        return answer

    return client


def test_by_gradients_divides_by_all_who_replied() -> None:
    def push(client: int, start: np.ndarray, server_round: int):
        return reply(start + np.float32(client + 1))

    strategy = ifca(context(), participation=1.0, communities=2, average="gradients")
    before = strategy.state.communities.models.copy()
    play(strategy, roster(4), range(1, 2), client=push)
    for row in range(2):
        total = sum(c + 1 for c, choice in strategy.state.choices.items() if choice == row)
        expected = before[row] + total / 4
        np.testing.assert_allclose(strategy.state.communities.models[row], expected, rtol=1e-6)


def test_it_goes_on_from_the_start_with_the_least_loss() -> None:
    def graded(client: int, start: np.ndarray, server_round: int):
        answer = honest(client, start, server_round)
        answer.metrics["loss"] = [0.9, 0.2, 0.5][(server_round - 1) // 2 % 3]
        return answer

    strategy = ifca(context(), participation=1.0, communities=2, restarts=2, trial_rounds=2)
    play(strategy, roster(4), range(1, 5), client=graded)
    second = strategy.state.tried[1].models.copy()
    play(strategy, roster(4), range(5, 7), client=graded)
    np.testing.assert_array_equal(strategy.state.communities.models, second)
    assert strategy.events[-1].kind == "restarted"
    assert strategy.state.tried == []


def _skipping(strategy: Ifca, rounds: range, skipped: set[int], client: Client) -> None:
    """Play rounds, of which those in `skipped` have no valid replies."""
    for now in rounds:
        if now not in skipped:
            play(strategy, roster(4), range(now, now + 1), client=client)
            continue
        before = strategy.state.communities.models.copy()
        with pytest.raises(TooFewRepliesError):
            play(strategy, roster(4), range(now, now + 1), client=lambda *_: None)
        np.testing.assert_array_equal(strategy.state.communities.models, before)


def _losing(losses: dict[int, float]) -> Client:
    """Return honest clients that tell the loss of a round."""

    def client(client_id: int, start: np.ndarray, server_round: int):
        answer = honest(client_id, start, server_round)
        answer.metrics["loss"] = losses.get(server_round, 9.0)
        return answer

    return client


@pytest.mark.parametrize(
    ("skipped", "losses", "told"),
    [
        (set(), {2: 4.0, 4: 3.0}, "initial models 1; training losses [4.0, 3.0]"),
        ({2}, {3: 4.0, 5: 3.0}, "initial models 1; training losses [4.0, 3.0]"),
        ({3, 4}, {2: 4.0, 6: 5.0}, "initial models 0; training losses [4.0, 5.0]"),
        ({4}, {2: 4.0, 5: 3.0}, "initial models 1; training losses [4.0, 3.0]"),
        ({1, 4, 6}, {3: 4.0, 7: 3.0}, "initial models 1; training losses [4.0, 3.0]"),
    ],
)
def test_it_compares_all_sets_though_rounds_are_skipped(
    skipped: set[int], losses: dict[int, float], told: str
) -> None:
    strategy = ifca(context(), participation=1.0, communities=2, restarts=1, trial_rounds=2)
    end = max(losses)
    _skipping(strategy, range(1, end), skipped, _losing(losses))
    assert strategy.events == []
    _skipping(strategy, range(end, end + 1), set(), _losing(losses))
    assert [event.detail for event in strategy.events] == [told]
    assert strategy.state.tried == []
    assert not strategy.searching


@pytest.mark.parametrize(("restarts", "skipped"), [(5, set()), (1, {10}), (2, {7, 8, 9, 10})])
def test_it_never_ends_with_initial_models(restarts: int, skipped: set[int]) -> None:
    strategy = ifca(context(), participation=1.0, communities=2, restarts=restarts, trial_rounds=5)
    _skipping(strategy, range(1, 11), skipped, honest)
    initial = [fresh(number) for number in range(1, 12)] + [strategy.context.initial]
    assert strategy.state.choices.keys() == set(range(4))
    for row in set(strategy.state.choices.values()):
        assert not (strategy.state.communities.models[row] == initial).all(axis=1).any()


def test_it_begins_no_set_that_could_not_be_completed() -> None:
    strategy = ifca(context(), participation=1.0, communities=2, restarts=2, trial_rounds=3)
    losses = {4: 4.0, 8: 5.0}
    _skipping(strategy, range(1, 9), {2, 5}, _losing(losses))
    told = ["initial models 0; training losses [4.0, 5.0]"]
    assert [event.detail for event in strategy.events] == told
    _skipping(strategy, range(9, 11), set(), _losing(losses))
    assert strategy.events == []


def test_it_gives_up_a_set_that_skipped_rounds_leave_incomplete() -> None:
    strategy = ifca(context(), participation=1.0, communities=2, restarts=1, trial_rounds=5)
    _skipping(strategy, range(1, 6), set(), _losing({5: 4.0}))
    first = strategy.state.communities.models.copy()
    strategy.chose({9: 1})
    _skipping(strategy, range(6, 9), {6, 7}, _losing({}))
    np.testing.assert_array_equal(strategy.state.communities.models, first)
    told = ["initial models 0; training losses [4.0]"]
    assert [event.detail for event in strategy.events] == told
    assert strategy.state.evaluated == {}
