"""The loop waits for clients, goes on with fewer, plays a round again, and gives up plainly."""

import json
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import make_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.common import EvaluateIns, FitIns, FitRes
from flwr.supercore.run import RunNotRunningException

import fl_app.report.figures
from fl_app.config import load
from fl_app.data.schedule import Schedule
from fl_app.engines import connections, figures, stop_request
from fl_app.engines.introductions import Introductions
from fl_app.engines.loop import RoundLoop
from fl_app.engines.plain_exchange import PlainExchange
from fl_app.engines.puller import Silence
from fl_app.engines.round_aggregation import ATTEMPTS
from fl_app.engines.round_reporter import RoundReporter
from fl_app.engines.shortage import NodeWait, TooFewNodesError
from fl_app.engines.trained_round import TrainedRound, times
from fl_app.params import from_bytes
from fl_app.records import checkpoint
from fl_app.records.history import FIELDS, SPENT, read_rounds, untrained
from fl_app.records.recorder import Recorder
from fl_app.records.results import summarise
from fl_app.records.run_state import SupersededError
from fl_app.strategies.model_evaluation import TEST_LOSS, Scores
from fl_app.strategies.outcome import CLUSTERED, Event, Outcome, View
from fl_app.strategies.replies import (
    ClientFailure,
    LostClient,
    LostRepliesError,
    RejectedReply,
    TooFewRepliesError,
)
from fl_app.strategies.roster import Identity, Roster
from fl_app.wiring import made

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "strategies"))
from fl_app.testing.toy import Proxy, context, honest

CLIENTS = 3
Instructions = Sequence[tuple[Proxy, FitIns]]


class Federation:
    """In place of the messenger: clients answer but for those that `fails` names in a fit.

    `joins` says which clients have come by a look at the introductions; `rejected` and `failed`
    are nodes that are refused.
    """

    def __init__(self, known: Roster, joins: Callable[[int], set[int]]) -> None:
        self.known, self.joins = known, joins
        self.fails: Callable[[int, int], ClientFailure | None] = lambda client, fit: None
        self.outside = Introductions()
        self.looks = self.fits = 0

    def introduce(self) -> Introductions:
        self.looks += 1
        for client in self.joins(self.looks) - set(self.known.proxies()):
            proxy = Proxy(f"node-{client}")
            self.known.register(proxy)
            self.known.introduce(proxy, Identity(client, -1, 10 + client))
        return self.outside

    def fit(self, server_round: int, instructions: Instructions) -> tuple[Any, Any]:
        self.fits += 1
        results: list[tuple[Proxy, FitRes]] = []
        failures = []
        for proxy, ins in instructions:
            client = self.known.client_id(proxy)
            failure = self.fails(client, self.fits)
            if failure is None:
                start = from_bytes(ins.parameters.tensors[0])
                results.append((proxy, honest(client, start, server_round)))
                continue
            failures.append(failure)
            if isinstance(failure, LostClient):
                self.known.doubt(proxy)
        return results, failures

    def evaluate(
        self, server_round: int, instructions: Sequence[tuple[Proxy, EvaluateIns]]
    ) -> tuple[Any, Any]:
        return [], []


