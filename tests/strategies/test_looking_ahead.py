"""Looks at the graph before the clustering, and what they leave to it."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from contrasted import CLIENTS, MANY, ROUNDS, built, grouped, widen
from flwr.common import FitRes

from fl_app.graph.client_graph import ClientGraph
from fl_app.graph.detection import BySignificance
from fl_app.graph.measures import Cosine
from fl_app.strategies.graph_use import with_nearest
from fl_app.strategies.state import load, save
from fl_app.testing.toy import parts, play, reply, roster

FITTED = 9
"""The round from which on clients of `_fitted` send what is their own."""


@pytest.fixture(autouse=True)
def _wide_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let toy clients compare models of MANY parameters."""
    widen(monkeypatch)


def _fitted(number: int, start: np.ndarray, server_round: int) -> FitRes:
    """Return a model of one of three groups, or once the samples are fitted, of one client."""
    own = server_round >= FITTED
    target = np.eye(3 + CLIENTS, MANY)[3 + number if own else number % 3]
    noise = np.random.default_rng((number, server_round)).normal(0, 0.05, MANY)
    return reply((start + (2.0 if own else 0.5) * target + noise).astype(np.float32))


@pytest.mark.parametrize("name", ["flic", "late"])
def test_groups_that_were_significant_stay_when_only_what_is_each_clients_own_grows(
    name: str,
) -> None:
    strategy = built(name, cluster_round=ROUNDS, participation=0.75)
    blind = built(name, cluster_round=ROUNDS, participation=0.75)
    blind.context = replace(blind.context, look_ahead_every=0)
    for each in (strategy, blind):
        play(each, roster(CLIENTS), range(1, ROUNDS + 1), client=_fitted)
    assert parts(strategy) == {frozenset(range(group, CLIENTS, 3)) for group in range(3)}
    assert len(parts(blind)) == 1, "no look was before that of the clustering"
    assert strategy.state.seen == {}, "a clustering that is undone is not found by memory"  # type: ignore[attr-defined]


def test_seen_groups_are_in_a_resumed_run_and_new_clients_join_the_nearest() -> None:
    strategy, resumed = (built("flic", cluster_round=ROUNDS) for _ in range(2))
    play(strategy, roster(CLIENTS - 1), range(1, FITTED), client=_fitted)
    load(resumed.state, *save(strategy.state))
    play(resumed, roster(CLIENTS), range(FITTED, FITTED + 1), client=grouped(3, 0))
    play(resumed, roster(CLIENTS), range(FITTED + 1, ROUNDS + 1), client=_fitted)
    assert parts(resumed) == {frozenset(range(group, CLIENTS, 3)) for group in range(3)}


def test_no_test_of_the_clients_has_the_number_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = list[int]()

    def watched(cosine: np.ndarray, partition: object, **given: int) -> np.ndarray:
        looks.append(given["look"])
        return np.zeros(len(cosine), int)

    monkeypatch.setattr("fl_app.graph.detection.significant", watched)
    play(built("flic", cluster_round=4), roster(CLIENTS), range(1, 9), client=grouped(3, 0))
    # clusterings after the rounds 4 to 8, each stricter than the one before
    assert looks == [2, 4, 6, 1, 3, 5, 7, 9]


def test_a_new_client_joins_the_community_that_it_is_most_like() -> None:
    found = BySignificance(lambda _: lambda s: np.zeros(len(s), int), lambda: 1)
    graph = ClientGraph(Cosine(), found)
    for client, place in enumerate((0, 0, 1, 1, 1)):
        graph.put(client, np.eye(3, MANY, dtype=np.float32)[place], 1)
    before = np.array([7, 7, 2, 2, -1])
    assert with_nearest(graph, np.arange(5), before).tolist() == [1, 1, 0, 0, 0]
    assert with_nearest(graph, np.arange(2), np.array([-1, -1])).tolist() == [0, 0]
