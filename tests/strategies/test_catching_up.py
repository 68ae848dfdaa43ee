"""Last models of absent clients that follow their communities."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_app.aggregation import weighted_mean
from fl_app.graph.rows_on_disk import OnDisk
from fl_app.graph.vector_backends import VectorBackend
from fl_app.graph.vectors import ClientVectors
from fl_app.records.checkpoint import Checkpoint, read, write
from fl_app.strategies.catching_up import move, steps_of
from fl_app.strategies.changing import ChangingCommunities
from fl_app.strategies.late import Late
from fl_app.strategies.outcome import CLUSTERED, FEDERATED
from fl_app.strategies.replies import Replies
from fl_app.strategies.state import load, save
from fl_app.testing.toy import TARGETS, builder, context, play, roster

METHODS = ["communities", "dcfl"]
CLIENTS = range(12)


def _built(
    name: str, *, backend: object = None, private: bool = False, rounds: int = 10, **changes: object
) -> ChangingCommunities:
    usual = {"vector_backend": backend} if backend else {}
    settings = {"participation": 1.0, "fallback": False, **changes}
    made = builder(name, **settings)(context(private=private, rounds=rounds, **usual))
    assert isinstance(made, ChangingCommunities)
    return made


def _replies(models: np.ndarray, starts: list[int], weights: list[float]) -> Replies:
    ones = np.ones(len(models))
    return Replies(np.arange(len(models)), models, np.array(starts), ones, ones, np.array(weights))


def test_absent_members_move_by_less_than_the_weighted_mean_step_of_those_that_trained() -> None:
    sent = np.array([[1, 1], [5, 5]], np.float32)
    models = np.array([[2, 1], [4, 1], [6, 9], [0, 0]], np.float32)
    members = {0: 0, 1: 0, 2: 1, 9: 2}  # client 3 is a newcomer, client 9 is absent
    found = steps_of(
        _replies(models, [0, 0, 1, 0], [1, 3, 1, 1]), sent, members, weighted_mean,
        np.array([1.0, 3, 1, 1]),
    )  # fmt: skip
    assert found.keys() == {0, 1}
    np.testing.assert_allclose(found[0], [5 / 3, 0], rtol=1e-6)  # 2 / 3 (1 * 1 + 3 * 3) / 4
    np.testing.assert_allclose(found[1], [0.5, 2])


def test_every_part_of_a_vector_moves_if_the_client_is_known_and_its_community_trained() -> None:
    vectors = ClientVectors()
    for client in (3, 4, 5):
        vectors.put(client, np.array([client, 0, 0, 1], np.float32), 1)
    steps = {0: np.array([10, 1], np.float32)}
    move(vectors, [5, 3, 7], {3: 0, 4: 0, 5: 1, 7: 0}, steps)
    after = vectors.read(vectors.rows_of([3, 4, 5]))
    np.testing.assert_array_equal(after, [[13, 1, 10, 2], [4, 0, 0, 1], [5, 0, 0, 1]])
    assert vectors.rounds().tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", METHODS)
def test_the_model_of_a_community_takes_the_step_of_who_trained_also_for_who_did_not(
    name: str,
) -> None:
    strategy, known = _built(name, catch_up=True), roster(12)
    play(strategy, known, range(1, 4))
    before, size = strategy.state, len(TARGETS[0])
    members, models = dict(before.communities.members), before.communities.models.copy()
    last = {c: before.moved.read(before.moved.rows_of([c]))[0].copy() for c in CLIENTS}
    known.absent = frozenset({0, 4})
    play(strategy, known, range(4, 5))
    vectors = strategy.state.graph.vectors
    sent_back = {c: vectors.read(vectors.rows_of([c]))[0, -size:] for c in CLIENTS}
    assert strategy.state.communities.members == members
    for row, model in enumerate(strategy.state.communities.models):
        mates = [c for c in CLIENTS if members[c] == row]
        steps = [sent_back[c] - models[row] for c in mates if c not in known.absent]
        step = np.sum(steps, axis=0) / (len(steps) + 1)
        followed = [last[c] + step if c in known.absent else sent_back[c] for c in mates]
        np.testing.assert_allclose(model, np.mean(followed, axis=0), rtol=1e-5, atol=1e-6)
    for client in known.absent:  # in the graph, it is as it was
        np.testing.assert_array_equal(sent_back[client], last[client])


@settings(deadline=None, max_examples=15)
@given(
    st.sampled_from(METHODS), st.integers(1, 6), st.sampled_from([3, 6, 12]),
    st.sampled_from([False, "auto"]),
)  # fmt: skip
def test_without_absent_clients_nothing_changes(
    name: str, rounds: int, clients: int, fallback: object
) -> None:
    how = {"fallback": fallback}
    follow, stay = (_built(name, catch_up=catch_up, **how) for catch_up in (True, False))
    for each in (follow, stay):
        play(each, roster(clients), range(1, rounds + 1))
    assert follow.state.communities.members == stay.state.communities.members
    np.testing.assert_array_equal(follow.state.communities.models, stay.state.communities.models)
    np.testing.assert_array_equal(follow.state.global_model, stay.state.global_model)


@pytest.mark.parametrize("name", METHODS)
def test_a_community_of_which_few_train_is_nearer_to_its_target(name: str) -> None:
    apart = {}
    for catch_up in (True, False):
        strategy, known = _built(name, participation=0.4, catch_up=catch_up), roster(12)
        play(strategy, known, range(1, 12))
        members, models = strategy.state.communities.members, strategy.state.communities.models
        apart[catch_up] = max(
            float(np.abs(models[row] - TARGETS[client % 3]).max())
            for client, row in members.items()
        )
    assert apart[True] < apart[False] / 1.5


def _on_disk(*, length: int, whole: bool) -> VectorBackend:
    return OnDisk(capacity=12)


@pytest.mark.parametrize("name", METHODS)
def test_by_default_models_follow_where_splits_are_judged_and_vectors_are_exact(name: str) -> None:
    auto = partial(_built, name, catch_up="auto")
    assert auto(fallback="auto").catches_up
    assert not auto(fallback=False).catches_up
    assert not auto(fallback="auto", private=True).catches_up
    assert not auto(fallback="auto", backend=_on_disk).catches_up
    assert _built(name, catch_up=True, backend=_on_disk).catches_up
    assert not _built(name, catch_up=False, fallback="auto").catches_up


@pytest.mark.parametrize("name", METHODS)
def test_all_train_one_model_until_most_were_heard_of(name: str) -> None:
    strategy, known = _built(name, participation=0.5, catch_up=True), roster(12)
    found, told, phases = [], [], []
    for now in range(1, 6):  # a half, 3 quarters, 7 eighths are heard of; then 15 sixteenths
        play(strategy, known, range(now, now + 1))
        found.append((strategy.gathers(now), len(strategy.state.communities.models)))
        told.append([event.kind for event in strategy.events])
        phases.append(strategy.outcome(now).phase)
    assert [gathers for gathers, _ in found] == [True, True, True, False, False]
    assert [count for _, count in found[:3]] == [1, 1, 1]
    assert found[-1][1] == 3
    assert phases == [FEDERATED] * 3 + [CLUSTERED] * 2
    assert told[:3] == [[], [], []]
    assert told[3] == (["clustered"] if name == "dcfl" else [])


@pytest.mark.parametrize(("participation", "rounds"), [(1.0, 0), (0.9, 0), (0.5, 3), (0.01, 3)])
def test_after_a_third_of_the_rounds_nobody_waits_any_more(
    participation: float, rounds: int
) -> None:
    strategy = _built("communities", participation=participation, catch_up=True)
    waits = [now for now in range(1, 11) if strategy.gathers(now)]
    assert waits == [*range(1, rounds + 1)]
    stays = _built("communities", participation=participation, catch_up=False)
    assert not any(stays.gathers(now) for now in range(1, 11))


def test_while_all_train_one_model_the_graph_moves_along_too() -> None:
    strategy, known = _built("communities", participation=0.5, catch_up=True), roster(12)
    play(strategy, known, range(1, 2))
    state, vectors = strategy.state, strategy.state.graph.vectors
    heard = vectors.client_ids.tolist()
    before = vectors.read(vectors.rows_of(heard)).copy()
    model = state.communities.models[0].copy()
    play(strategy, known, range(2, 3))
    cohort = strategy.cohort.client_ids
    mates = [c for c in cohort if c in heard]
    step = (vectors.read(vectors.rows_of(mates)) - model).sum(axis=0) / (len(mates) + 1)
    for client, last in zip(heard, before, strict=True):
        if client not in cohort:
            (now,) = vectors.read(vectors.rows_of([client]))
            np.testing.assert_allclose(now, last + step, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_run_may_let_models_follow_and_keeps_its_communities(
    name: str, tmp_path: Path
) -> None:
    before = _built(name, participation=0.4, catch_up=False)
    play(before, roster(12), range(1, 5))
    assert len(before.state.communities.models) > 1
    write(tmp_path, Checkpoint(4, *save(before.state)))
    kept, after = read(tmp_path), _built(name, participation=0.4, catch_up=True, rounds=100)
    load(after.state, kept.arrays, kept.state)
    assert not after.gathers(5)
    play(after, roster(12), range(5, 6))
    heard = after.state.graph.vectors.client_ids
    np.testing.assert_array_equal(after.state.moved.client_ids, heard)
    assert after.state.communities.members.keys() == {*heard.tolist()}


def test_in_late_clustering_absent_clients_move_by_the_mean_step_of_the_one_model() -> None:
    settings = {"participation": 1.0, "cluster_round": 6, "fallback": False, "catch_up": True}
    strategy, known = builder("late", **settings)(context()), roster(5)
    play(strategy, known, range(1, 3))
    assert isinstance(strategy, Late)
    vectors, (model,) = strategy.state.graph.vectors, strategy.state.communities.models.copy()
    before = vectors.read(vectors.rows_of([0, 4])).copy()
    known.absent = frozenset({0, 4})
    play(strategy, known, range(3, 4))
    weights = np.array([11.0, 12, 13])  # the samples of clients 1 to 3, without a cap
    steps = vectors.read(vectors.rows_of([1, 2, 3])) - model[: vectors.length]
    step = 3 / 4 * (weights / weights.sum()) @ steps
    after = vectors.read(vectors.rows_of([0, 4]))
    np.testing.assert_allclose(after, before + step, rtol=1e-5, atol=1e-6)
    assert vectors.rounds().tolist() == [2, 3, 3, 3, 2]


def test_late_clustering_follows_by_default_where_it_is_judged() -> None:
    def late(**changes: object) -> Late:
        made = builder("late", **changes)(context())
        assert isinstance(made, Late)
        return made

    assert late(fallback="auto").catches_up
    assert not late(fallback=False).catches_up
    assert late(fallback=False, catch_up=True).catches_up