class Played:
    """A loop over such a federation, with its folder."""

    def __init__(
        self,
        folder: Path,
        joins: Callable[[int], set[int]],
        least: int,
        rounds: int = 3,
        resume: bool = False,
        restarts: int = 0,
        fewest: int = 1,
    ) -> None:
        self.folder, self.rounds = folder, rounds
        recorder = Recorder(
            folder,
            identity={"strategy": "fedavg", "engine": "inprocess", "seed": 0},
            config_yaml="",
            checkpoint_every=1,
            snapshot_rounds=(),
            resume=resume,
            restarts=restarts,
        )
        strategy = made(
            "strategy=fedavg",
            context(rounds=rounds, min_success=least, evaluate_every=1),
            participation=1.0,
        )
        exchange = PlainExchange(strategy)
        exchange.fewest = fewest
        self.loop = RoundLoop(
            strategy=strategy,
            exchange=exchange,
            recorder=recorder,
            clients=CLIENTS,
            round_timeout_s=None,
            connect_timeout_s=0.05,
            figures=False,
        )
        self.federation = Federation(self.loop.roster, joins)
        self.loop.messenger = self.loop.connections.introducer = self.federation  # type: ignore[assignment]

    def __call__(self) -> list[dict[str, Any]]:
        self.loop.fit(self.rounds, None)
        return read_rounds(self.folder)

    def summary_after(self, rounds: int) -> dict[str, Any]:
        """Return the summary after so many rounds."""
        self.rounds = rounds
        self()
        return self.summary

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads((self.folder / "summary.json").read_text())


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Played]:
    monkeypatch.setattr(connections, "POLL_S", 0.01)

    def build(
        joins: Callable[[int], set[int]] = lambda look: {0, 1, 2},
        least: int = 1,
        rounds: int = 3,
        fewest: int = 1,
    ) -> Played:
        return Played(tmp_path / "run", joins, least, rounds, fewest=fewest)

    return build


def lost(client: int) -> LostClient:
    """Return the failure of a client whose node is gone."""
    return LostClient(client, "the node is gone")


def served_clients(folder: Path) -> dict[str, Any]:
    """Return the model of each client by serving.json."""
    found: dict[str, Any] = json.loads((folder / "serving.json").read_text())["clients"]
    return found


def test_all_are_waited_for_and_nobody_is_lost(play: Callable[..., Played]) -> None:
    played = play(lambda look: set(range(min(look, CLIENTS))))
    played.loop.connections.timeout_s = 9999
    rounds = played()
    assert [record["sampled"] for record in rounds] == [[0, 1, 2]] * 3
    assert [record["lost"] for record in rounds] == [[]] * 3


def test_a_node_that_joins_later_is_not_counted_for_the_first(play: Callable[..., Played]) -> None:
    played = play(lambda look: {0, 2} if look == 1 else {0, 1, 2})
    played.loop.connections.timeout_s = 9999
    late = replace(load([]).dynamics, newcomers=1, join_rounds=[2])
    played.loop.availability.schedule = Schedule(late, CLIENTS, rounds=3, seed=0)
    played.loop.reporter.schedule = played.loop.availability.schedule
    rounds = played()
    assert [record["sampled"] for record in rounds] == [[0, 1], [0, 1, 2], [0, 1, 2]]
    assert [record["lost"] for record in rounds] == [[]] * 3


def test_when_time_is_up_the_run_starts_with_as_few_as_it_may(play: Callable[..., Played]) -> None:
    played = play(lambda look: {0, 2}, least=2)
    rounds = played()
    assert [record["sampled"] for record in rounds] == [[0, 2]] * 3
    assert [record["lost"] for record in rounds] == [[1]] * 3
    assert played.summary["status"] == "completed"


def test_with_fewer_it_fails_in_plain_words_and_leaves_a_checkpoint(
    play: Callable[..., Played],
) -> None:
    played = play(lambda look: {0}, least=2)
    played.federation.outside = Introductions(failed={"node 8": "gone"}, waiting=["node 9"])
    told = "engine.min_success=2 clients must connect within 0.05 s, got 1 of 3"
    with pytest.raises(TimeoutError, match=told) as raised:
        played()
    assert "node 8: gone; node 9 has not answered yet" in str(raised.value)
    assert played.summary["status"] == "failed"
    assert (played.folder / "checkpoint" / "checkpoint.safetensors").exists()


def test_nodes_that_never_connected_end_the_run_before_the_timeout(
    play: Callable[..., Played],
) -> None:
    played = play(lambda look: {0, 1})
    connections = played.loop.connections
    connections.timeout_s = 9999
    connections.node_wait = NodeWait("", by_flwr=True, timeout_s=0.02)
    with pytest.raises(TooFewNodesError, match="3 clients need 3 nodes, got 2"):
        played()
    assert played.summary["status"] == "failed"


