"""Fewer nodes than clients: each message reaches its client, one at a time on each node."""

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.app.metadata import Metadata
from flwr.common import ConfigRecord
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.supercore.task_identity import TaskIdentity

sys.path.insert(0, str(Path(__file__).parent))
from stand_in_grid import StandInGrid

from fl_app import client_mods
from fl_app.engines import carrying
from fl_app.engines.carrying import FIRST, CarryingGrid, simulated_nodes
from fl_app.engines.puller import Silence, content
from fl_app.ingress.carried import CARRIED, address
from fl_app.ingress.rejection import RejectionError

NODES, CLIENTS = (70, 50), 5


class Nodes(StandInGrid):
    """Keeps what is pushed; `answer` lets a node answer."""

    def __init__(self) -> None:
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, SUPERLINK_NODE_ID
        self.sent: list[tuple[str, Message]] = []
        self.replies: dict[str, Message] = {}
        self.gone = False

    def push_messages(self, messages: Iterable[Message]) -> Iterator[str]:
        for message in messages:
            if not self.gone:
                self.sent.append((f"inner-{len(self.sent)}", message))
                message.metadata.__dict__["_message_id"] = self.sent[-1][0]
                yield self.sent[-1][0]

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self.replies.pop(each) for each in message_ids if each in self.replies]

    def answer(self, place: int) -> None:
        message_id, message = self.sent[place]
        self.replies[message_id] = Message(message.content, reply_to=message)

    def get_node_ids(self) -> Iterable[int]:
        return NODES


def to(client: int, ttl: float | None = None) -> Message:
    """Return a message to a client's node id."""
    content = RecordDict({"said": ConfigRecord({"to": client})})
    return Message(content, FIRST + client, "train", ttl=ttl, group_id="1")


def asked(nodes: Nodes) -> list[tuple[int, int]]:
    """Return node and client of each message that was sent."""
    return [
        (each.metadata.dst_node_id, int(str(each.content[CARRIED]["client_id"])))
        for _, each in nodes.sent
    ]


def test_each_node_works_on_one_message_at_a_time_and_replies_find_their_message() -> None:
    nodes = Nodes()
    grid = CarryingGrid(nodes, NODES, CLIENTS)
    assert list(grid.get_node_ids()) == [2, 3, 4, 5, 6]
    messages = [to(client) for client in range(CLIENTS)]
    ids = list(grid.push_messages(messages))
    assert ids == [message.metadata.message_id for message in messages]
    assert asked(nodes) == [(50, 0), (70, 1)]
    assert list(grid.pull_messages(ids)) == []
    nodes.answer(1)
    (reply,) = grid.pull_messages([ids[1]])
    assert reply.content["said"]["to"] == 1
    assert asked(nodes) == [(50, 0), (70, 1), (70, 3)]
    nodes.answer(0)
    assert [each.content["said"]["to"] for each in grid.pull_messages(ids)] == [0]
    assert asked(nodes)[3:] == [(50, 2)]
    assert CARRIED not in messages[0].content


def test_a_message_that_no_node_takes_or_that_is_too_late_is_answered_by_an_error() -> None:
    nodes = Nodes()
    grid = CarryingGrid(nodes, NODES, CLIENTS)
    late = to(0, ttl=1.0)
    late.metadata.__dict__["_created_at"] = 0.0
    (too_late,) = grid.push_messages([late])
    nodes.gone = True
    (unsent,) = grid.push_messages([to(1)])
    for message_id in (too_late, unsent):
        (reply,) = grid.pull_messages([message_id])
        assert reply.error.code == ErrorCode.NODE_UNAVAILABLE
        assert isinstance(content(reply), Silence)
    assert nodes.sent == []


def test_all_replies_are_waited_for_but_no_longer_than_said() -> None:
    nodes = Nodes()
    grid = CarryingGrid(nodes, NODES, CLIENTS)
    assert grid.send_and_receive([to(0)], timeout=0.0) == []
    nodes.gone = True
    (reply,) = grid.send_and_receive([to(1)])
    assert reply.error == Error(ErrorCode.NODE_UNAVAILABLE, reply.error.reason)


def test_late_replies_of_rounds_that_have_ended_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A simulation of many rounds would otherwise keep the model of each."""
    nodes, now = Nodes(), time.time()
    grid = CarryingGrid(nodes, NODES, CLIENTS)
    (late,) = grid.push_messages([to(0, ttl=100.0)])
    monkeypatch.setattr(carrying.time, "time", lambda: now + 130)
    nodes.answer(0)
    list(grid.pull_messages(["another"]))
    (another,) = grid.push_messages([to(0, ttl=1000.0)])
    assert list(grid._replies) == [late]
    nodes.answer(1)
    monkeypatch.setattr(carrying.time, "time", lambda: now + 170)
    list(grid.push_messages([to(1, ttl=1000.0)]))
    assert list(grid._replies) == [another]
    assert [each.content["said"]["to"] for each in grid.pull_messages([late, another])] == [0]


def test_only_a_simulations_nodes_carry() -> None:
    assert simulated_nodes(Nodes(), 2) is None


def context(overrides: str, nodes: int) -> Context:
    """Return the context of a node 0 of `nodes`."""
    node = {"partition-id": 0, "num-partitions": nodes}
    return Context(1, 7, node, RecordDict(), {"overrides": overrides})


def received(client: int) -> Message:
    """Return a message as it arrives on a node."""
    content = RecordDict()
    address(content, client)
    metadata = Metadata(1, "id", 1, 7, "", "1", 0.0, 60.0, "train")
    return Message(content, metadata=metadata)


def test_a_client_on_a_node_has_its_own_id_and_its_own_state() -> None:
    node = context("", nodes=2)
    seen = []

    def client(message: Message, here: Context) -> Message:
        name = here.node_config["partition-id"]
        seen.append((name, dict(here.state)))
        here.state["mine"] = ConfigRecord({"of": name})
        return message

    for client_id in (3, 5, 3):
        client_mods.as_addressed(received(client_id), node, client)
    assert seen == [(3, {}), (5, {}), (3, {"mine": ConfigRecord({"of": 3})})]
    assert node.node_config["partition-id"] == 0


@pytest.mark.parametrize(
    ("overrides", "nodes", "client"),
    [
        ("population=own", 2, 1),
        ("population.clients=3", 3, 1),
        ("population.clients=3", 2, 3),
    ],
)
def test_a_node_refuses_to_be_a_client_that_it_is_not(
    overrides: str, nodes: int, client: int
) -> None:
    with pytest.raises(RejectionError, match="must be"):
        client_mods.as_addressed(received(client), context(overrides, nodes), lambda *_: None)
