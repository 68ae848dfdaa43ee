"""Community discovery, late clustering and hierarchical clustering beyond the contract."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from flwr.common import FitRes

sys.path.insert(0, str(Path(__file__).parent))
from fl_app.params import from_bytes
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.communities import CommunityDiscovery
from fl_app.strategies.model_evaluation import GLOBAL
from fl_app.strategies.state import load, save
from fl_app.testing.toy import DETECTION, SIZE, TARGETS, context, honest, play, reply, roster
from fl_app.wiring import made

late = partial(made, "strategy=late")
hierarchical = partial(made, "strategy=hierarchical")
communities = partial(made, "strategy=communities")

Client = Callable[[int, np.ndarray, int], FitRes]

PLANTED = {frozenset(range(group, 12, 3)) for group in range(3)}


def _found(strategy: CommunityStrategy, server_round: int) -> set[frozenset[int]]:
    view = strategy.view(server_round)
    assert view is not None
    ids = view.client_ids
    return {frozenset(ids[view.labels == row].tolist()) for row in np.unique(view.labels)}


def _odd(strategy: CommunityDiscovery) -> set[int]:
    vectors = strategy.state.graph.vectors
    return set(vectors.client_ids[vectors.odd(vectors.order)].tolist())


BUILD = {
    "communities": communities,
    "communities 1nn": partial(communities, attribution="1nn"),
    "communities cosine": partial(communities, similarity="cosine"),
    "late": partial(late, cluster_round=3),
    "hierarchical": partial(hierarchical, participation=0.5, cluster_round=3, threshold=0.5),
}


@pytest.mark.parametrize("name", list(BUILD))
def test_planted_groups_are_found_and_models_reach_their_targets(name: str) -> None:
    strategy = BUILD[name](context())
    play(strategy, roster(12), range(1, 20))
    assert _found(strategy, 19) == PLANTED
    models, offers = strategy.attribute(range(12))
    for client, rows in enumerate(offers):
        target = TARGETS[client % 3]
        best = min(np.abs(models[row] - target).max() for row in rows)
        assert best < 0.05


def test_a_community_model_is_the_plain_mean_and_the_global_one_the_mean_of_those() -> None:
    known = roster(5)
    strategy = communities(context(), participation=1.0)
    play(strategy, known, range(1, 5))
    vectors = strategy.state.graph.vectors
    last = vectors.read(vectors.order)
    members = strategy.state.communities.members
    for row, model in enumerate(strategy.state.communities.models):
        mine = [client for client in range(5) if members[client] == row]
        np.testing.assert_allclose(model, last[mine].mean(axis=0), rtol=1e-6)
    means = strategy.state.communities.models.mean(axis=0)
    np.testing.assert_array_equal(strategy.state.global_model, means)
    weighed = communities(context(), participation=1.0, weighting="samples")
    play(weighed, known, range(1, 2))
    vectors = weighed.state.graph.vectors
    last = vectors.read(vectors.order)
    mine = [client for client in range(5) if weighed.state.communities.members[client] == 0]
    weights = [10.0 + client for client in mine]
    expected = np.average(last[mine], axis=0, weights=weights)
    np.testing.assert_allclose(weighed.state.communities.models[0], expected, rtol=1e-5)


def test_odd_updates_are_kept_in_mind_until_the_next_and_over_a_checkpoint() -> None:
    def client(client_id: int, start: np.ndarray, server_round: int) -> FitRes:
        if server_round == 2 and client_id in (1, 4):
            return reply(start if client_id == 1 else -10 * start)
        return honest(client_id, start, server_round)

    known = roster(12)
    strategy = communities(context(), participation=1.0, fallback=False)
    play(strategy, known, range(1, 3), client=client)
    assert _odd(strategy) == {1, 4}
    again = communities(context(), participation=1.0, fallback=False)
    load(again.state, *save(strategy.state))
    assert _odd(again) == {1, 4}
    play(strategy, known, range(3, 4), client=client)
    assert 1 not in _odd(strategy)


def test_two_replies_cannot_say_what_is_usual() -> None:
    known = roster(2)
    strategy = communities(context(), participation=1.0)
    play(strategy, known, range(1, 2), client=lambda client, start, r: reply(start * client))
    assert _odd(strategy) == set()


def test_newcomers_and_the_forgotten_get_the_global_model() -> None:
    known = roster(6)
    strategy = communities(context(), participation=1.0, max_age=2)
    play(strategy, known, range(1, 3))
    proxy = known.proxies()[0]
    known.unregister(proxy)
    play(strategy, known, range(3, 5))
    models, offers = strategy.attribute([0, 1, 77])
    for rows in (offers[0], offers[2]):
        np.testing.assert_array_equal(models[rows[0]], strategy.state.global_model)
    assert offers[1][0] < len(strategy.state.communities.models)
    assert 0 not in strategy.state.communities.members


def test_everyone_is_measured_on_the_global_model_too() -> None:
    known = roster(6)
    strategy = communities(context(), participation=1.0)
    play(strategy, known, range(1, 11))
    sent = strategy.configure_evaluate(10, strategy.initialize_parameters(known), known)
    by_client: dict[int, list[int]] = {}
    for proxy, ins in sent:
        by_client.setdefault(known.client_id(proxy), []).append(int(ins.config["community"]))
    assert all(rows[-1] == GLOBAL and len(rows) == 2 for rows in by_client.values())


@pytest.mark.parametrize("attribution", ["avg", "1nn", "wnn"])
def test_a_model_of_zeros_is_at_its_distance_and_parts_nobody(attribution: str) -> None:
    def zero(client: int, start: np.ndarray, server_round: int):
        answer = honest(client, start, server_round)
        return reply(np.zeros(SIZE, np.float32)) if client == 2 else answer

    strategy = communities(context(), participation=1.0, attribution=attribution)
    play(strategy, roster(12), range(1, 9), client=zero)
    assert strategy.rejections.by_client == {}
    assert {found - {2} for found in _found(strategy, 8)} - {frozenset()} == {
        group - {2} for group in PLANTED
    }


def _far_off(client: int, start: np.ndarray, server_round: int) -> FitRes:
    """Train as the others, but for one number: its updates are ordinary once it is far away."""
    model = from_bytes(honest(client, start, server_round).parameters.tensors[0]).copy()
    model[5] += 50
    return reply(model)


def _nearly_zero(client: int, start: np.ndarray, server_round: int) -> FitRes:
    """Send a model whose distance by the norms of its layers is 1e9, by an ordinary update."""
    return reply(np.full(SIZE, 1e-9, np.float32))


@pytest.mark.parametrize("lie", [_far_off, _nearly_zero])
@pytest.mark.parametrize("name", ["communities", "communities 1nn", "late"])
def test_a_far_model_with_ordinary_updates_merges_no_groups(name: str, lie: Client) -> None:
    def client(client_id: int, start: np.ndarray, server_round: int) -> FitRes:
        return (lie if client_id == 2 else honest)(client_id, start, server_round)

    strategy = BUILD[name](context(largest_update=1000, clip_update=2.0, rounds=20))
    strategy.sampler.participation = 1.0
    play(strategy, roster(12), range(1, 20), client=client)
    assert {found - {2} for found in _found(strategy, 19)} - {frozenset()} == {
        group - {2} for group in PLANTED
    }
    models, offers = strategy.attribute([0, 1])  # of the other groups
    for client_id, (row, *_) in enumerate(offers):
        np.testing.assert_allclose(models[row], TARGETS[client_id], atol=0.05)


def test_a_model_whose_own_distance_is_no_number_is_rejected_and_named() -> None:
    strategy = communities(context(), participation=1.0)
    strategy.between = lambda models, others, layout: np.full((len(models), 1), np.nan)
    with pytest.raises(ValueError, match="distance to itself must be finite, got nan"):
        strategy.cohort.check(np.ones(SIZE, np.float32), 10)


def test_mixtures_are_weighted_means_of_the_nearest_communities() -> None:
    strategy = communities(context(), participation=1.0, attribution="wnn", neighbours=2)
    play(strategy, roster(12), range(1, 4))
    models, ((row,),) = strategy.attribute([4])
    own = models[row]
    count = len(strategy.state.communities.models)
    assert row > count
    basis, *_ = np.linalg.lstsq(strategy.state.communities.models.T, own, rcond=None)
    np.testing.assert_allclose(basis.sum(), 1.0, rtol=1e-3)
    assert (np.abs(basis) > 1e-3).sum() <= 2


@pytest.mark.parametrize("first", [1, 2])
def test_the_whole_matrix_of_many_clients_is_shown_at_the_first_communities_alone(
    first: int,
) -> None:
    many = replace(DETECTION, sparse_above=5, neighbours=4)
    strategy = communities(context(detection=many), participation=1.0)
    shown = []
    for number in range(first, 4):  # the rounds before were skipped
        play(strategy, roster(12), range(number, number + 1))
        view = strategy.view(number)
        assert view is not None
        shown.append(view.similarity is not None)
    assert shown == [True] + [False] * (3 - first)


def test_all_clients_train_in_the_round_that_clusters_them_hierarchically() -> None:
    strategy = hierarchical(context(), participation=0.25, cluster_round=3, threshold=0.5)
    known = roster(12)
    sizes = []
    for server_round in range(1, 5):
        play(strategy, known, range(server_round, server_round + 1))
        sizes.append(len(strategy.cohort.client_ids))
    assert sizes == [3, 3, 12, 3]
    assert strategy.state.clustered_at == 3


def _unsplit(client: int, start: np.ndarray, server_round: int):
    """Train as if all clients were of one group, with noise that tells them apart."""
    noise = np.random.default_rng(client).normal(0, 1.0, SIZE)
    return reply((0.5 * start + noise).astype(np.float32))


def test_updates_of_an_undone_clustering_are_not_compared_with_those_of_a_later_round() -> None:
    strategy = hierarchical(
        context(rounds=24), participation=1.0, cluster_round=3, threshold=1.0, fallback="auto"
    )
    known = roster(12)
    for server_round in range(1, 12):
        known.absent = frozenset({0, 4} if server_round == 11 else ())
        play(strategy, known, range(server_round, server_round + 1), client=_unsplit)
    kinds = (strategy.state.undone_at, strategy.state.clustered_at)
    assert kinds == (None, 11)
    assert strategy.state.communities.members.keys() == set(range(12)) - {0, 4}
    view = strategy.view(11)
    assert view is not None
    assert view.client_ids.tolist() == sorted(set(range(12)) - {0, 4})