@pytest.mark.parametrize(
    "outside",
    [
        Introductions(rejected={"node 9": "a liar"}),
        Introductions(failed={"node 9": "an ImportError of its client"}),
    ],
)
def test_nobody_waits_for_nodes_that_were_refused_or_are_gone(
    play: Callable[..., Played], outside: Introductions
) -> None:
    played = play(lambda look: {0, 2})
    played.loop.connections.timeout_s = 9999
    played.federation.outside = outside
    rounds = played()
    assert [record["lost"] for record in rounds] == [[1]] * 3
    rejected = [record["rejected"] for record in rounds]
    assert rejected == [outside.rejected] * 3
    assert [record["failed"] for record in rounds] == [outside.failed] * 3


def test_a_node_that_is_no_client_ends_no_wait(play: Callable[..., Played]) -> None:
    """The other clients may still be connecting."""
    played = play(lambda look: {0, 2} if look < 3 else {0, 1, 2})
    played.loop.connections.timeout_s = 9999
    played.federation.outside = Introductions(rejected={"node 9": "a liar"}, extra={"node 9"})
    assert [record["lost"] for record in played()] == [[]] * 3


GONE = {"node 9": Silence("the node is gone")}


@pytest.mark.parametrize(
    "looks",
    [
        [Introductions(GONE), Introductions(GONE, waiting=["node 9"])],  # it was starting
        [Introductions({"node 8": "an ImportError of its client"}, waiting=["node 9"])] * 2,
    ],
)
def test_a_node_that_was_asked_is_waited_for_until_it_has_answered(
    play: Callable[..., Played], looks: list[Introductions]
) -> None:
    def joins(look: int) -> set[int]:
        played.federation.outside = looks[look - 1] if look <= len(looks) else Introductions()
        return {0, 2} if look <= len(looks) else {0, 1, 2}

    played = play(joins)
    played.loop.connections.timeout_s = 9999
    assert [record["lost"] for record in played()] == [[]] * 3


def test_a_node_that_stays_gone_is_asked_once_more_and_not_waited_for(
    play: Callable[..., Played],
) -> None:
    played = play(lambda look: {0, 2})
    played.loop.connections.timeout_s = 9999
    played.federation.outside = Introductions(GONE)
    assert [record["lost"] for record in played()] == [[1]] * 3


def test_a_new_node_that_is_gone_is_no_failure_of_a_client(play: Callable[..., Played]) -> None:
    played = play(lambda look: {0, 1, 2})
    played.federation.outside = Introductions(failed={"node 9": Silence("the node is gone")})
    assert [record["failed"] for record in played()] == [{}] * 3


def test_a_lost_client_is_named_and_the_run_goes_on_with_the_others(
    play: Callable[..., Played],
) -> None:
    played = play(lambda look: {0, 1, 2} if look == 1 else set())
    played.federation.fails = lambda client, fit: lost(1) if (client, fit) == (1, 2) else None
    rounds = played()
    assert [record["sampled"] for record in rounds] == [[0, 1, 2], [0, 1, 2], [0, 2]]
    assert [record["failed"] for record in rounds] == [{}, {"1": "the node is gone"}, {}]
    assert [record["lost"] for record in rounds] == [[], [1], [1]]
    assert played.summary["clients"] == played.summary["clients"] | {"total": 3, "failed": 1}


def test_who_trained_uses_a_model_at_the_end_and_who_never_did_does_not(
    play: Callable[..., Played],
) -> None:
    """FedAvg has no members, and the lost client has made no choice in an evaluation."""
    played = play(lambda look: {0, 1, 2} if look == 1 else set())
    gone = {(1, 1), (2, 2)}
    played.federation.fails = lambda client, fit: lost(client) if (client, fit) in gone else None
    assert [record["lost"] for record in played()] == [[1], [1, 2], [1, 2]]
    assert served_clients(played.folder) == {"0": "community_0", "2": "community_0"}


