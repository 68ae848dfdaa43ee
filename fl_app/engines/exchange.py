"""One batch of messages out, all replies back, in the order of the client ids."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flwr.app import Message, MessageType, RecordDict
from flwr.common import (
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetPropertiesIns,
    MessageTypeLegacy,
)
from flwr.compat.common import recorddict_compat as compat
from flwr.server.client_proxy import ClientProxy
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.serverapp.grid import Grid
from flwr.supercore.run import RunNotRunningException
from httpx import HTTPError

from fl_app.engines.inprocess import InProcessGrid
from fl_app.ingress.introductions import read_introduction
from fl_app.ingress.rejection import RejectionError, shown, trusted
from fl_app.strategies.replies import ClientFailure, RejectedReply
from fl_app.strategies.roster import Roster

Reply = TypeVar("Reply")
Exchanged = tuple[list[tuple[ClientProxy, Reply]], list[ClientFailure]]
Sent = list[tuple[ClientProxy, Any]]
"""Whom a message went to, and what stands in its reply: the content, or why there is none."""

INTRODUCED_AT_ONCE = 1000
"""New nodes asked in one batch: all at once would hold a message for each in memory."""
FIRST_LOOK_S, LONGEST_LOOK_S = 0.05, 0.5
"""Time between looks for replies: it grows, so that a long training is not disturbed."""


@dataclass
class Introductions:
    """Nodes that did not get in: why they failed, and why they were rejected.

    `rejected` by client id where the engine knows it, else by node.
    """

    failed: list[str] = field(default_factory=list)
    rejected: dict[int | str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        rejected = [f"{who}: {why}" for who, why in self.rejected.items()]
        return "; ".join(self.failed + rejected) or "no node that answered was refused"

    @property
    def answered(self) -> int:
        """How many nodes answered and are not in."""
        return len(self.failed) + len(self.rejected)


class Exchange:
    """Sends instructions to clients and gathers what they answer, or why they did not.

    A reply belongs to the message that it answers, whatever it says of itself. `clients` is
    the number of clients of the run; `timeout` in seconds, None: none.
    """

    def __init__(self, roster: Roster, *, clients: int, timeout: float | None) -> None:
        self.roster, self.clients = roster, clients
        self.timeout = timeout

    def fit(
        self, server_round: int, instructions: Sequence[tuple[ClientProxy, FitIns]]
    ) -> Exchanged[FitRes]:
        """Train on every instructed client."""
        contents = [(p, compat.fitins_to_recorddict(ins, True)) for p, ins in instructions]
        replies = self._send(server_round, MessageType.TRAIN, contents)
        return self._parsed(replies, [_fit_reply] * len(contents))

    def evaluate(
        self, server_round: int, instructions: Sequence[tuple[ClientProxy, EvaluateIns]]
    ) -> Exchanged[EvaluateRes]:
        """Evaluate on every instructed client; one client may get several models."""
        contents = [(p, compat.evaluateins_to_recorddict(ins, True)) for p, ins in instructions]
        replies = self._send(server_round, MessageType.EVALUATE, contents)
        return self._parsed(replies, [_evaluation_of(ins) for _, ins in instructions])

    def introduce(self) -> Introductions:
        """Ask all nodes that are new who they are; return those who did not get in."""
        strangers = self.roster.strangers()
        record = compat.getpropertiesins_to_recorddict
        found = Introductions()
        for start in range(0, len(strangers), INTRODUCED_AT_ONCE):
            some = strangers[start : start + INTRODUCED_AT_ONCE]
            contents = [(proxy, record(GetPropertiesIns({}))) for proxy in some]
            replies = self._send(0, MessageTypeLegacy.GET_PROPERTIES, contents)
            for proxy, reply in replies:
                self._introduce(proxy, reply, found)
        return found

    def _introduce(self, proxy: ClientProxy, reply: RecordDict | str, found: Introductions) -> None:
        if isinstance(reply, str):
            found.failed.append(f"node {proxy.cid}: {reply}")
            return
        grid = _grid(proxy)
        expected = grid.client_of(_node(proxy)) if isinstance(grid, InProcessGrid) else None
        try:
            properties = trusted(compat.recorddict_to_getpropertiesres, reply).properties
            identity = trusted(read_introduction, properties, self.clients, expected)
            if not self.roster.introduce(proxy, identity):
                rule = "one that no other node holds; give every node a partition-id of its own"
                raise RejectionError("client_id", rule, shown(identity.client_id))
        except RejectionError as error:
            who = f"node {proxy.cid}" if expected is None else expected
            found.rejected[who] = f"introduction: {error}"

    def _parsed(
        self, replies: Sent, parsers: Sequence[Callable[[RecordDict], Reply]]
    ) -> Exchanged[Reply]:
        """Return replies sorted by client, and who failed; a malformed reply fails alone."""
        results: list[tuple[ClientProxy, Reply]] = []
        failures: list[ClientFailure] = []
        for (proxy, reply), parse in zip(replies, parsers, strict=True):
            client = self.roster.client_id(proxy)
            if isinstance(reply, str):
                failures.append(ClientFailure(client, reply))
                continue
            try:
                results.append((proxy, trusted(parse, reply)))
            except RejectionError as error:
                failures.append(RejectedReply(client, str(error)))
        results.sort(key=lambda result: self.roster.client_id(result[0]))
        return results, sorted(failures, key=lambda failure: failure.client_id)

    def _send(
        self,
        server_round: int,
        message_type: str,
        contents: Sequence[tuple[ClientProxy, RecordDict]],
    ) -> Sent:
        """Return for every message its reply's content, or the reason why there is none."""
        if not contents:
            return []
        messages = [
            Message(
                content=content,
                message_type=message_type,
                dst_node_id=_node(proxy),
                group_id=str(server_round),
                ttl=self.timeout,
            )
            for proxy, content in contents
        ]
        none = f"no reply within {self.timeout} s"
        found: list[Any] = [none] * len(contents)
        for place, reply in _answers(_grid(contents[0][0]), messages, self.timeout):
            found[place] = reply
        return [(proxy, reply) for (proxy, _), reply in zip(contents, found, strict=True)]


