"""The contract of `graph.contrast`: every method finds groups, and one community without any."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from contrasted import CLIENTS, MANY, METHODS, ROUNDS, built, grouped, wide, widen
from flwr.common import FitRes
from methods import builder

from fl_app import config
from fl_app.config import ConfigError
from fl_app.graph.client_graph import ClientGraph
from fl_app.graph.detection import BySignificance
from fl_app.params import Layout
from fl_app.server_wiring import strategy
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.graph_use import (
    add_updates,
    by_significance,
    graph_of_sums,
    labels_of_sums,
)
from fl_app.strategies.replies import Replies
from fl_app.strategies.state import load, save
from fl_app.testing.toy import DETECTION, context, parts, play, reply, roster

EVERY_ROUND = ("communities", "communities_1nn", "communities_wnn", "dcfl")


@pytest.fixture(autouse=True)
def _wide_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let toy clients compare models of MANY parameters."""
    widen(monkeypatch)


@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.parametrize("name", list(METHODS))
def test_groups_are_found_and_no_others(name: str, participation: float) -> None:
    seed = int(participation < 1.0)
    for groups in (3, 1):
        strategy = built(name, seed=seed, participation=participation)
        rounds = range(1, ROUNDS + 1 if participation == 1.0 else 2 * ROUNDS)
        play(strategy, roster(CLIENTS), rounds, client=grouped(groups, seed))
        expected = {frozenset(range(group, CLIENTS, groups)) for group in range(groups)}
        assert parts(strategy) == expected


@pytest.mark.parametrize("name", list(METHODS))
def test_the_view_has_the_similarity_in_which_communities_were_found(name: str) -> None:
    strategy = built(name)
    play(strategy, roster(CLIENTS), range(1, ROUNDS + 1), client=grouped(3, 0))
    view = strategy.view(ROUNDS)
    assert view is not None
    assert view.distance is None
    assert view.similarity is not None
    same = view.labels[:, None] == view.labels
    np.fill_diagonal(same, False)
    across = view.labels[:, None] != view.labels
    assert view.similarity[same].mean() > 2 * view.similarity[across].mean()
    assert (view.similarity >= 0).all()


@pytest.mark.parametrize("name", list(METHODS))
def test_a_resumed_run_is_the_same(name: str) -> None:
    straight, first, second = (built(name, participation=0.5) for _ in range(3))
    play(straight, roster(CLIENTS), range(1, 11), client=grouped(3, 0))
    play(first, roster(CLIENTS), range(1, 6), client=grouped(3, 0))
    load(second.state, *save(first.state))
    play(second, roster(CLIENTS), range(6, 11), client=grouped(3, 0))
    assert second.state.communities.members == straight.state.communities.members
    np.testing.assert_array_equal(
        second.state.communities.models, straight.state.communities.models
    )


@pytest.mark.parametrize("name", list(METHODS))
def test_a_round_of_two_replies_which_have_no_common_drift_is_shown(name: str) -> None:
    def two(number: int, start: np.ndarray, server_round: int) -> FitRes | None:
        return grouped(3, 0)(number, start, server_round) if number < 2 else None

    strategy = built(name)
    play(strategy, roster(CLIENTS), range(1, 2), client=two)
    outcome = strategy.outcome(1)
    assert outcome.view is None or set(outcome.members) <= set(outcome.view.client_ids.tolist())


SEARCHED = (2, 3, 4, 5, 6, 7, 9, 11, 14)
"""The rounds in which communities are looked for again after one community in round 2."""


def _faint(number: int, start: np.ndarray, server_round: int) -> FitRes:
    """Return a model of one of three groups that shows among the noise of some rounds only."""
    draw = np.random.default_rng((number, server_round))
    step = 0.35 * np.eye(3, MANY)[number % 3] + draw.normal(0, 0.1, MANY)
    return reply((start + step).astype(np.float32))


def _looking(name: str) -> CommunityStrategy:
    return builder(name, participation=1.0, cluster_round=2)(wide(rounds=20))


@pytest.mark.parametrize("name", ["flic", "late", "hierarchical"])
def test_groups_that_one_look_does_not_see_are_looked_for_again(name: str) -> None:
    strategy = _looking(name)
    found, counts = list[int](), list[int]()
    for server_round in range(1, 13):
        now = range(server_round, server_round + 1)
        before = strategy.state.searches
        play(strategy, roster(CLIENTS), now, client=_faint)
        found += [server_round] * (strategy.state.searches - before)
        counts.append(len(strategy.state.communities.models))
    assert counts[1] == 1
    assert counts[-1] == 3
    assert tuple(found) == SEARCHED[: len(found)]
    assert strategy.state.clustered_at == found[-1]
    assert counts.index(3) == found[-1] - 1  # and never again
    assert len(parts(strategy)) == 3