def test_a_client_that_comes_back_takes_part_again(play: Callable[..., Played]) -> None:
    played = play()
    played.federation.fails = lambda client, fit: lost(1) if (client, fit) == (1, 1) else None
    rounds = played()
    assert [record["lost"] for record in rounds] == [[1], [], []]
    assert [record["sampled"] for record in rounds] == [[0, 1, 2]] * 3


def test_when_too_many_are_lost_they_are_waited_for_and_the_round_is_played_again(
    play: Callable[..., Played],
) -> None:
    usual = play(least=2)
    expected = usual()
    played = play(lambda look: set() if 2 < look < 5 else {0, 1, 2}, least=2)
    played.loop.connections.timeout_s = 9999
    played.federation.fails = lambda client, fit: lost(client) if fit == 2 and client else None
    rounds = played()
    assert played.federation.fits == 4
    assert played.federation.looks >= 5
    for record, other in zip(rounds, expected, strict=True):
        for name in ("sampled", "train_loss", "step", "lost"):
            assert record[name] == other[name]
    gone = "attempt 1: the node is gone"
    assert [record["failed"] for record in rounds] == [{}, {"1": gone, "2": gone}, {}]
    (event,) = rounds[1]["events"]
    assert event["kind"] == "repeated"
    assert event["detail"].startswith("attempt 1: round 2 must have at least engine.min_success=2")


def test_who_was_rejected_in_an_attempt_before_stays_named(play: Callable[..., Played]) -> None:
    def fails(client: int, fit: int) -> ClientFailure | None:
        if fit != 2:
            return None
        return (None, RejectedReply(1, "model must be finite"), lost(2))[client]

    played = play(least=2)
    played.federation.fails = fails
    rejected = [record["rejected"] for record in played()]
    assert rejected == [{}, {"1": "attempt 1: model must be finite"}, {}]


def test_an_evaluation_that_fails_is_no_failed_training(play: Callable[..., Played]) -> None:
    played = play()
    played.federation.fails = lambda client, fit: lost(2) if (client, fit) == (2, 1) else None
    unscored = [ClientFailure(each, "no test samples") for each in (1, 2)]
    played.federation.evaluate = lambda *_: ([], unscored)  # type: ignore[method-assign]
    first, second, _ = played()
    found = "evaluation: no test samples"
    assert first["failed"] == {"1": found, "2": "the node is gone"}
    assert second["failed"] == {"1": found, "2": found}
    assert [untrained(each) for each in (first, second)] == [{"2"}, set()]


def test_removed_clients_are_a_cluster_and_no_community(tmp_path: Path) -> None:
    reporter = RoundReporter(
        Roster(), clients=4, benign=lambda models, sizes: {0}, schedule=None, central=None
    )
    view = View(np.arange(4), np.array([0, 0, 0, 1]), None)
    found = reporter._describe(view, 1, {3: 1})
    assert (found["count"], found["sizes"], found["nodes"]) == (1, [3], 4)
    played = dict.fromkeys(FIELDS) | {"failed": {}, "rejected": {}, "events": []}
    given = dict.fromkeys(("total_s", "training_s", "server_s"), 0.0)
    summary = summarise(
        tmp_path,
        "completed",
        identity={"strategy": "cfl", "engine": "inprocess", "seed": 0},
        rounds=[played | {"communities": found | {"count": 2}, "time": given}],  # of before
        clients=4,
        assignment=dict.fromkeys(range(3), 0),
    )
    assert (summary["communities"]["count"], summary["communities"]["sizes"]) == (1, [3])


