"""Sends one batch of messages and returns all replies in the order of the client ids."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from logging import getLogger
from typing import Any, TypeVar

import flwr
from flwr.app import Array, Message, MessageType, RecordDict
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

from fl_app.engines import stop_request
from fl_app.engines.inprocess import InProcessGrid
from fl_app.engines.introductions import Introductions, identity
from fl_app.engines.node_ids import NodeOwners
from fl_app.engines.puller import Puller, Silence, content
from fl_app.ingress.extent import check_extent
from fl_app.ingress.introductions import BeyondError
from fl_app.ingress.rejection import RejectionError, shown, trusted
from fl_app.strategies.replies import ClientFailure, LostClient, RejectedReply
from fl_app.strategies.roster import Roster

log = getLogger(__name__)
Reply = TypeVar("Reply")
Exchanged = tuple[list[tuple[ClientProxy, Reply]], list[ClientFailure]]
Sent = list[tuple[ClientProxy, Any]]
"""The receiver of each message, and the content of its reply or the reason why there is none."""
Outgoing = Sequence[tuple[ClientProxy, str, RecordDict]]
"""The receiver, type and content of each message."""

INTRODUCED_AT_ONCE = 1000
"""New nodes per batch of introductions, since each message needs memory."""
FIRST_LOOK_S, LONGEST_LOOK_S = 0.05, 0.5
"""Time between polls for replies; it grows, so that polling does not slow down training."""
REST = 3.0
"""The least time between polls, in times of what the last one needed for messages without a reply.

