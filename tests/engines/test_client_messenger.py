"""Replies belong to the message that they answer; what is lost or broken costs its own client."""

import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import httpx
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.common import (
    EvaluateIns,
    FitIns,
    Parameters,
)
from flwr.common.constant import ErrorCode

sys.path.insert(0, str(Path(__file__).parent))
from fake_nodes import NONE, Clock, FakeGrid, federation, fit, fitted, nothing, of_superlink, trains

from fl_app.engines import client_messenger as module
from fl_app.engines import puller, stop_request
from fl_app.engines.puller import OF_THE_LOST
from fl_app.strategies.replies import LostClient, RejectedReply


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    monkeypatch.setattr(stop_request, "wait", found.wait)
    return found


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


def _list(content: RecordDict) -> None:
    content["fitres.metrics"] = ConfigRecord({"loss": [0.25, 0.5]})


def _many_records(content: RecordDict) -> None:
    for each in range(10_001):
        content[f"attached.0.{each}"] = ConfigRecord()


@pytest.mark.parametrize(
    ("add", "said"),
    [
        (_more_arrays, "without arrays beside fitres.parameters, got 1 more records"),
        (_many_fields, "of at most 10000 fields, got 1"),
        (_many_records, "of at most 10000 fields, got 1"),
        (_list, "loss must be a single value, got [0.25, 0.5]"),
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