def test_the_summary_measures_all_clients_that_use_a_community(tmp_path: Path) -> None:
    roster = Roster()
    roster.groups = lambda: {c: c % 3 for c in range(6)}  # type: ignore[method-assign]
    reporter = RoundReporter(
        roster, clients=7, benign=lambda models, sizes: {0}, schedule=None, central=None
    )
    clustered = reporter._describe(View(np.arange(2), np.arange(2), None), 1, {})
    assert (clustered["ari"], clustered["pure_share"]) == (1.0, 1.0)
    used = {0: 0, 1: 1, 2: 1, 3: 0, 4: 1, 5: 1}  # of these only clients 0 and 1 were clustered
    agreement = reporter.agreement(used, [], 1)
    assert agreement == {"ari": 4 / 9, "pure_share": 2 / 6}
    kept = {client: row for client, row in used.items() if client != 5}
    assert reporter.agreement(kept, [5], 1)["pure_share"] == 3 / 6  # client 5 is one more community
    assert reporter.agreement({**used, 6: 0}, [], 1) == {}  # its group is not known
    time = dict.fromkeys(("total_s", "training_s", "server_s"), 0.0)
    played = dict.fromkeys(FIELDS) | {"failed": {}, "rejected": {}, "events": [], "time": time}
    summary = summarise(
        tmp_path,
        "completed",
        identity={"strategy": "flic", "engine": "inprocess", "seed": 0},
        rounds=[played | {"communities": clustered}],
        clients=6,
        assignment=used,
        agreement=agreement,
        groups=reporter.planted(1),
    )
    assert summary["communities"]["ari"] == 4 / 9
    assert summary["clients"]["groups"] == {str(client): client % 3 for client in range(6)}


def test_one_client_cannot_set_the_mean_of_the_losses_for_test() -> None:
    reporter = RoundReporter(
        Roster(), clients=4, benign=lambda models, sizes: {0}, schedule=None, central=None
    )
    losses = {0: 1.0, 1: 2.0, 2: 4.0, 3: 1e30}
    scores = Scores(measured={TEST_LOSS: losses, "mae": losses})
    outcome = replace(made("strategy=fedavg", context()).outcome(0), scores=scores)
    found = reporter.scored(outcome, set(losses))["metrics"]
    assert found[TEST_LOSS]["mean"] == (1 + 2 + 4 + 200) / 4
    assert found[TEST_LOSS]["clients"]["3"] == 1e30
    assert found["mae"]["mean"] > 1e29  # its range is not known


def test_a_client_with_drifted_labels_settles_with_those_that_drifted_as_it_did() -> None:
    how = replace(load([]).dynamics, drifters=2, drift_rounds=[2], drift="labels")
    schedule = Schedule(how, 4, rounds=3, seed=0)
    (change,) = schedule.changes(2)
    roster = Roster()
    roster.groups = lambda: dict.fromkeys(range(4), 0)  # type: ignore[method-assign]
    reporter = RoundReporter(
        roster, clients=4, benign=lambda models, sizes: {0}, schedule=schedule, central=None
    )
    reporter._follow(2)
    labels = np.isin(np.arange(4), change.clients).astype(int)
    found = reporter._describe(View(np.arange(4), labels, None), 2, {})
    assert (found["ari"], found["right"]) == (1.0, True)
    assert found["settled"].keys() == {str(client) for client in change.clients}


def test_whoever_comes_later_is_in_the_only_community(play: Callable[..., Played]) -> None:
    played = play()
    played.federation.introduce()
    output, federated = played.loop.output, played.loop.method.outcome(0)
    clustered = replace(federated, phase=CLUSTERED, members={0: 0}, removed={2: 1})
    assert output._sole(clustered) == {0: 0, 1: 0}
    assert output._sole(federated) == {}
    assert output._sole(replace(clustered, models=np.repeat(clustered.models, 2, 0))) == {}
    with_global = replace(clustered, global_model=clustered.models[0])
    assert output._sole(with_global) == {}  # which clients without a community use


def test_those_who_do_not_come_back_end_the_run_with_a_checkpoint(
    play: Callable[..., Played],
) -> None:
    played = play(lambda look: {0, 1, 2} if look == 1 else set())
    played.federation.fails = lambda client, fit: lost(client) if fit == 2 else None
    with pytest.raises(TimeoutError, match="got 0 of 1"):
        played()
    assert len(read_rounds(played.folder)) == 1
    assert played.summary["status"] == "failed"