Each of these costs the SuperLink a request. With many of them, it would serve little else.
"""
EXPIRING_S = 1.0
"""So shortly before the timeout, an error of the SuperLink means only that the time is over."""


class ClientMessenger:
    """Sends instructions to clients and collects their replies or the reasons of failures.

    The message determines the client of a reply, not the content of the reply. `clients` is the
    number of clients of the run; `timeout` is in seconds, None: no timeout. With `owners`, a node
    can introduce itself only as the client whose key it has. Only the clients in `planted` may say
    that they are malicious.
    """

    def __init__(self, roster: Roster, *, clients: int, timeout: float | None) -> None:
        self.roster, self.clients = roster, clients
        self.timeout = timeout
        self.owners: NodeOwners | None = None
        self.planted: Set[int] = frozenset()
        self._outside = Introductions()
        self._introducing: dict[str, ClientProxy] = {}
        self._puller = Puller()

    def fit(
        self, server_round: int, instructions: Sequence[tuple[ClientProxy, FitIns]]
    ) -> Exchanged[FitRes]:
        """Train on every instructed client."""
        contents = [(p, compat.fitins_to_recorddict(ins, True)) for p, ins in instructions]
        return self.ask(server_round, MessageType.TRAIN, contents, [fit_reply] * len(contents))

    def evaluate(
        self, server_round: int, instructions: Sequence[tuple[ClientProxy, EvaluateIns]]
    ) -> Exchanged[EvaluateRes]:
        """Evaluate on every instructed client; one client may get several models."""
        contents = [(p, compat.evaluateins_to_recorddict(ins, True)) for p, ins in instructions]
        parsers = [evaluation_of(ins) for _, ins in instructions]
        return self.ask(server_round, MessageType.EVALUATE, contents, parsers)

    def ask(
        self,
        server_round: int,
        kind: str,
        contents: Sequence[tuple[ClientProxy, RecordDict]],
        parsers: Sequence[Callable[[RecordDict], Reply]],
    ) -> Exchanged[Reply]:
        """Send any messages of a type that the client app knows; each reply has its own parser."""
        messages = [(proxy, kind, content) for proxy, content in contents]
        return self.parsed(kind, self.send(server_round, messages), parsers)

    def introduce(self) -> Introductions:
        """Ask new nodes for their identity; return the nodes that are not admitted so far.

        Does not wait for answers: a later call reads those that arrive later.
        """
        asked = {proxy.cid for proxy in self._introducing.values()}
        strangers = [proxy for proxy in self.roster.strangers() if proxy.cid not in asked]
        for start in range(0, len(strangers), INTRODUCED_AT_ONCE):
            self._ask(strangers[start : start + INTRODUCED_AT_ONCE])
            self._listen()
        if not strangers:
            self._listen()
        found = self._outside
        self._forget_gone(found)
        waiting = [f"node {proxy.cid}" for proxy in self._introducing.values()]
        return Introductions(
            found.failed.copy(), found.rejected.copy(), waiting, found.extra.copy(),
            found.beyond.copy(),
        )  # fmt: skip

    def _forget_gone(self, found: Introductions) -> None:
        """Forget the nodes that failed or were rejected and have left; silent ones stay named."""
        failed = {who for who, why in found.failed.items() if not isinstance(why, Silence)}
        gone = failed | {who for who in found.rejected if isinstance(who, str)} | {*found.beyond}
        gone -= {f"node {cid}" for cid in self.roster.clients} if gone else set()
        for who in gone:
            found.rejected.pop(who, None)
            found.beyond.pop(who, None)
            if who in failed:
                del found.failed[who]

    def _ask(self, strangers: Sequence[ClientProxy]) -> None:
        ins = compat.getpropertiesins_to_recorddict
        kind = MessageTypeLegacy.GET_PROPERTIES
        messages = [_message(p, ins(GetPropertiesIns({})), kind, 0, None) for p in strangers]
        sent = _pushed(_grid(strangers[0]), messages)
        self._introducing.update((each, strangers[place]) for each, place in sent.items())

    def _listen(self) -> None:
        """Read the introductions that have arrived."""
        if self._introducing:
            grid = _grid(next(iter(self._introducing.values())))
            for message_id, reply in self._puller.look(grid, list(self._introducing)):
                stop_request.check()
                self._introduce(self._introducing.pop(message_id), reply, self._outside)

    def _introduce(self, proxy: ClientProxy, reply: RecordDict | str, found: Introductions) -> None:
        grid, node = _grid(proxy), f"node {proxy.cid}"
        inside = grid.client_of(_node(proxy)) if isinstance(grid, InProcessGrid) else None
        who = node if inside is None else inside
        found.failed.pop(node, None)
        found.rejected.pop(who, None)
        found.beyond.pop(node, None)
        found.extra.discard(node)
        if self.owners is not None and not self.owners.know(proxy.cid, of=self.clients):
            found.extra.add(node)
        if isinstance(reply, str):
            found.failed[node] = reply
            return
        try:
            expected = inside if self.owners is None else self.owners.client_of(proxy.cid)
            told = trusted(identity, reply, self.clients, expected, self.planted)
            if not self.roster.introduce(proxy, told):
                found.extra.add(node)
                holder = self.roster.proxy(told.client_id).cid
                rule = f"an id that no other node has, and node {holder} has it; one of the two is "
                rule += "wrong: give every node a different partition-id, or remove that node"
                raise RejectionError("client_id", rule, shown(told.client_id))
        except BeyondError as error:
            remedy = "if it is to participate, give it a partition-id below population.clients"
            found.beyond[node] = f"introduction: {error}; {remedy}"
            return
        except RejectionError as error:
            found.rejected[who] = f"introduction: {error}"
            return
        if _release(told.flower) not in ("", _release(flwr.__version__)):
            log.warning(
                "client %d has flwr %s and the server %s; they are not known to work together: "
                "install the server's version on the client's machine",
                told.client_id, told.flower, flwr.__version__,
            )  # fmt: skip

    def parsed(
        self, kind: str, replies: Sent, parsers: Sequence[Callable[[RecordDict], Reply]]
    ) -> Exchanged[Reply]:
        """Return the valid replies to messages of a type and the failures, sorted by client."""
        trains = kind == MessageType.TRAIN
        results: list[tuple[ClientProxy, Reply]] = []
        failures: list[ClientFailure] = []
        for (proxy, reply), parse in zip(replies, parsers, strict=True):
            client = self.roster.client_id(proxy)
            if isinstance(reply, Silence):
                self.roster.doubt(proxy, training=trains)
                failures.append(LostClient(client, reply))
                continue
            if isinstance(reply, str):
                failures.append(ClientFailure(client, reply))
                continue
            try:
                results.append((proxy, trusted(parse, reply)))
            except RejectionError as error:
                failures.append(RejectedReply(client, str(error)))
        if trains:
            self.roster.heard(proxy for proxy, _ in results)
        results.sort(key=lambda result: self.roster.client_id(result[0]))
        return results, sorted(failures, key=lambda failure: failure.client_id)

    def send(self, server_round: int, contents: Outgoing) -> Sent:
        """Return the content of the reply to each message, or the reason why there is none."""
        if not contents:
            return []
        timeout = self.timeout
        messages = [_message(p, each, kind, server_round, timeout) for p, kind, each in contents]
        found: list[Any] = [Silence(f"no reply within engine.round_timeout_s={timeout}")]
        found *= len(contents)
        for place, reply in self._answers(_grid(contents[0][0]), messages):
            found[place] = reply
        return [(proxy, reply) for (proxy, *_), reply in zip(contents, found, strict=True)]

    def _answers(
        self, grid: Grid, messages: list[Message]
    ) -> Iterator[tuple[int, RecordDict | str]]:
        """Yield the index of a message and its reply, in the order of arrival."""
        if isinstance(grid, InProcessGrid):
            yield from enumerate(map(content, grid.send_and_receive(messages)))
            return
        end = float("inf") if self.timeout is None else time.monotonic() + self.timeout
        _share_arrays(messages)
        waiting = _pushed(grid, messages)
        for place in set(range(len(messages))) - set(waiting.values()):
            yield place, Silence("the message could not be sent: the node is gone")
        look, now = FIRST_LOOK_S, 0.0
        while waiting and now < end:
            stop_request.check()
            now, end = time.monotonic(), min(end, stop_request.latest())
            # the poll after the timeout makes the SuperLink delete messages without a reply
            came = list(self._puller.look(grid, list(waiting)))
            for message_id, reply in came:
                place = waiting.pop(message_id)
                if not isinstance(reply, Silence) or now < end - EXPIRING_S:
                    yield place, reply
            look = FIRST_LOOK_S if came else min(2 * look, LONGEST_LOOK_S)
            if waiting and now < end:
                rest = max(look, REST * self._puller.in_vain_s)
                stop_request.wait(min(rest, max(end - time.monotonic(), FIRST_LOOK_S)))
        self._puller.forget(waiting)


def _message(
    proxy: ClientProxy, content: RecordDict, kind: str, server_round: int, timeout: float | None
) -> Message:
    return Message(
        content=content,
        message_type=kind,
        dst_node_id=_node(proxy),
        group_id=str(server_round),
        ttl=timeout,
    )


def _share_arrays(messages: Iterable[Message]) -> None:
    """Let messages with the same model have one object of it, which Flower then hashes once."""
    known: dict[tuple[object, ...], Array] = {}
    for message in messages:
        for record in message.content.array_records.values():
            for name, array in record.items():
                key = id(array.data), array.dtype, array.shape, array.stype
                record[name] = known.setdefault(key, array)


def _pushed(grid: Grid, messages: list[Message]) -> dict[str, int]:
    """Send messages; return the index of each accepted one by its id.

    For unknown nodes, a Grid returns None or nothing.
    """
    taken = {each for each in grid.push_messages(messages) if each}
    ids = [message.metadata.message_id for message in messages]
    return {each: place for place, each in enumerate(ids) if each in taken}


def _release(version: str) -> str:
    """Return `1.39` of `1.39.0`; releases of Flower with the same are compatible."""
    return ".".join(version.split(".")[:2])


def _grid(proxy: ClientProxy) -> Grid:
    assert isinstance(proxy, GridClientProxy)
    return proxy.grid


def _node(proxy: ClientProxy) -> int:
    return int(proxy.cid)


def fit_reply(content: RecordDict) -> FitRes:
    """Return a client's reply to a training message; raises RejectionError."""
    check_extent(content, arrays="fitres.parameters")
    return compat.recorddict_to_fitres(content, keep_input=True)


def evaluation_of(ins: EvaluateIns) -> Callable[[RecordDict], EvaluateRes]:
    """Return the parser of a reply, which takes the community from the request."""
    asked = ins.config["community"]

    def parse(content: RecordDict) -> EvaluateRes:
        check_extent(content, arrays=None)
        reply = compat.recorddict_to_evaluateres(content)
        return EvaluateRes(
            reply.status, reply.loss, reply.num_examples, {**reply.metrics, "community": asked}
        )

    return parse