@pytest.mark.parametrize("name", ["flic", "late", "hierarchical"])
def test_a_run_resumed_between_two_looks_goes_on_looking(name: str) -> None:
    straight, first, second = (_looking(name) for _ in range(3))
    play(straight, roster(CLIENTS), range(1, 13), client=_faint)
    play(first, roster(CLIENTS), range(1, 4), client=_faint)
    assert len(first.state.communities.models) == 1
    load(second.state, *save(first.state))
    play(second, roster(CLIENTS), range(4, 13), client=_faint)
    assert len(straight.state.communities.models) == 3
    for one, other in zip(save(straight.state), save(second.state), strict=True):
        assert one.keys() == other.keys()
    assert second.state.searches == straight.state.searches
    assert second.state.clustered_at == straight.state.clustered_at
    assert second.state.communities.members == straight.state.communities.members
    np.testing.assert_array_equal(
        second.state.communities.models, straight.state.communities.models
    )


@pytest.mark.parametrize("name", ["flic", "late", "hierarchical"])
def test_one_community_stays_one_however_often_it_is_searched(name: str) -> None:
    strategy = _looking(name)
    play(strategy, roster(CLIENTS), range(1, SEARCHED[-1] + 1), client=grouped(1, 0))
    assert strategy.state.searches == len(SEARCHED)
    assert strategy.state.clustered_at == 2
    assert len(strategy.state.communities.models) == 1


@pytest.mark.parametrize("name", list(METHODS))
def test_too_few_clients_for_a_drift_stay_together(name: str) -> None:
    strategy = built(name)
    play(strategy, roster(2), range(1, 9), client=grouped(3, 0))
    assert len(strategy.state.communities.models) == 1
    assert np.isfinite(strategy.state.communities.models).all()


@pytest.mark.parametrize("name", ["flic", "late", "hierarchical"])
def test_nobody_is_clustered_before_a_round_of_enough_replies(name: str) -> None:
    options = {"max_age": 1} if name == "late" else {}
    strategy = built(name, cluster_round=6, **options)
    found = dict[int, list[str]]()
    for now, clients in enumerate((3 if name == "late" else 2, *[2] * 7, CLIENTS), 1):
        play(strategy, roster(clients), range(now, now + 1), client=grouped(3, 0))
        found[now] = [event.kind for event in strategy.events]
        view = strategy.view(now)
        assert view is None or len(view.labels)
    assert {now: kinds for now, kinds in found.items() if kinds} == {9: ["clustered"]}
    assert strategy.state.searches == 1


@pytest.mark.parametrize("name", ["flic", "late"])
def test_a_look_ahead_before_the_clustering_sees_one_community_in_noise(name: str) -> None:
    strategy = built(name)
    for groups in (1, 3):
        strategy = built(name)
        for server_round in range(1, 5):
            now = range(server_round, server_round + 1)
            play(strategy, roster(CLIENTS), now, client=grouped(groups, 0))
            view = strategy.view(server_round)
            assert view is not None
            assert strategy.state.communities.members == {}
        assert view.labels.max() + 1 == groups


def _graph_of_groups(labels: list[int]) -> ClientGraph:
    """Return a graph of cumulated updates that point to the unit vector of each client's group."""
    given = context(contrast=True)
    graph = graph_of_sums(given, by_significance(given))
    for client, group in enumerate(labels):
        noise = 0.01 * np.random.default_rng(client).normal(size=MANY)
        graph.put(client, (np.eye(MANY)[group] + noise).astype(np.float32), 1)
    return graph


def test_communities_stay_if_new_ones_only_join_them() -> None:
    graph, ids = _graph_of_groups([0, 0, 0, 0, 1, 1, 1, 1, 1]), np.arange(9)
    alone = labels_of_sums(graph, ids, {})
    assert alone.tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 0]
    # communities 0 and 1 are inside the first group; client 8 is new, and like those of 2
    finer = {0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 2, 6: 2, 7: 2}
    assert labels_of_sums(graph, ids, finer).tolist() == [1, 1, 2, 2, 0, 0, 0, 0, 0]
    # these cross the groups
    crossing = {client: client % 2 for client in range(9)}
    assert labels_of_sums(graph, ids, crossing).tolist() == alone.tolist()
    # a client without an update is in the largest community
    assert labels_of_sums(graph, np.array([*range(9), 99]), {}).tolist() == [*alone.tolist(), 0]


