"""Replies belong to the message that they answer; what is lost or broken costs its own client."""

import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import flwr
import httpx
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.common import (
    Code,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetPropertiesRes,
    Parameters,
    Status,
)
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.compat.common import recorddict_compat as compat
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.supercore.task_identity import TaskIdentity

sys.path.insert(0, str(Path(__file__).parent))
from stand_in_grid import StandInGrid

from fl_app.engines import client_messenger as module
from fl_app.engines import puller, stop_request
from fl_app.engines.client_messenger import ClientMessenger
from fl_app.engines.connections import Connections
from fl_app.engines.node_ids import NodeOwners, remember
from fl_app.engines.puller import OF_THE_LOST
from fl_app.records.audit import AuditLog
from fl_app.strategies.replies import LostClient, RejectedReply
from fl_app.strategies.roster import Roster

OK = Status(Code.OK, "")
NONE = Parameters([], "numpy.ndarray")
Answer = Callable[[Message], list[Message]]


class Clock:
    """Time that passes by waiting, and by polls that say so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    monkeypatch.setattr(stop_request, "wait", found.wait)
    return found


class FakeGrid(StandInGrid):
    """Answers as each node's function says, when it is asked for; `gone` take no message.

    `drops` leaves the ids of those out, as Flower's simulation does, else None stands for them.
    """

    def __init__(self, answers: dict[int, Answer], *, drops: bool = False) -> None:
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, SUPERLINK_NODE_ID
        self.answers, self.drops = answers, drops
        self.gone: set[int] = set()
        self.sent: dict[str, Message] = {}
        self.pulled: list[str] = []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        for message in messages:
            message_id = f"message-{len(self.sent)}"
            message.metadata.__dict__["_message_id"] = message_id
            self.sent[message_id] = message
            if message.metadata.dst_node_id not in self.gone:
                yield message_id
            elif not self.drops:
                yield None  # type: ignore[misc]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterator[Message]:
        for message_id in message_ids:
            self.pulled.append(message_id)
            message = self.sent[message_id]
            yield from self.answers[message.metadata.dst_node_id](message)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.answers)


def trains(samples: int) -> Answer:
    """Answer a fit with so many samples, and an introduction as client `samples`."""

    def answer(message: Message) -> list[Message]:
        if "get_properties" in message.metadata.message_type:
            return [said(message, samples)]
        if "evaluate" in message.metadata.message_type:
            result = EvaluateRes(OK, 0.5, samples, {"community": 99})
            return [Message(compat.evaluateres_to_recorddict(result), reply_to=message)]
        return [fitted(message, samples)]

    return answer


def fitted(message: Message, samples: int) -> Message:
    """Return the reply to a fit."""
    return Message(
        compat.fitres_to_recorddict(FitRes(OK, NONE, samples, {}), keep_input=True),
        reply_to=message,
    )


def said(message: Message, client: int, **more: str) -> Message:
    """Return the introduction of a client."""
    properties = {"client_id": client, "group": -1, "samples": 10, "malicious": False, **more}
    result = GetPropertiesRes(OK, properties)
    return Message(compat.getpropertiesres_to_recorddict(result), reply_to=message)


def of_superlink(code: int, reason: str = "gone") -> Answer:
    """Answer with an error that the SuperLink made: it says that it comes from node 1."""

    def answer(message: Message) -> list[Message]:
        reply = Message(Error(code=code, reason=reason), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = SUPERLINK_NODE_ID
        return [reply]

    return answer


def nothing(_: Message) -> list[Message]:
    """Never answer."""
    return []


def federation(
    answers: dict[int, Answer],
    *,
    timeout: float | None = None,
    drops: bool = False,
    clients: int = 9,
) -> tuple[ClientMessenger, FakeGrid, Roster]:
    """Return a messenger with nodes 101, 102, ...: clients 1, 2, ..., all of them introduced."""
    grid, known = FakeGrid({node: trains(node - 100) for node in answers}, drops=drops), Roster()
    for node in answers:
        known.register(GridClientProxy(node_id=node, grid=grid, run_id=1))
    messenger = ClientMessenger(known, clients=clients, timeout=timeout)
    messenger.introducer.introduce()
    assert list(known.proxies()) == [node - 100 for node in sorted(answers)]
    grid.answers = answers
    grid.pulled.clear()
    return messenger, grid, known


def fit(messenger: ClientMessenger) -> tuple[dict[int, int], dict[int, Exception]]:
    """Return the samples and the failures of one fit, by client."""
    ins = [(proxy, FitIns(NONE, {})) for proxy in messenger.roster.proxies().values()]
    results, failures = messenger.fit(1, ins)
    ids = messenger.roster.client_id
    return (
        {ids(proxy): reply.num_examples for proxy, reply in results},
        {failure.client_id: failure for failure in failures},
    )


def test_a_reply_belongs_to_the_message_it_was_pulled_for_whatever_it_claims() -> None:
    def liar(message: Message) -> list[Message]:
        reply = fitted(message, 7)
        reply.metadata.__dict__["_reply_to_message_id"] = "message-0"
        reply.metadata.__dict__["_src_node_id"] = 101
        return [reply]

    messenger, _, _ = federation({103: trains(3), 101: trains(1), 102: liar})
    assert fit(messenger) == ({1: 1, 2: 7, 3: 3}, {})


@pytest.mark.parametrize("code", OF_THE_LOST)
def test_an_error_of_the_superlink_names_the_client_and_leaves_it_out(code: int) -> None:
    messenger, grid, known = federation({101: trains(1), 102: of_superlink(code), 103: trains(3)})
    results, failures = fit(messenger)
    assert results == {1: 1, 3: 3}
    assert isinstance(failures[2], LostClient)
    assert str(failures[2]) == "client 2: gone"
    assert list(known.proxies()) == [1, 3]
    grid.answers[102] = trains(2)
    messenger.introducer.introduce()
    assert fit(messenger)[0] == {1: 1, 2: 2, 3: 3}


def test_a_client_that_is_silent_only_when_it_evaluates_trains_in_every_round() -> None:
    def evaluates_not(message: Message) -> list[Message]:
        if "evaluate" in message.metadata.message_type:
            return of_superlink(ErrorCode.MESSAGE_UNAVAILABLE)(message)
        return trains(2)(message)

    messenger, _, known = federation({101: trains(1), 102: evaluates_not})
    for _ in range(4):
        assert fit(messenger)[0] == {1: 1, 2: 2}
        ins = EvaluateIns(NONE, {"community": 0})
        _, failures = messenger.evaluate(1, [(known.proxy(2), ins)])
        assert [type(failure) for failure in failures] == [LostClient]
        known.begin_round()
        messenger.introducer.introduce()


@pytest.mark.parametrize("code", OF_THE_LOST)
def test_a_client_that_claims_an_error_of_the_superlink_is_no_lost_one(code: int) -> None:
    """A lost client costs the others a wait, and ends the run in the end."""

    def claims(message: Message) -> list[Message]:
        return [Message(Error(code=code, reason="gone"), reply_to=message)]

    messenger, _, known = federation({101: trains(1), 102: claims})
    _, failures = fit(messenger)
    assert not isinstance(failures[2], LostClient)
    assert str(failures[2]) == "client 2: gone"
    assert list(known.proxies()) == [1, 2]


def test_a_client_that_raises_is_no_lost_one() -> None:
    raised = of_superlink(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "ValueError: no data")
    messenger, _, known = federation({101: trains(1), 102: raised})
    _, failures = fit(messenger)
    assert not isinstance(failures[2], LostClient | RejectedReply)
    assert str(failures[2]) == "client 2: ValueError: no data"
    assert list(known.proxies()) == [1, 2]


def test_an_error_without_end_is_cut() -> None:
    raised = of_superlink(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "x" * 10**6)
    messenger, _, _ = federation({101: raised})
    assert len(str(fit(messenger)[1][1])) < 5000


@pytest.mark.parametrize("drops", [False, True])
def test_a_message_that_could_not_be_sent_costs_its_own_client(drops: bool) -> None:
    messenger, grid, known = federation(
        {101: trains(1), 102: trains(2), 103: trains(3)}, drops=drops
    )
    grid.gone = {102}
    results, failures = fit(messenger)
    assert results == {1: 1, 3: 3}
    assert isinstance(failures[2], LostClient)
    assert "the node is gone" in str(failures[2])
    assert list(known.proxies()) == [1, 3]


@pytest.mark.parametrize("error", [ValueError("x" * 999), KeyError(1), MemoryError()])
def test_a_reply_that_cannot_be_read_costs_no_other(error: Exception) -> None:
    def broken(_: Message) -> list[Message]:
        raise error

    messenger, _, known = federation({101: broken, 102: trains(2)})
    results, failures = fit(messenger)
    assert results == {2: 2}
    told = f"client 1: the reply could not be read: {type(error).__name__}: "
    assert str(failures[1]).startswith(told)
    assert len(str(failures[1])) < 200
    assert list(known.proxies()) == [1, 2]


def test_one_message_that_the_superlink_cannot_handle_costs_its_own_client() -> None:
    def refused(_: Message) -> list[Message]:
        request = httpx.Request("POST", "http://localhost")
        response = httpx.Response(500, request=request)
        raise httpx.HTTPStatusError("server error", request=request, response=response)

    messenger, _, _ = federation({101: refused, 102: trains(2)})
    results, failures = fit(messenger)
    assert (results, list(failures)) == ({2: 2}, [1])


def test_a_connection_that_is_down_is_no_clients_doing() -> None:
    def down(_: Message) -> list[Message]:
        raise httpx.ConnectError("refused")

    messenger, _, _ = federation({101: trains(1), 102: down})
    with pytest.raises(httpx.ConnectError):
        fit(messenger)


def test_of_two_replies_to_one_message_the_first_counts() -> None:
    messenger, _, _ = federation({101: lambda m: [fitted(m, 1), fitted(m, 2)], 102: trains(2)})
    assert fit(messenger) == ({1: 1, 2: 2}, {})


def test_a_malformed_reply_is_rejected_and_the_client_stays() -> None:
    messenger, _, known = federation({101: lambda m: [Message(RecordDict(), reply_to=m)]})
    results, failures = fit(messenger)
    assert results == {}
    assert isinstance(failures[1], RejectedReply)
    assert list(known.proxies()) == [1]


def _more_arrays(content: RecordDict) -> None:
    content["x"] = ArrayRecord({"x": Array(np.zeros(3, np.float32))})


def _many_fields(content: RecordDict) -> None:
    content["fitres.metrics"] = ConfigRecord({str(each): 1 for each in range(10_001)})


def _many_records(content: RecordDict) -> None:
    for each in range(10_001):
        content[f"attached.0.{each}"] = ConfigRecord()


@pytest.mark.parametrize(
    ("add", "said"),
    [
        (_more_arrays, "without arrays beside fitres.parameters, got 1 more records"),
        (_many_fields, "of at most 10000 fields, got 1"),
        (_many_records, "of at most 10000 fields, got 1"),
    ],
)
def test_a_reply_with_more_than_was_asked_for_is_rejected(
    add: Callable[[RecordDict], None], said: str
) -> None:
    def bloated(message: Message) -> list[Message]:
        reply = fitted(message, 1)
        add(reply.content)
        return [reply]

    results, failures = fit(federation({101: bloated, 102: trains(2)})[0])
    assert results == {2: 2}
    assert isinstance(failures[1], RejectedReply)
    assert said in str(failures[1])


def test_a_late_reply_is_never_asked_for_and_the_client_waits_until_it_answers_again(
    clock: Clock,
) -> None:
    messenger, grid, known = federation({101: trains(1), 102: nothing}, timeout=60)
    results, failures = fit(messenger)
    assert results == {1: 1}
    assert isinstance(failures[2], LostClient)
    assert clock.now - 1000 == pytest.approx(60, abs=1)
    assert str(failures[2]) == "client 2: no reply within engine.round_timeout_s=60"
    assert all(message.metadata.ttl == 60 for message in list(grid.sent.values())[-2:])
    late = next(k for k, m in reversed(grid.sent.items()) if m.metadata.dst_node_id == 102)
    grid.pulled.clear()
    messenger.introducer.introduce()
    assert fit(messenger) == ({1: 1}, {})
    assert list(known.proxies()) == [1]
    grid.answers[102] = trains(2)  # it has worked off what it had: it answers who it is
    messenger.introducer.introduce()
    assert fit(messenger) == ({1: 1, 2: 2}, {})
    assert late not in grid.pulled


def test_what_the_superlink_says_of_an_expired_message_is_that_time_was_up(clock: Clock) -> None:
    def expired(message: Message) -> list[Message]:
        code = ErrorCode.MESSAGE_UNAVAILABLE
        return [] if clock.now < 1060 else of_superlink(code, "expired or deleted")(message)

    messenger, _, _ = federation({101: expired}, timeout=60)
    _, failures = fit(messenger)
    assert str(failures[1]) == "client 1: no reply within engine.round_timeout_s=60"


def test_a_reply_that_comes_with_the_last_look_counts(clock: Clock) -> None:
    def slow(message: Message) -> list[Message]:
        return [fitted(message, 1)] if clock.now >= 1060 else []

    messenger, _, _ = federation({101: slow}, timeout=60)
    assert fit(messenger) == ({1: 1}, {})


def test_without_a_timeout_a_slow_client_is_waited_for(clock: Clock) -> None:
    def slow(message: Message) -> list[Message]:
        return [fitted(message, 1)] if clock.now >= 9999 else []

    messenger, grid, _ = federation({101: slow})
    assert fit(messenger) == ({1: 1}, {})
    assert len(grid.pulled) < 20_000


@pytest.mark.parametrize("nodes", [1, 200])
def test_polls_take_no_more_than_a_quarter_of_the_time_and_end_with_the_round(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, nodes: int
) -> None:
    monkeypatch.setattr(puller, "time", clock)
    polls = []

    def polled(_: Message) -> list[Message]:
        polls.append(clock.now)
        clock.wait(0.01)
        return []

    messenger, _, _ = federation({101 + k: polled for k in range(nodes)}, timeout=60, clients=300)
    _, failures = fit(messenger)
    assert len(failures) == nodes
    assert 0.01 * len(polls) <= 0.25 * 60 + 2 * 0.01 * nodes  # the first, and that after the end
    assert max(polls) >= 1060
    assert clock.now - 1060 <= 2 * 0.01 * nodes + 0.05


def test_a_reply_that_takes_long_to_read_lets_the_others_wait_no_longer(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(puller, "time", clock)

    def large(message: Message) -> list[Message]:
        clock.wait(9)
        return [fitted(message, 1)]

    def later(message: Message) -> list[Message]:
        return [fitted(message, 2)] if clock.now > 1009 else []

    messenger, _, _ = federation({101: later, 102: large})
    assert fit(messenger)[0] == {1: 2, 2: 1}
    assert clock.now < 1010


def test_a_reply_that_stalls_holds_up_no_other_and_counts_once_it_is_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(puller, "PATIENCE_S", 0.05)
    whole, order = threading.Event(), []

    def stalling(message: Message) -> list[Message]:
        assert whole.wait(60)
        return [fitted(message, 1)]

    def other(message: Message) -> list[Message]:
        order.append(message)
        whole.set()
        return [fitted(message, 2)]

    messenger, grid, _ = federation({101: stalling, 102: other})
    assert fit(messenger) == ({1: 1, 2: 2}, {})
    assert len(order) == 1
    assert len(grid.pulled) == 2, "a reply that was coming was pulled again"


def test_a_reply_that_stalls_for_good_costs_its_own_client_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(puller, "PATIENCE_S", 0.05)
    end = threading.Event()

    def stalling(_: Message) -> list[Message]:
        end.wait(60)
        return []

    messenger, _, _ = federation({101: stalling, 102: trains(2)}, timeout=0.3)
    results, failures = fit(messenger)
    end.set()
    assert results == {2: 2}
    assert str(failures[1]) == "client 1: no reply within engine.round_timeout_s=0.3"


def test_stalled_replies_share_the_time_that_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a hundred clients would delay each exchange by a quarter of an hour."""
    waited = []
    monkeypatch.setattr(puller, "_await", lambda _, limit_s: waited.append(limit_s))
    end = threading.Event()

    class Stalled(FakeGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
            end.wait(60)
            return []

    looking = puller.Puller()
    for message_ids in (range(100), range(100, 103)):
        waited.clear()
        assert list(looking.look(Stalled({}), map(str, message_ids))) == []
        assert waited[:3] == [5.0, 2.5, 1.25]
        assert sum(waited) < puller.PATIENCE_S + puller.LEAST_PATIENCE_S * 100
    end.set()


def test_messages_share_the_models_that_flower_would_hash_for_each() -> None:
    messenger, grid, known = federation({101: trains(1), 102: trains(2), 103: trains(3)})
    one, other = (Parameters([bytes([k]) * 9], "numpy.ndarray") for k in range(2))
    both = Parameters([*one.tensors, *other.tensors], "numpy.ndarray")
    asked = zip(known.proxies().values(), (one, other, both), strict=True)
    messenger.fit(1, [(proxy, FitIns(model, {"round": 1})) for proxy, model in asked])
    first, second, third = (
        list(message.content.array_records["fitins.parameters"].values())
        for message in list(grid.sent.values())[-3:]
    )
    assert [array.data for array in third] == both.tensors
    assert third[0] is first[0]
    assert third[1] is second[0]


def test_an_evaluation_answers_the_question_that_was_put() -> None:
    messenger, _, known = federation({101: trains(1), 102: of_superlink(5)})
    one, two = known.proxies().values()
    asked = [(one, 0), (one, -1), (two, 3)]
    ins = [(proxy, EvaluateIns(NONE, {"community": row})) for proxy, row in asked]
    results, failures = messenger.evaluate(1, ins)
    assert sorted(reply.metrics["community"] for _, reply in results) == [-1, 0]
    assert [failure.client_id for failure in failures] == [2]
    assert list(known.proxies()) == [1]


def strangers(answers: dict[int, Answer]) -> tuple[ClientMessenger, FakeGrid, Roster]:
    """Return a messenger with nodes that nobody has asked yet."""
    grid, known = FakeGrid(answers), Roster()
    for node in answers:
        known.register(GridClientProxy(node_id=node, grid=grid, run_id=1))
    return ClientMessenger(known, clients=9, timeout=None), grid, known


def test_nobody_waits_for_a_node_that_does_not_say_who_it_is() -> None:
    messenger, grid, known = strangers({101: trains(1), 102: nothing})
    outside = messenger.introducer.introduce()
    assert list(known.proxies()) == [1]
    assert outside.waiting == ["node 102"]
    assert str(outside) == "node 102 has not answered yet"
    messenger.introducer.introduce()
    assert len(grid.sent) == 2, "it was asked twice"
    grid.answers[102] = trains(2)
    assert messenger.introducer.introduce().waiting == []
    assert list(known.proxies()) == [1, 2]


def test_who_fails_or_is_rejected_is_named_until_it_gets_in() -> None:
    messenger, grid, known = strangers({101: trains(1), 102: trains(1), 103: of_superlink(5)})
    outside = messenger.introducer.introduce()
    assert outside.failed == {"node 103": "gone"}
    assert list(outside.rejected) == ["node 102"]
    assert "and node 101 has it; one of the two is wrong" in outside.rejected["node 102"]
    assert outside.answered == 1, "client 1 has answered by another node"
    known.unregister(known.all()["103"])
    grid.answers[102] = trains(2)
    outside = messenger.introducer.introduce()
    assert (list(outside.failed), outside.rejected) == (["node 103"], {})
    assert list(known.proxies()) == [1, 2]


def test_a_node_can_be_only_the_client_whose_key_it_has(tmp_path: Path) -> None:
    file = tmp_path / "nodes.json"
    file.write_text(json.dumps({"1": "101", "3": "102"}))
    messenger, grid, known = strangers({101: trains(1), 102: trains(2), 103: trains(4)})
    messenger.introducer.owners = NodeOwners(file)
    outside = messenger.introducer.introduce()
    assert list(known.proxies()) == [1]
    assert outside.rejected == {
        "node 102": "introduction: client_id must be 3, the client of this node, got 2",
        "node 103": f"introduction: the node must be in engine.node_ids={file}, got 103",
    }
    assert outside.answered == 1, "node 103 is no client's"
    grid.answers[103] = of_superlink(ErrorCode.CLIENT_APP_RAISED_EXCEPTION)
    assert messenger.introducer.introduce().answered == 1
    grid.answers[103] = trains(4)
    known.unregister(known.all()["101"])
    grid.answers[102] = trains(1)  # the id of a client that is gone
    messenger.introducer.introduce()
    assert list(known.proxies()) == []
    grid.answers[102] = trains(3)
    remember(tmp_path, 4, "103")
    outside = messenger.introducer.introduce()
    assert (outside.rejected, outside.extra) == ({}, set())
    assert list(known.proxies()) == [3, 4]


def test_the_node_of_a_client_that_the_run_does_not_have_can_be_no_other(tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text('{"9": "101", "10": "102"}')
    messenger, _, known = strangers({101: trains(9), 102: trains(3)})
    messenger.introducer.owners = NodeOwners(tmp_path / "nodes.json")
    outside = messenger.introducer.introduce()
    assert ([*outside.beyond], [*outside.rejected]) == (["node 101"], ["node 102"])
    assert known.members() == []


def test_a_node_says_once_that_the_run_does_not_have_its_client_and_counts_in_no_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    messenger, grid, known = strangers({101: trains(1), 102: trains(9)})
    audit = AuditLog(tmp_path)
    connected = Connections(
        messenger.introducer, known, clients=9, least=1, timeout_s=1, audit=audit
    )
    told = "introduction: client_id must be an integer in 0..8, got 9; if it is to participate"
    for _ in range(3):
        connected.introduce()
        assert (connected.failed, connected.refused) == ([], [])
    assert [message.count(f"node 102: {told}") for message in caplog.messages] == [1]
    lines = map(json.loads, (tmp_path / "audit.jsonl").read_text().splitlines())
    assert [line["who"] for line in lines if line["event"] == "rejected"] == ["node 102"]
    grid.answers[102] = trains(2)  # its configuration was wrong
    connected.introduce()
    assert list(known.proxies()) == [1, 2]
    assert str(messenger.introducer.introduce()) == "no node was rejected"


def test_the_wait_for_clients_is_not_for_a_node_that_is_none(tmp_path: Path) -> None:
    messenger, _, known = strangers({101: trains(1), 102: trains(9)})
    audit = AuditLog(tmp_path)
    connected = Connections(
        messenger.introducer, known, clients=9, least=1, timeout_s=0, audit=audit
    )
    connected.wait(1)
    assert list(known.proxies()) == [1]


@pytest.mark.parametrize(("client", "failures"), [(8, ["node 102"]), (9, [])])
def test_a_node_that_was_added_for_later_runs_is_no_failed_client_of_this_one(
    client: int, failures: list[str], tmp_path: Path
) -> None:
    (tmp_path / "nodes.json").write_text(json.dumps({"1": "101", str(client): "102"}))
    raises = of_superlink(ErrorCode.CLIENT_APP_RAISED_EXCEPTION)
    messenger, _, known = strangers({101: trains(1), 102: raises})
    messenger.introducer.owners = NodeOwners(tmp_path / "nodes.json")
    connected = Connections(
        messenger.introducer,
        known,
        clients=9,
        least=1,
        timeout_s=1,
        audit=AuditLog(tmp_path),
    )
    connected.introduce()
    assert list(known.proxies()) == [1]
    assert [failure.client_id for failure in connected.failed] == failures


def test_a_list_of_nodes_that_is_spoilt_in_a_run_keeps_nodes_out(tmp_path: Path) -> None:
    file = tmp_path / "nodes.json"
    file.write_text('{"1": "101"}')
    messenger, _, known = strangers({101: trains(1), 102: trains(2)})
    messenger.introducer.owners = NodeOwners(file)
    file.write_text('{"1": ')
    (told,) = {
        messenger.introducer.introduce().rejected[f"node {node}"][:80] for node in (101, 102)
    }
    assert told.startswith(
        "introduction: the node must be in engine.node_ids, which must be readable"
    )
    file.write_text('{"1": "101", "2": "102"}')
    messenger.introducer.introduce()
    assert list(known.proxies()) == [1, 2]


@pytest.mark.parametrize("text", ["", "[1]", '{"a": "1"}', '{"1": "x"}', '{"1": "7", "2": "7"}'])
def test_a_list_of_nodes_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "nodes.json").write_text(text)
    with pytest.raises(ValueError, match="the file of node ids must be JSON with Flower's id of"):
        NodeOwners(tmp_path / "nodes.json")


def test_another_release_of_flower_is_named(caplog: pytest.LogCaptureFixture) -> None:
    def of(client: int, version: str) -> Answer:
        return lambda message: [said(message, client, flower=version)]

    same = ".".join([*flwr.__version__.split(".")[:2], "99"])
    messenger, _, known = strangers({101: of(1, "1.30.0"), 102: of(2, same), 103: trains(3)})
    messenger.introducer.introduce()
    assert list(known.proxies()) == [1, 2, 3]
    (warning,) = [each.getMessage() for each in caplog.records]
    assert warning.startswith(f"client 1 has flwr 1.30.0 and the server {flwr.__version__};")


def test_a_node_that_was_rejected_or_failed_and_left_is_forgotten() -> None:
    raised = of_superlink(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "no such folder")
    negative, beyond = trains(-1), trains(77)
    messenger, _, known = strangers({101: trains(1), 102: negative, 103: raised, 104: beyond})
    outside = messenger.introducer.introduce()
    assert ([*outside.rejected], outside.failed) == (["node 102"], {"node 103": "no such folder"})
    assert [*outside.beyond] == ["node 104"]
    for node in ("102", "103", "104"):
        known.unregister(known.all()[node])
    outside = messenger.introducer.introduce()
    assert (outside.rejected, outside.failed, outside.beyond) == ({}, {}, {})


def test_a_node_that_cannot_be_asked_is_asked_again() -> None:
    messenger, grid, known = strangers({101: trains(1), 102: trains(2)})
    grid.gone = {102}
    messenger.introducer.introduce()
    assert list(known.proxies()) == [1]
    grid.gone = set()
    messenger.introducer.introduce()
    assert list(known.proxies()) == [1, 2]