def test_clients_without_which_no_round_trains_are_waited_for(play: Callable[..., Played]) -> None:
    joins = [{0, 1, 2}, *[set[int]()] * 9, {1, 2}]
    played = play(lambda look: joins[min(look, len(joins)) - 1], fewest=2)
    played.loop.connections.timeout_s = 9999
    played.federation.fails = lambda client, fit: lost(client) if fit == 2 and client else None
    assert [record["lost"] for record in played()] == [[], [1, 2], []]
    assert played.federation.looks >= len(joins)


def test_without_them_the_run_ends_with_a_checkpoint(play: Callable[..., Played]) -> None:
    played = play(lambda look: {0, 1, 2} if look == 1 else set(), fewest=2)
    played.federation.fails = lambda client, fit: lost(client) if fit == 2 and client else None
    with pytest.raises(TimeoutError, match="at least 2 clients, without which no round trains"):
        played()
    assert len(read_rounds(played.folder)) == 2
    assert played.summary["status"] == "failed"


def test_a_round_that_loses_them_again_and_again_ends_the_run(play: Callable[..., Played]) -> None:
    played = play()
    played.federation.fails = lambda client, fit: lost(client)
    with pytest.raises(LostRepliesError, match="client 2: the node is gone"):
        played()
    assert played.federation.fits == ATTEMPTS


@pytest.mark.parametrize(("gone", "skipped", "ends"), [
    ({2, 3, 4}, {2}, False),
    ({2, 3, 4, 6, 7, 8}, {2, 4}, False),
    (set(range(2, 11)), {2, 3}, True),
])  # fmt: skip
def test_clients_that_are_lost_after_others_were_learnt_from_end_no_run_at_once(
    play: Callable[..., Played], gone: set[int], skipped: set[int], ends: bool
) -> None:
    played = play(rounds=5)
    played.federation.fails = lambda client, fit: lost(client) if fit in gone else None
    if ends:
        with pytest.raises(LostRepliesError, match="round 4 must have at least"):
            played()
    else:
        played()
    rounds = read_rounds(played.folder)
    found = {each["round"] for each in rounds if each["train_loss"] is None}
    assert found == skipped
    assert all(set(rounds[each - 1]["failed"]) == {"0", "1", "2"} for each in skipped)
    assert played.summary["status"] == ("failed" if ends else "completed")


def test_clients_cannot_claim_more_seconds_than_the_server_waited_for_each() -> None:
    trained = TrainedRound(1, began=0.0, training_s=2.0, failures=[], leaving=None)
    told = replace(made("strategy=fedavg", context()).outcome(0), cohort=[0, 1, 2], training_s=1e9)
    assert times(trained, 0.0, told)["clients_s"] == 6.0
    assert times(trained, 0.0, replace(told, training_s=5.0))["clients_s"] == 5.0


def test_a_run_in_which_no_round_has_an_effect_fails(play: Callable[..., Played]) -> None:
    played = play()
    played.federation.fails = lambda client, fit: ClientFailure(client, "ValueError: no data")
    with pytest.raises(TooFewRepliesError, match="ValueError: no data"):
        played()
    assert played.federation.fits == 3
    assert played.summary["status"] == "failed"
    assert played.summary["ended"].startswith("TooFewRepliesError: round ")


def test_a_state_that_no_checkpoint_restores_ends_a_run_before_its_first_round(
    play: Callable[..., Played],
) -> None:
    played = play()
    played.loop.method.state = make_dataclass("Mine", [("window", deque)])(deque())
    with pytest.raises(ValueError, match="got Mine with window: deque"):
        played()
    assert played.federation.fits == 0


def test_a_resumed_run_that_had_learnt_nothing_fails_too(tmp_path: Path) -> None:
    def played(resume: bool) -> Played:
        made = Played(tmp_path / "run", lambda look: {0, 1, 2}, least=1, rounds=9, resume=resume)
        made.federation.fails = lambda client, fit: ClientFailure(client, "ValueError: no data")
        return made

    begun = played(resume=False)
    begun.rounds = 1
    assert [record["train_loss"] for record in begun()] == [None]
    with pytest.raises(TooFewRepliesError, match="ValueError: no data"):
        played(resume=True)()
    assert len(read_rounds(begun.folder)) == ATTEMPTS - 1  # as without a stop: the last one raises