@pytest.mark.parametrize("name", EVERY_ROUND)
def test_communities_do_not_vanish_while_their_updates_are_noise(name: str) -> None:
    """Once each community is at its target, its updates say nothing of groups any more."""
    strategy, counts = built(name), list[int]()
    for server_round in range(1, 26):
        now = range(server_round, server_round + 1)
        play(strategy, roster(CLIENTS), now, client=grouped(3, 0))
        counts.append(len(strategy.state.communities.models))
    found = counts.index(3)
    assert set(counts[found:]) == {3}


@pytest.mark.parametrize("name", ["flic", "cfl", "dcfl"])
def test_rounds_of_a_large_bound_do_not_hide_groups_in_rounds_of_a_small_one(name: str) -> None:
    """Signal and noise follow a bound that falls tenfold in three rounds: every round tells."""

    def client(number: int, start: np.ndarray, server_round: int) -> FitRes:
        draw = np.random.default_rng((number, server_round))
        step = 0.3 * np.eye(3, MANY)[number % 3] + 0.1 * draw.normal(size=MANY)
        return reply((start + 10 ** (3 - server_round / 3) * step).astype(np.float32))

    found = {}
    for varies in (False, True):
        given = context(
            contrast=True, noise_varies=varies, rounds=20, layout=Layout(("w",), ((2, 100),), 1),
            initial=np.zeros(MANY, np.float32), detection=replace(DETECTION, backend="fast"),
            largest_update=None,
        )  # fmt: skip
        strategy = builder(name, participation=1.0, **METHODS[name])(given)
        play(strategy, roster(CLIENTS), range(1, 13), client=client)
        found[varies] = len(strategy.state.communities.models)
    assert found == {False: 1, True: 3}


def test_options_without_effect_are_refused() -> None:
    given = ["strategy=communities_1nn", "strategy.exponent=2.0"]
    config.load(given)
    with pytest.raises(ConfigError, match=r"strategy.exponent must stay 3.0 with graph.contrast"):
        config.load([*given, "graph.contrast=true"])
    # sums of sketches are sketches of sums, whatever distance the method has without contrast
    config.load(["strategy=late", "graph.contrast=true", "graph.store=sketch"])


@pytest.mark.parametrize(("number", "look"), [(lambda: 3, 3), (None, 7)])
def test_a_test_is_as_strict_as_its_number_or_after_every_round_as_that_of_the_round(
    monkeypatch: pytest.MonkeyPatch, number: Callable[[], int] | None, look: int
) -> None:
    looks = []

    def watched(cosine: np.ndarray, partition: object, **given: int) -> np.ndarray:
        looks.append((given["look"], given["parameters"]))
        return np.zeros(len(cosine), int)

    monkeypatch.setattr("fl_app.graph.detection.significant", watched)
    found = BySignificance(lambda _: lambda s: np.zeros(len(s), int), number)
    graph = graph_of_sums(context(contrast=True), found)
    for client in range(3):
        graph.put(client, np.eye(MANY, dtype=np.float32)[client], 5 + client)
    found(graph, np.arange(3))
    assert looks == [(look, MANY)]


@pytest.mark.parametrize("participation", [1.0, 0.4])
@pytest.mark.parametrize(("steps", "noise"), [(1.0, 3.0), (0.1, 0.01), (0.1, 1.0), (0.3, 0.3)])
def test_clients_of_two_sizes_are_one_community(
    steps: float, noise: float, participation: float
) -> None:
    """Half of 24 clients have few samples, so fewer steps, or more noise as under DP-SGD."""
    draw, layout = np.random.default_rng(0), Layout(("w",), ((2000,),), 1)
    given = context(contrast=True, layout=layout)
    graph = graph_of_sums(given, by_significance(given, lambda: 1))
    few, drift = np.arange(24)[:, None] % 2 == 1, draw.normal(size=2000)
    sent = np.zeros((1, 2000), np.float32)
    for server_round in range(1, 17):
        ids = np.sort(draw.choice(24, int(24 * participation), replace=False))
        own = np.where(few, noise, min(noise, 1.0)) * draw.normal(size=(24, 2000))
        now = np.where(few, steps, 1.0) * (drift + 0.5 * draw.normal(size=2000))
        models, one = -(now + own)[ids].astype(np.float32), np.zeros(len(ids), int)
        replies = Replies(ids, models, one, *np.ones((3, len(ids))))
        add_updates(graph, given, server_round, replies, sent, one)
    assert graph.labels().max() == 0


@pytest.mark.parametrize(
    ("words", "varies"),
    [
        ([], False),
        (["privacy=local_dp"], False),
        (["privacy=local_dp", "privacy.quantile=0.5"], True),
        (["privacy=sample_dp"], False),
    ],
)
def test_rounds_count_equally_where_the_bound_adapts(words: list[str], varies: bool) -> None:
    found = config.load(["data=digits", "strategy=flic", "graph.contrast=true", *words])
    assert strategy(found).context.noise_varies is varies
