"""A Grid on which every client is a node, though fewer nodes carry the clients.

Flower simulates two nodes unless told otherwise. Client c is carried by node c modulo the number
of nodes. A node works on one message at a time, because it stores one state after each.
"""

import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import RLock

from flwr.app import Error, Message, RecordDict
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.serverapp.grid import Grid
from flwr.supercore.run import Run

from fl_app.ingress.carried import address

FIRST = 2
"""Node id of client 0: 0 and 1 are Flower's own."""
_POLL_S = 0.1
_LATE_S = 60.0
"""How long a reply is kept beyond the time in which its message had to be answered."""
_SETTLED_S = 1.0
"""Flower registers the nodes of a simulation while the ServerApp starts; it takes milliseconds."""


@dataclass
class _Carrier:
    """A node: the messages that wait for it, and the one that it works on with its id there."""

    waiting: deque[tuple[str, Message]] = field(default_factory=deque)
    working: tuple[str, Message, str] | None = None


class CarryingGrid(Grid):
    """Gives each of `clients` clients a node id, and sends its messages to one of `nodes`."""

    def __init__(self, grid: Grid, nodes: Sequence[int], clients: int) -> None:
        self._grid, self._clients = grid, clients
        self._carriers = {node: _Carrier() for node in sorted(nodes)}
        self._replies: dict[str, tuple[Message, float]] = {}
        self._sent = 0
        self._lock = RLock()  # replies are pulled in a thread

    def set_run(self, run: Run) -> None:
        """Set the run that messages belong to."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """The run that messages belong to."""
        return self._grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a message to one client."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the node id of each client, none once the nodes are gone."""
        present = any(True for _ in self._grid.get_node_ids())
        return range(FIRST, FIRST + self._clients) if present else ()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send each message once its node has answered the messages before it."""
        ids = []
        with self._lock:
            nodes, now = list(self._carriers), time.time()
            # a round that has ended asks for its late replies no more
            self._replies = {each: of for each, of in self._replies.items() if of[1] > now}
            for message in messages:
                client = message.metadata.dst_node_id - FIRST
                self._sent += 1
                message_id = f"carried-{self._sent}"
                message.metadata.__dict__["_message_id"] = message_id  # as Flower's own grids do
                self._carriers[nodes[client % len(nodes)]].waiting.append((message_id, message))
                ids.append(message_id)
            self._advance()
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that have arrived to these messages."""
        with self._lock:
            self._advance()
            return [self._replies.pop(each)[0] for each in message_ids if each in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and return the replies that arrive within `timeout` seconds."""
        end = float("inf") if timeout is None else time.monotonic() + timeout
        waiting, replies = set(self.push_messages(messages)), list[Message]()
        while waiting:
            for each in sorted(waiting):
                if found := list(self.pull_messages([each])):
                    replies += found
                    waiting.discard(each)
            if time.monotonic() > end:
                break
            time.sleep(_POLL_S)
        return replies

    def _advance(self) -> None:
        """Collect the replies of all nodes, and give the next message to each idle one."""
        for node, carrier in self._carriers.items():
            if carrier.working is not None:
                outer, message, inner = carrier.working
                for reply in self._grid.pull_messages([inner]):
                    self._replies[outer] = reply, _due(message) + _LATE_S
                    carrier.working = None
            while carrier.waiting and carrier.working is None:
                outer, message = carrier.waiting.popleft()
                sent = self._push(node, message)
                if sent is None:
                    self._replies[outer] = _gone(message), time.time() + _LATE_S
                else:
                    carrier.working = outer, message, sent

    def _push(self, node: int, message: Message) -> str | None:
        """Send a message to its node; None if it is too late for it, or the node is gone."""
        asked = message.metadata
        left = _due(message) - time.time()
        if left <= 0:
            return None
        content = RecordDict({**message.content})
        address(content, asked.dst_node_id - FIRST)
        sent = Message(content, node, asked.message_type, ttl=left, group_id=asked.group_id)
        return next((each for each in self._grid.push_messages([sent]) if each), None)


def _gone(message: Message) -> Message:
    """Return the SuperLink's answer to a message whose node is gone."""
    reason = "the node is gone, or it is too late"
    reply = Message(Error(ErrorCode.NODE_UNAVAILABLE, reason), reply_to=message)
    reply.metadata.__dict__["_src_node_id"] = SUPERLINK_NODE_ID
    return reply


def _due(message: Message) -> float:
    """Return until when a message has to be answered."""
    return message.metadata.created_at + message.metadata.ttl


def simulates(grid: Grid) -> bool:
    """Whether a Grid is that of Flower's simulation, whose module only Flower imports.

    It loads a database library in half a second, which no other engine needs.
    """
    module = sys.modules.get("flwr.superlink.grid.inmemory_grid")
    return module is not None and isinstance(grid, module.InMemoryGrid)


def simulated_nodes(grid: Grid, wanted: int) -> list[int] | None:
    """Return the node ids of a simulation, None for a Grid of real nodes.

    With fewer than `wanted`, it waits a second for those that Flower has yet to register. Only
    simulated nodes may carry clients: a real node's key stands for one client.
    """
    if not simulates(grid):
        return None
    found, since = list(grid.get_node_ids()), time.monotonic()
    while len(found) < wanted and (not found or time.monotonic() - since < _SETTLED_S):
        time.sleep(_POLL_S)
        now = list(grid.get_node_ids())
        if len(now) != len(found):
            found, since = now, time.monotonic()
    return found