@pytest.mark.parametrize("bad", [{1}, {2}, {2, 3}, {1, 2}])
def test_rounds_without_valid_replies_do_not_end_a_run(
    play: Callable[..., Played], bad: set[int]
) -> None:
    played = play()
    played.federation.fails = lambda client, fit: (
        ClientFailure(client, "SystemExit: 1") if fit in bad else None
    )
    rounds = played()
    assert played.summary["status"] == "completed"
    skipped = {
        record["round"]
        for record in rounds
        if any(event["kind"] == "skipped" for event in record["events"])
    }
    assert skipped == bad
    assert {record["round"] for record in rounds if record["train_loss"] is None} == bad
    assert all(set(rounds[each - 1]["failed"]) == {"0", "1", "2"} for each in bad)


def test_with_a_privacy_budget_no_round_is_played_again(
    play: Callable[..., Played],
) -> None:
    class PrivacyBudget:
        def restore(self, records: Sequence[Any]) -> None:
            return

        def instruct(self, server_round: int, instructions: Instructions, known: Roster) -> None:
            return

        def exhausted(self, known: Roster, least: int) -> None:
            return

        def over(self, known: Roster) -> list[int]:
            return []

        def leaving(self, over: list[int]) -> None:
            return

        def book(self, outcome: Outcome, known: Roster) -> None:
            return

    played = play()
    played.loop.budget = played.loop.availability.budget = PrivacyBudget()  # type: ignore[assignment]
    played.federation.fails = lambda client, fit: lost(client) if fit == 2 else None
    assert [record["train_loss"] is None for record in played()] == [False, True, False]
    assert played.federation.fits == 3


def test_a_resumed_run_without_budget_says_why_it_trains_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Played(tmp_path / "run", lambda look: {0, 1, 2}, least=1, rounds=1)()
    resumed = Played(tmp_path / "run", lambda look: {0, 1, 2}, least=1, rounds=3, resume=True)
    resumed.loop.end.exhausted = lambda: Event(SPENT, "a round costs more than is left")  # type: ignore[method-assign]
    assert len(resumed()) == 1
    assert resumed.summary["status"] == "completed"
    assert resumed.summary["ended"] == "a round costs more than is left"
    assert caplog.messages.count("the run ends after round 1: a round costs more than is left") == 1


def asks(played: Played) -> None:
    """Ask the loop to stop, and return once it knows."""
    stop_request.ask(played.folder)
    assert stop_request._loop.asked.wait(60)


def test_a_stop_while_clients_are_waited_for_leaves_the_initial_checkpoint(
    play: Callable[..., Played],
) -> None:
    def joins(look: int) -> set[int]:
        if look == 2:
            asks(played)
        return {0}

    played = play(joins)
    played.loop.connections.timeout_s = 9999
    with pytest.raises(KeyboardInterrupt):
        played()
    assert checkpoint.read(played.folder / "checkpoint").round == 0
    assert (played.summary["status"], played.summary["rounds"]) == ("interrupted", 0)


@pytest.mark.parametrize("when", ["fit", "evaluate"])
def test_a_stop_after_the_clients_have_trained_leaves_the_round_whole(
    play: Callable[..., Played], when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = play()
    played.loop.recorder.checkpoint_every = 99
    exchanged, calls = getattr(played.federation, when), []

    def stopped(server_round: int, instructions: Any) -> Any:
        calls.append(server_round)
        if server_round == 2:
            asks(played)
        return exchanged(server_round, instructions)

    monkeypatch.setattr(played.federation, when, stopped)
    with pytest.raises(KeyboardInterrupt):
        played()
    assert calls == [1, 2]
    assert len(read_rounds(played.folder)) == 2
    assert checkpoint.read(played.folder / "checkpoint").round == 2
    assert played.summary["status"] == "interrupted"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, RunNotRunningException])
