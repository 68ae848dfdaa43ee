"""Sends one batch of messages and returns all replies in the order of the client ids."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from flwr.app import Message, MessageType, RecordDict
from flwr.common import EvaluateIns, EvaluateRes, FitIns, FitRes
from flwr.compat.common import recorddict_compat as compat
from flwr.server.client_proxy import ClientProxy
from flwr.serverapp.grid import Grid

from fl_app.engines import stop_request
from fl_app.engines.inprocess import InProcessGrid
from fl_app.engines.introducer import Introducer
from fl_app.engines.outgoing import grid_of, message_to, pushed, share_arrays
from fl_app.engines.puller import Puller, Silence, content
from fl_app.ingress.extent import check_extent, check_single
from fl_app.ingress.rejection import RejectionError, trusted
from fl_app.strategies.replies import ClientFailure, LostClient, RejectedReply
from fl_app.strategies.roster import Roster

Reply = TypeVar("Reply")
Exchanged = tuple[list[tuple[ClientProxy, Reply]], list[ClientFailure]]
Sent = list[tuple[ClientProxy, Any]]
"""The receiver of each message, and the content of its reply or the reason why there is none."""
Outgoing = Sequence[tuple[ClientProxy, str, RecordDict]]
"""The receiver, type and content of each message."""

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
    number of clients of the run; `timeout` is in seconds, None: no timeout. `introducer` admits the
    nodes.
    """

    def __init__(self, roster: Roster, *, clients: int, timeout: float | None) -> None:
        self.roster = roster
        self.timeout = timeout
        self._puller = Puller()
        self.introducer = Introducer(roster, clients=clients, puller=self._puller)

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
        messages = [message_to(p, each, kind, server_round, timeout) for p, kind, each in contents]
        found: list[Any] = [Silence(f"no reply within engine.round_timeout_s={timeout}")]
        found *= len(contents)
        for place, reply in self._answers(grid_of(contents[0][0]), messages):
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
        share_arrays(messages)
        waiting = pushed(grid, messages)
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


def fit_reply(content: RecordDict) -> FitRes:
    """Return a client's reply to a training message; raises RejectionError."""
    check_extent(content, arrays="fitres.parameters")
    check_single(content, "fitres.metrics")
    return compat.recorddict_to_fitres(content, keep_input=True)


def evaluation_of(ins: EvaluateIns) -> Callable[[RecordDict], EvaluateRes]:
    """Return the parser of a reply, which takes the community from the request."""
    asked = ins.config["community"]

    def parse(content: RecordDict) -> EvaluateRes:
        check_extent(content, arrays=None)
        check_single(content, "evaluateres.metrics")
        reply = compat.recorddict_to_evaluateres(content)
        return EvaluateRes(
            reply.status, reply.loss, reply.num_examples, {**reply.metrics, "community": asked}
        )

    return parse
