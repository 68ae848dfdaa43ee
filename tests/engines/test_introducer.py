"""Nodes say which client they are; who does not, or may not be that client, is in no round."""

import json
import sys
from pathlib import Path

import flwr
import pytest
from flwr.common.constant import ErrorCode
from flwr.server.compat.grid_client_proxy import GridClientProxy

sys.path.insert(0, str(Path(__file__).parent))
from fake_nodes import Answer, FakeGrid, nothing, of_superlink, said, trains

from fl_app.engines.client_messenger import ClientMessenger
from fl_app.engines.connections import Connections
from fl_app.engines.node_ids import NodeOwners, remember
from fl_app.records.audit import AuditLog
from fl_app.strategies.roster import Roster


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
        messenger.introducer, known, clients=9, min_success=1, timeout_s=1, audit=audit
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
        messenger.introducer, known, clients=9, min_success=1, timeout_s=0, audit=audit
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
        min_success=1,
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


def test_another_release_of_flower_is_named(caplog: pytest.LogCaptureFixture) -> None:
    def of(client: int, version: str) -> Answer:
        return lambda message: [said(message, client, flower=version)]

    same = ".".join([*flwr.__version__.split(".")[:2], "99"])
    messenger, _, known = strangers({101: of(1, "1.30.0"), 102: of(2, same), 103: trains(3)})
    messenger.introducer.introduce()
    assert list(known.proxies()) == [1, 2, 3]
    (warning,) = [each.getMessage() for each in caplog.records]
    assert warning.startswith(f"client 1 has flwr 1.30.0 and the server {flwr.__version__};")