def _answers(
    grid: Grid, messages: list[Message], timeout: float | None
) -> Iterator[tuple[int, RecordDict | str]]:
    """Yield the place of a message and what came back for it, as it comes."""
    if isinstance(grid, InProcessGrid):
        yield from enumerate(map(_content, grid.send_and_receive(messages)))
        return
    ids = list(grid.push_messages(messages))
    waiting = {str(each): place for place, each in enumerate(ids) if each}
    for place in set(range(len(messages))) - set(waiting.values()):
        yield place, "the message could not be sent: the node is gone"
    end = None if timeout is None else time.monotonic() + timeout
    look = FIRST_LOOK_S
    while waiting and (end is None or time.monotonic() < end):
        came = list(_looked(grid, list(waiting)))
        for message_id, reply in came:
            yield waiting.pop(message_id), reply
        look = FIRST_LOOK_S if came else min(2 * look, LONGEST_LOOK_S)
        if waiting:
            time.sleep(look)


def _looked(grid: Grid, ids: Iterable[str]) -> Iterator[tuple[str, RecordDict | str]]:
    """Yield the replies that have come, each pulled alone: one that cannot be read costs no other.

    Which message a reply answers is what was asked for, not what the reply says.
    """
    for message_id in ids:
        try:
            replies = list(grid.pull_messages([message_id]))
        except (RunNotRunningException, HTTPError, OSError):
            raise  # of the connection, which Flower has tried again: no client's doing
        except Exception as error:
            yield message_id, f"the reply could not be read: {type(error).__name__}: {shown(error)}"
            continue
        if replies:
            yield message_id, _content(replies[0])


def _content(reply: Message) -> RecordDict | str:
    if reply.has_error():
        return str(reply.error.reason)
    return reply.content if reply.has_content() else "an empty reply"


def _grid(proxy: ClientProxy) -> Grid:
    assert isinstance(proxy, GridClientProxy)
    return proxy.grid


def _node(proxy: ClientProxy) -> int:
    return int(proxy.cid)


def _fit_reply(content: RecordDict) -> FitRes:
    return compat.recorddict_to_fitres(content, keep_input=True)


def _evaluation_of(ins: EvaluateIns) -> Callable[[RecordDict], EvaluateRes]:
    """Return the parser of a reply: it answers the question that was put, not its own."""
    asked = ins.config["community"]

    def parse(content: RecordDict) -> EvaluateRes:
        reply = compat.recorddict_to_evaluateres(content)
        return EvaluateRes(
            reply.status, reply.loss, reply.num_examples, {**reply.metrics, "community": asked}
        )

    return parse
