"""The trial of models that clients choose: what alternates, what is judged, and what is undone."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from flwr.common import FitIns, FitRes

from fl_app.learner_reports import HELD_OUT, HELD_OUT_PARTS, PREFIX, asked, holds_out
from fl_app.params import from_bytes
from fl_app.records.checkpoint import Checkpoint, read, write
from fl_app.records.history import FELL_BACK, KEPT, UNDONE
from fl_app.strategies.alternating import Alternating
from fl_app.strategies.fallback import LOOKS
from fl_app.strategies.replies import TooFewRepliesError
from fl_app.strategies.roster import Roster
from fl_app.strategies.state import load, save
from fl_app.testing.toy import SIZE, builder, context, honest, play, roster
from fl_app.types import Vector

BEGUN = 4
"""The first round after a third of twelve."""
METHODS = {"ifca": BEGUN, "feddrift": 2, "fedem": BEGUN, "fedrc": BEGUN}
"""The round after which the trial begins."""
UNCLEAR = 1.0, 1.01
"""Losses of two models, for a gain that keeps nothing."""
OPTIONS: dict[str, dict[str, object]] = {
    "ifca": {"communities": 3},
    "feddrift": {"start": "own", "merge_below": 1.0},
    "fedem": {},
    "fedrc": {},
}
Client = Callable[[int, Vector, int], FitRes]


def _method(
    name: str = "ifca", *, private: bool = False, rounds: int = 12, **options: object
) -> Alternating:
    given = {"participation": 1.0, "fallback": True, **OPTIONS[name], **options}
    made = builder(name, **given)(context(private=private, rounds=30 if private else rounds))
    assert isinstance(made, Alternating)
    return made


def _saying(own: float, common: float, strategy: Alternating) -> Client:
    """Return clients that train as honest ones, and say so of the two models when asked."""

    def client(client_id: int, start: Vector, server_round: int) -> FitRes:
        answer = honest(client_id, start, server_round)
        if strategy.state.common is not None and not strategy.trains_common:
            losses = np.repeat(np.array([own, common], "<f4"), HELD_OUT_PARTS)
            answer.metrics[f"{PREFIX}{HELD_OUT}"] = losses.tobytes()
        return answer

    return client


def _sent(strategy: Alternating, known: Roster, server_round: int) -> dict[int, FitIns]:
    asked_now = strategy.configure_fit(server_round, strategy.initialize_parameters(known), known)
    return {known.client_id(proxy): ins for proxy, ins in asked_now}


def _models(ins: FitIns) -> list[Vector]:
    return [from_bytes(tensor) for tensor in ins.parameters.tensors]


def _kinds(strategy: Alternating, known: Roster, rounds: range, client: Client) -> dict[int, str]:
    found: dict[int, str] = {}
    for now in rounds:
        play(strategy, known, range(now, now + 1), client=client)
        assert strategy.rejections.by_client == {}
        for event in strategy.events:
            if event.kind in (KEPT, UNDONE):
                found[now] = event.kind
    return found


@pytest.mark.parametrize("name", METHODS)
def test_models_that_serve_their_clients_are_kept_and_not_judged_again(name: str) -> None:
    strategy, known = _method(name), roster(12)
    client = _saying(1.0, 2.0, strategy)
    assert _kinds(strategy, known, range(1, 13), client) == {METHODS[name] + 2: KEPT}
    assert strategy.state.common is None
    assert not strategy.state.one
    assert len(strategy.state.communities.models) > 1


def _holding(strategy: Alternating, rounds: range) -> list[int]:
    """Return the rounds in which all clients hold out samples; in the others none does."""
    known, found = roster(12), []
    client = _saying(1.0, 2.0, strategy)
    for now in rounds:
        sent = _sent(strategy, known, now).values()
        (holds,) = {holds_out(ins.config) for ins in sent}
        found += [now] if holds else []
        play(strategy, known, range(now, now + 1), client=client)
    return found


@pytest.mark.parametrize("name", METHODS)
def test_samples_are_held_out_until_the_verdict_from_the_start_or_the_trial(name: str) -> None:
    begun = 0 if name == "ifca" else METHODS[name]
    expected = [*range(begun + 1, METHODS[name] + 2 + 1)]
    assert _holding(_method(name), range(1, 13)) == expected
    assert not _holding(_method(name, fallback=False), range(1, 13))


def test_without_several_models_or_with_a_privacy_no_samples_are_held_out_for_long() -> None:
    one = _method(communities=1)
    assert _holding(one, range(1, 13)) == [*range(1, BEGUN + 1)]
    assert not _holding(_method(private=True), range(1, BEGUN + 1))


def test_ifca_s_models_stay_that_serve_and_the_common_one_replaces_the_others(
    tmp_path: Path,
) -> None:
    strategy, known, end = _method(rounds=20), roster(12), 17  # ten after a third of twenty

    def client(client_id: int, start: Vector, server_round: int) -> FitRes:
        common = 3.0 if client_id % 3 == 0 else 1.0 + 0.01 * (-1) ** client_id
        return _saying(1.0, common, strategy)(client_id, start, server_round)

    play(strategy, known, range(1, end + 1), client=client)
    assert [event.kind for event in strategy.events] == [FELL_BACK]
    own = strategy.users()[0]
    assert dict(strategy.users()) == {c: own if c % 3 == 0 else 1 - own for c in range(12)}
    write(tmp_path, Checkpoint(end, *save(strategy.state)))
    after, kept = _method(rounds=20), read(tmp_path)
    load(after.state, kept.arrays, kept.state)
    for each in (strategy, after):
        for ins in _sent(each, known, end + 1).values():
            assert len(_models(ins)) == 2
            assert not asked(ins.config)
        play(each, known, range(end + 1, end + 3))
        assert each.rejections.by_client == {}
        assert len(each.state.communities.models) == 2
        assert not each.state.communities.members
    np.testing.assert_array_equal(after.attribute([3])[0], strategy.attribute([3])[0])


def test_rounds_of_the_common_model_leave_the_others_and_alternate_with_theirs() -> None:
    strategy, known = _method(), roster(12)
    client = _saying(*UNCLEAR, strategy)
    play(strategy, known, range(1, BEGUN + 1))
    state = strategy.state
    for now in range(BEGUN + 1, BEGUN + 4):
        common, models = state.common, state.communities.models.copy()
        assert common is not None
        trains_common = (now - BEGUN) % 2 == 1
        for ins in _sent(strategy, known, now).values():
            assert HELD_OUT in asked(ins.config)
            sent = _models(ins)
            np.testing.assert_array_equal(sent[-1], common)
            assert len(sent) == (1 if trains_common else 4)
        play(strategy, known, range(now, now + 1), client=client)
        assert np.array_equal(state.communities.models, models) == trains_common
        assert state.common is not None
        assert np.array_equal(state.common, common) != trains_common


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("skipped", [1, 2])
def test_a_skipped_round_of_a_trial_is_repeated(name: str, skipped: int) -> None:
    strategy, known = _method(name), roster(12)
    client = _saying(*UNCLEAR, strategy)
    begun = METHODS[name]
    play(strategy, known, range(1, begun + skipped), client=client)
    kinds, now = [strategy.trains_common], begun + skipped
    with pytest.raises(TooFewRepliesError):
        play(strategy, known, range(now, now + 1), client=lambda *_: None)
    for later in (now + 1, now + 2):
        kinds.append(strategy.trains_common)
        play(strategy, known, range(later, later + 1), client=client)
    assert kinds == ([True, True, False] if skipped == 1 else [False, False, True])


def test_the_common_model_starts_from_that_of_most_clients_and_is_a_mean_of_all() -> None:
    strategy, known = _method(), roster(13)  # one more of the first group
    play(strategy, known, range(1, BEGUN + 1))
    row = strategy.users()[0]
    start = strategy.state.communities.models[row].copy()
    np.testing.assert_array_equal(strategy.state.common, start)
    play(strategy, known, range(BEGUN + 1, BEGUN + 2))
    replies = [honest(client, start, BEGUN + 1) for client in range(13)]
    trained = [from_bytes(each.parameters.tensors[0]) for each in replies]
    expected = np.average(trained, axis=0, weights=[each.num_examples for each in replies])
    assert strategy.state.common is not None
    np.testing.assert_allclose(strategy.state.common, expected, atol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_models_that_do_not_serve_are_undone_for_good(name: str, tmp_path: Path) -> None:
    strategy, known = _method(name), roster(12)
    client = _saying(2.0, 1.0, strategy)
    end = METHODS[name] + LOOKS[0] - 1  # the last round of the method up to this look
    assert _kinds(strategy, known, range(1, end + 1), client) == {end: UNDONE}
    write(tmp_path, Checkpoint(end, *save(strategy.state)))
    after, kept = _method(name), read(tmp_path)
    load(after.state, kept.arrays, kept.state)
    for each in (strategy, after):
        for ins in _sent(each, roster(13), end + 1).values():
            assert len(_models(ins)) == 1
            assert not asked(ins.config)
        play(each, roster(13), range(end + 1, end + 2))
        models, rows = each.attribute([0, 5, 77])
        assert len({models[row].tobytes() for (row,) in rows}) == 1
        view = each.view(end + 1)
        assert view is not None
        assert view.client_ids.tolist() == list(range(13))
        assert not view.labels.any()
        assert each.outcome(end + 1).members == dict.fromkeys(range(13), 0)
    np.testing.assert_array_equal(after.attribute([3])[0], strategy.attribute([3])[0])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("done", range(1, 5))
def test_a_trial_goes_on_after_a_resume(name: str, done: int, tmp_path: Path) -> None:
    strategy, after, known = _method(name), _method(name), roster(12)
    done += METHODS[name]
    play(strategy, known, range(1, done), client=_saying(*UNCLEAR, strategy))
    assert strategy.state.common is not None
    write(tmp_path, Checkpoint(done - 1, *save(strategy.state)))
    kept = read(tmp_path)
    load(after.state, kept.arrays, kept.state)
    for each in (strategy, after):
        play(each, known, range(done, done + 3), client=_saying(*UNCLEAR, each))
    (arrays, values), (others, same) = save(strategy.state), save(after.state)
    assert values == same
    assert arrays.keys() == others.keys()
    for key, array in arrays.items():
        np.testing.assert_array_equal(array, others[key])


def test_while_all_clients_use_one_model_nothing_is_on_trial() -> None:
    strategy = _method(unchosen="keep", communities=1)
    play(strategy, roster(12), range(1, 10))
    assert strategy.state.common is None
    assert not strategy.state.judged


def test_the_search_for_initial_models_ends_before_the_trial() -> None:
    strategy, known = _method(restarts=1, trial_rounds=4), roster(12)
    play(strategy, known, range(1, 8))
    assert not strategy.state.judged
    play(strategy, known, range(8, 9))
    assert strategy.state.judged


def test_with_a_privacy_the_losses_judge_and_choose_nothing() -> None:
    strategy, known = _method(private=True, restarts=1, trial_rounds=5), roster(12)
    play(strategy, known, range(1, 12))
    state = strategy.state
    assert state.common is not None
    sent = _sent(strategy, roster(13), 12)
    for client, row in strategy.users().items():
        own, common = _models(sent[client])
        np.testing.assert_array_equal(own, state.communities.models[row])
        np.testing.assert_array_equal(common, state.common)
    # who has not chosen yet trains the common model, and nobody tells a loss
    (alone,) = _models(sent[12])
    np.testing.assert_array_equal(alone, state.common)
    assert not any(ins.config["tells_loss"] for ins in sent.values())
    before = state.communities.models.copy()
    play(strategy, roster(13), range(12, 13))
    assert strategy.rejections.by_client == {}
    assert 12 not in strategy.users()
    assert before.shape == state.communities.models.shape == (3, SIZE)


def test_with_a_privacy_auto_judges_nothing() -> None:
    strategy = _method(private=True, fallback="auto")
    play(strategy, roster(12), range(1, 20))
    assert not strategy.state.judged
