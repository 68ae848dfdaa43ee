"""One model before the clustering round, one for each community after it."""

import sys
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from flwr.common import FitRes, Parameters

sys.path.insert(0, str(Path(__file__).parent))
from fl_app.params import from_bytes, to_bytes
from fl_app.strategies.outcome import CLUSTERED, FEDERATED, Event
from fl_app.strategies.replies import Replies, TooFewRepliesError
from fl_app.strategies.state import Communities
from fl_app.strategies.two_phase import TwoPhase
from fl_app.strategies.two_phase_state import TwoPhaseState
from fl_app.testing.toy import SIZE, context, play, reply, roster
from fl_app.types import Labels

CLIENTS = 6
FAR = Parameters([to_bytes(np.full(SIZE, 13.0, np.float32))], "numpy.ndarray")


class EvenAndOdd(TwoPhase):
    """Parts even from odd ids after round 2; client 5 was never heard of."""

    def remember(self, server_round: int, replies: Replies) -> None:
        """Note the rounds in which it is asked to remember."""
        self.remembered = [*getattr(self, "remembered", []), server_round]

    def is_due(self, server_round: int) -> bool:
        """After round 2."""
        return server_round >= 2

    def find(self) -> tuple[Labels, Labels]:
        """Even ids are community 0."""
        ids = np.arange(CLIENTS - 1)
        return ids, ids % 2

    def view(self, server_round: int) -> None:
        """Show nothing."""


def _strategy(participation: float = 1.0) -> EvenAndOdd:
    def mean(models: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return models.mean(axis=0)

    given = context()
    strategy = EvenAndOdd(given, participation=participation, rule=mean, fallback=False)
    strategy.state = TwoPhaseState(communities=Communities.of(given.initial))
    return strategy


def _counting(client: int, start: np.ndarray, server_round: int) -> object:
    """Move by 1 as an even client, by 3 as an odd one."""
    return reply((start + (3 if client % 2 else 1)).astype(np.float32))


def test_one_model_becomes_one_for_each_community() -> None:
    strategy, known = _strategy(), roster(CLIENTS)
    play(strategy, known, range(1, 3), client=_counting)
    # three clients move by 1 and three by 3: by 2 in each of two rounds
    np.testing.assert_array_equal(strategy.state.communities.models, np.full((2, SIZE), 4.0))
    assert strategy.state.clustered_at == 2
    assert strategy.state.communities.members == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}
    assert strategy.events == [Event("clustered", "2 communities of sizes [3, 2]")]
    play(strategy, known, range(3, 4), client=_counting)
    expected = np.stack([np.full(SIZE, 5.0), np.full(SIZE, 7.0)])
    np.testing.assert_array_equal(strategy.state.communities.models, expected)


def test_it_remembers_until_the_clustering_and_clusters_once() -> None:
    strategy = _strategy()
    play(strategy, roster(CLIENTS), range(1, 5), client=_counting)
    assert strategy.remembered == [1, 2]
    assert strategy.state.clustered_at == 2
    assert strategy.events == [], "nothing happens in the last round"


def test_phase_and_measurement_follow_the_clustering() -> None:
    strategy, known = _strategy(), roster(CLIENTS)
    found = []
    for server_round in range(1, 4):
        play(strategy, known, range(server_round, server_round + 1), client=_counting)
        outcome = strategy.outcome(server_round)
        found.append((outcome.phase, outcome.measures))
    assert found == [(FEDERATED, False), (CLUSTERED, True), (CLUSTERED, False)]


def test_after_the_clustering_each_community_is_sampled_by_itself() -> None:
    strategy, known = _strategy(participation=0.5), roster(CLIENTS)
    play(strategy, known, range(1, 3), client=_counting)
    asked = strategy.configure_fit(3, strategy.initialize_parameters(known), known)
    clients = [known.client_id(proxy) for proxy, _ in asked]
    # half of three and half of two, rounded: 2 and 1; client 5 belongs nowhere and is not asked
    assert [sum(c % 2 == rest for c in clients) for rest in (0, 1)] == [2, 1]
    assert 5 not in clients


def test_a_client_that_was_no_node_is_offered_every_model() -> None:
    strategy, known = _strategy(), roster(CLIENTS)
    play(strategy, known, range(1, 4), client=_counting)
    models, offers = strategy.attribute([0, 1, 5])
    assert [list(rows) for rows in offers] == [[0], [1], [0, 1]]
    assert models.shape == (2, SIZE)


def test_the_global_model_is_sent_before_the_clustering() -> None:
    strategy, known = _strategy(), roster(CLIENTS)
    play(strategy, known, range(1, 2), client=_counting)
    asked = strategy.configure_fit(2, strategy.initialize_parameters(known), known)
    sent = {from_bytes(ins.parameters.tensors[0]).tobytes() for _, ins in asked}
    assert sent == {np.full(SIZE, 2.0, np.float32).tobytes()}


def test_who_was_not_there_at_the_clustering_is_named_once_and_does_not_train() -> None:
    strategy, known = _strategy(), roster(CLIENTS)
    play(strategy, known, range(1, 4), client=_counting)
    told = "clients [5] have no community and do not train; strategy.joining=true lets them join"
    (event,) = strategy.events
    assert (event.kind, event.clients) == ("idle", [5])
    assert event.detail.startswith(told)
    play(strategy, known, range(4, 5), client=_counting)
    assert strategy.events == []
    assert 5 not in strategy.state.communities.members


def test_who_is_left_when_all_members_have_gone_is_named_in_the_skipped_rounds() -> None:
    strategy, known = _strategy(), roster(CLIENTS)
    play(strategy, known, range(1, 3), client=_counting)
    known.absent = frozenset(range(CLIENTS - 1))
    for server_round in (3, 4):
        with pytest.raises(TooFewRepliesError, match="all that belong to a community are absent"):
            play(strategy, known, range(server_round, server_round + 1), client=_counting)
        assert [(event.kind, event.clients) for event in strategy.events] == [("idle", [5])]


def test_with_joining_it_trains_the_model_that_it_chooses_and_is_a_member_then() -> None:
    def choosing(client: int, start: np.ndarray, server_round: int) -> FitRes:
        answer = cast(FitRes, _counting(client, start, server_round))
        if (client, server_round) == (5, 3):  # it is offered both models
            answer.metrics["choice"] = 1
            answer.parameters = FAR
        return answer

    strategy, known = _strategy(), roster(CLIENTS)
    strategy.joining = True
    play(strategy, known, range(1, 4), client=choosing)
    assert strategy.events == [Event("joined a community", "client 5 in community 1", [5])]
    assert strategy.state.communities.members[5] == 1
    # the odd clients move from 4 by 3, as clients 1 and 3 do, and client 5 to 13
    np.testing.assert_allclose(strategy.state.communities.models[1], 9.0)
    np.testing.assert_allclose(strategy.state.communities.models[0], 5.0)
    play(strategy, known, range(4, 5), client=choosing)
    assert strategy.events == []
    assert 5 in {known.client_id(known.all()[cid]) for cid in strategy.cohort.asked}
