"""A federation of nodes that answer as they are told, without processes."""

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from flwr.app import Error, Message
from flwr.common import (
    Code,
    EvaluateRes,
    FitIns,
    FitRes,
    GetPropertiesRes,
    Parameters,
    Status,
)
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.compat.common import recorddict_compat as compat
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.supercore.task_identity import TaskIdentity

sys.path.insert(0, str(Path(__file__).parent))
from stand_in_grid import StandInGrid

from fl_app.engines.client_messenger import ClientMessenger
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