def test_a_stop_while_clients_train_leaves_the_rounds_before(
    play: Callable[..., Played], stop: type[BaseException]
) -> None:
    def stops(client: int, fit: int) -> None:
        if fit == 2:
            raise stop

    played = play()
    played.loop.recorder.checkpoint_every = 99
    played.federation.fails = stops
    with pytest.raises(stop):
        played()
    assert checkpoint.read(played.folder / "checkpoint").round == 1
    assert played.summary["status"] == "interrupted"


def test_figures_that_take_too_long_are_left_out(
    play: Callable[..., Played], monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(figures, "LONGEST_S", 0.05)
    monkeypatch.setattr(fl_app.report.figures, "write_figures", lambda _: go_on.wait(600))
    played = play()
    played.loop.figures = True
    assert len(played()) == 3
    go_on.set()
    assert played.summary["status"] == "completed"


def test_a_run_that_is_submitted_again_goes_on_from_its_checkpoint_and_says_so(
    play: Callable[..., Played],
) -> None:
    first = play()
    assert first.summary_after(2)["restarts"] == 0
    again = Played(first.folder, lambda look: {0, 1, 2}, 1, rounds=4, restarts=3)
    rounds = again()
    assert [record["round"] for record in rounds] == [1, 2, 3, 4]
    told = [each["detail"] for record in rounds for each in record["events"] if _restarted(each)]
    assert told == ["the run was lost and goes on after round 2"]
    assert _restarted(rounds[2]["events"][-1])
    assert again.summary["restarts"] == 3
    entries = [json.loads(line) for line in (first.folder / "audit.jsonl").read_text().splitlines()]
    resumed = next(each for each in entries if each["event"] == "resumed")
    assert (resumed["restart"], resumed["round"]) == (3, 2)


@pytest.mark.parametrize("restarts", [0, 1])
def test_only_a_run_that_is_submitted_again_does_not_wait_for_whom_it_had_lost(
    play: Callable[..., Played], monkeypatch: pytest.MonkeyPatch, restarts: int
) -> None:
    first = play(joins=lambda look: {0, 1, 2})
    first.federation.fails = lambda client, fit: lost(client) if client == 2 else None
    assert first.summary_after(2)["status"] == "completed"
    assert read_rounds(first.folder)[-1]["lost"] == [2]
    again = Played(first.folder, lambda look: {0, 1}, 1, 4, resume=not restarts, restarts=restarts)
    needed: list[int] = []
    monkeypatch.setattr(again.loop.connections, "wait", needed.append)
    again()
    assert needed[0] == (2 if restarts else 3)


def test_without_a_checkpoint_it_starts_anew(tmp_path: Path) -> None:
    rounds = Played(tmp_path, lambda look: {0, 1, 2}, 1, restarts=1)()
    assert [record["round"] for record in rounds] == [1, 2, 3]
    assert rounds[0]["events"][-1]["detail"] == "the run was lost and goes on after round 0"


@pytest.mark.parametrize("fits", [0, 1, 2])
def test_a_process_that_was_replaced_writes_no_more(play: Callable[..., Played], fits: int) -> None:
    played = play()
    played.loop.recorder.superseded = lambda: played.federation.fits > fits  # it stood still there
    with pytest.raises(SupersededError, match="must belong to this submission of the run"):
        played()
    done = list(range(1, fits + 1))
    assert [record["round"] for record in read_rounds(played.folder)] == done
    audit = (played.folder / "audit.jsonl").read_text().splitlines()
    written = [entry for entry in map(json.loads, audit) if entry["event"] == "checkpoint written"]
    assert [entry["round"] for entry in written] == done
    assert not (played.folder / "summary.json").exists()
    assert not (played.folder / "models.safetensors").exists()


def test_a_process_that_was_replaced_between_rounds_asks_nobody(
    play: Callable[..., Played],
) -> None:
    played = play()
    played.loop.recorder.superseded = lambda: True
    with pytest.raises(SupersededError):
        played()
    assert played.federation.fits == 0


def _restarted(event: dict[str, Any]) -> bool:
    return bool(event["kind"] == "restarted")
