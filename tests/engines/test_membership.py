"""Nodes are added, removed and given new keys while the federation runs."""

import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fl_app import deploy, deploy_keeper
from fl_app.engines import commands, credentials, flower, flower_commands, log_files, membership
from fl_app.engines import federation as federations
from fl_app.engines.federation import Federation
from fl_app.engines.membership import OrderError
from fl_app.engines.node_ids import registered
from fl_app.engines.processes import wait_for_line
from fl_app.records.audit import FILE, AuditLog, check, fingerprint


class Calls(list[list[str]]):
    """What Flower was told, and what a SuperNode was started with."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    found, ids = Calls(), itertools.count(100)

    def command(connection: flower.Connection, *words: str) -> dict[str, object]:
        found.append(list(words))
        return {"node-id": next(ids)}

    monkeypatch.setattr(flower, "command", command)
    monkeypatch.setattr(flower_commands, "executable", lambda name: name)
    monkeypatch.setattr(commands, "supernode", lambda keys, **given: ["sleep", "600"])
    return found


@pytest.fixture
def federation(tmp_path: Path, calls: Calls) -> Iterator[Federation]:
    """A federation of nodes 0 and 1 whose SuperNodes only sleep."""
    found = Federation(tmp_path, nodes=2, warm=False)
    found.keys = credentials.ensure(tmp_path / "keys", nodes=2)
    found.audit = AuditLog(tmp_path)
    with found.supervisor:
        for node in range(2):
            found.start_node(node)
        calls.clear()
        yield found


def events(folder: Path) -> list[tuple[str, int, str]]:
    entries = map(json.loads, (folder / FILE).read_text().splitlines())
    return [(each["event"], each["client"], each["node"]) for each in entries]


def test_a_new_node_gets_the_least_free_number(federation: Federation, calls: Calls) -> None:
    assert "node 2 is added as client 2" in membership.add(federation, None)
    assert federation.numbers == [0, 1, 2]
    assert calls[0][:2] == ["supernode", "register"]
    assert calls[0][2].endswith("node2.pub")
    membership.remove(federation, 1)
    membership.add(federation, None)
    assert federation.numbers == [0, 1, 2]
    with pytest.raises(OrderError, match=r"no other node has, got 1; .*\[0, 1, 2\]"):
        membership.add(federation, 1)
    with pytest.raises(OrderError, match="got -1"):
        membership.add(federation, -1)


def test_a_removed_node_is_refused_before_it_is_stopped_and_its_key_is_gone(
    federation: Federation, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = next(m for m in federation.members if m.number == 1).process
    alive: list[bool] = []
    former = flower.command

    def command(connection: flower.Connection, *words: str) -> dict[str, object]:
        alive.append(process.alive)
        return former(connection, *words)

    monkeypatch.setattr(flower, "command", command)
    membership.remove(federation, 1)
    assert calls == [["supernode", "unregister", "101", "fl-app"]]
    assert alive == [True]
    assert not process.alive
    assert federation.numbers == [0]
    assert not federation.keys.node_key(1).exists()
    federation.check()
    assert federation.restarts == 0
    with pytest.raises(OrderError, match=r"must be one of \[0\], got 1"):
        membership.remove(federation, 1)


def test_nodes_of_an_older_database_that_was_put_back_are_refused(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = {"7": "offline", "8": "unregistered", "9": "online", "100": "registered"}
    told = []

    def command(connection: flower.Connection, *words: str) -> dict[str, object]:
        told.append(words[1:-1])
        return {"nodes": [{"node-id": each, "status": now} for each, now in status.items()]}

    monkeypatch.setattr(flower, "command", command)
    federation.refuse_unknown()
    assert told == [("list",), ("unregister", "7"), ("unregister", "9")]
    assert events(federation.folder)[2:] == [
        ("unregistered", None, "7"), ("unregistered", None, "9"),
    ]  # fmt: skip
    assert federation.refused == ["7", "9"]


def test_all_nodes_get_new_keys_one_by_one(federation: Federation, calls: Calls) -> None:
    before = [fingerprint(federation.keys.node_public_key(node)) for node in range(2)]
    membership.rotate(federation, None)
    after = [fingerprint(federation.keys.node_public_key(node)) for node in range(2)]
    assert not set(before) & set(after)
    assert [words[1] for words in calls] == ["unregister", "register"] * 2
    folder = federation.folder
    assert events(folder)[2:] == [
        ("unregistered", 0, "100"), ("registered", 0, "103"),
        ("unregistered", 1, "101"), ("registered", 1, "105"),
    ]  # fmt: skip
    assert check(folder / FILE).problems == ()
    assert federation.numbers == [0, 1]


def test_a_key_that_was_registered_before_keeps_its_id(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(federations, "register", lambda connection, key: None)
    federation.stop_member(federation.members[0])
    federation.start_node(0)
    assert registered(federation.folder)[0] == "100"
    (federation.folder / "nodes.json").unlink()
    with pytest.raises(flower_commands.FlowerError, match="flwr supernode list"):
        federation.unregister_node(0)


def test_an_order_is_carried_out_by_the_keeper_and_answered(
    federation: Federation, calls: Calls, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr(membership, "_POLL_S", 0.01)
    monkeypatch.setattr(deploy, "keeper", lambda folder: {"pid": 1})
    done = threading.Event()

    def keep() -> None:
        while not done.wait(0.01):
            membership.carry_out(federation)

    keeper = threading.Thread(target=keep)
    keeper.start()
    try:
        assert deploy.change(federation.folder, "add-node", 5) == 0
        assert deploy.change(federation.folder, "remove-node", 9) == 1
    finally:
        done.set()
        keeper.join()
    said = capsys.readouterr().out
    assert "node 5 is added as client 5" in said
    assert "the node must be one of [0, 1, 5], got 9" in said
    assert list((federation.folder / membership.ORDERS).iterdir()) == []


def test_the_superlink_starts_again_with_a_new_certificate_for_the_same_hosts(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    superlink = federation._add("superlink", ["sleep", "600"])
    nodes = [member.process for member in federation.members if member.number is not None]
    keys = federation.keys
    before = keys.certificate.read_bytes(), keys.key.read_bytes(), keys.authority.read_bytes()
    hosts = credentials.known_as(keys.certificate)
    assert "starts again with it" in membership.renew(federation, None)
    assert not superlink.alive
    assert keys.certificate.read_bytes() != before[0]
    assert keys.key.read_bytes() != before[1]
    assert keys.authority.read_bytes() == before[2]
    assert credentials.known_as(keys.certificate) == hosts
    member = federation.members[-1]
    federation.check()
    monkeypatch.setattr(member, "due", 0.0)
    federation.check()
    assert member.process.alive
    assert all(process.alive for process in nodes)


def test_a_certificate_is_not_renewed_for_a_node_or_without_the_authority(
    federation: Federation,
) -> None:
    with pytest.raises(OrderError, match="that of the SuperLink, got node 1; name none"):
        membership.renew(federation, 1)
    federation.keys.authority_key.unlink()
    with pytest.raises(credentials.CredentialsError, match=r"ca\.key must be there to sign"):
        membership.renew(federation, None)


def test_a_node_with_a_reply_that_no_run_awaits_is_restarted(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    federation.check()
    behind, other = federation.members
    first = behind.process
    with behind.process.log.open("a") as file:
        file.write("Run ID 4 is not in `RUNNING` status. Ignoring message ab.\n")
        file.write("Start `flwr-clientapp` process\n")
    federation.check()
    assert not first.alive
    assert "supernode-0 is restarted: it has a reply that no run awaits" in caplog.text
    monkeypatch.setattr(behind, "due", 0.0)
    federation.check()
    federation.check()
    assert behind.process.alive
    assert other.process.alive
    assert federation.restarts == 1


def test_a_node_that_has_left_after_an_error_is_restarted(federation: Federation, caplog) -> None:
    federation.check()
    node, other = federation.members
    first = node.process
    with first.log.open("a") as file:
        file.write("ERROR :     <_InactiveRpcError of RPC that terminated with:\n")
    federation.check()
    assert not first.alive
    assert "supernode-0 is restarted: it has left the SuperLink after an error" in caplog.text
    assert other.process.alive


def test_a_node_whose_superexec_was_killed_is_restarted(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    words = ["sh", "-c", "sleep 600 & echo $!; exec sleep 600"]
    monkeypatch.setattr(commands, "supernode", lambda keys, **given: words)
    membership.add(federation, 2)
    node = next(m for m in federation.members if m.number == 2)
    wait_for_line(node.process, "\n", timeout_s=60)
    first, child = node.process, int(node.process.output)
    federation.check()
    assert node.process.alive
    os.kill(child, signal.SIGKILL)
    while not first.ended_children():
        time.sleep(0.01)
    federation.check()  # a child that is about to be noticed looks the same, once
    assert first.alive
    federation.check()
    assert not first.alive
    assert "supernode-2 is restarted: its SuperExec has ended" in caplog.text


def test_a_node_that_ends_without_a_reason_was_refused(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    monkeypatch.setattr(commands, "supernode", lambda keys, **given: ["true"])
    membership.add(federation, 2)
    ended = federation.members[-1].process.popen
    ended.wait(60)
    federation.check()
    federation.check()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert told[0].startswith("supernode-2 has ended: the SuperLink no longer lets it in: its key")


def test_a_node_that_is_started_again_gets_a_port_that_is_free_then(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program may listen on the former one, and it would fail for ever."""
    monkeypatch.setattr(federations, "free_ports", lambda count: [4321])
    monkeypatch.setattr(commands, "supernode", lambda keys, **given: ["sleep", str(given["port"])])
    member = federation.members[1]
    member.process.popen.kill()
    member.process.popen.wait()
    member.wait_s = 0.0
    for _ in range(2):
        federation.check()
    assert member.process.popen.args == ["sleep", "4321"]
    assert member.process.alive


def test_the_log_of_a_node_that_runs_for_months_is_limited(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "MOST_BYTES", 100)
    log = federation.members[0].process.log
    with log.open("a") as file:
        file.write("x" * 101)
    federation.check()
    assert log.stat().st_size == 0
    assert log_files.former(log).read_text().endswith("x" * 101)


def test_a_damaged_order_is_answered_and_ends_nobody(federation: Federation) -> None:
    orders = federation.folder / membership.ORDERS
    orders.mkdir()
    for name, text in (("a", "garbage"), ("b", "[]"), ("c", '{"action": "fly", "node": 1}')):
        (orders / f"{name}.order").write_text(text)
    assert membership.carry_out(federation)
    answers = sorted(orders.iterdir())
    assert [path.name for path in answers] == ["a.answer", "b.answer", "c.answer"]
    assert not any(json.loads(path.read_text())["done"] for path in answers)


def test_without_a_keeper_nothing_waits(tmp_path: Path, capsys) -> None:
    assert deploy.change(tmp_path, "add-node", None) == 1
    assert "no federation is running" in capsys.readouterr().out
    with pytest.raises(TimeoutError, match="must answer within 0 s"):
        membership.ask(tmp_path, "add-node", None, timeout_s=0.0)
    assert list((tmp_path / membership.ORDERS).iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_command_withdraws_its_order(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the keeper, or the next one, would remove a node that nobody asks it to any more."""
    monkeypatch.setattr(deploy, "keeper", lambda folder: {"pid": 1})
    left = []

    def interrupted(seconds: float) -> None:
        left.append([path.suffix for path in (tmp_path / membership.ORDERS).iterdir()])
        os.kill(os.getpid(), number)

    monkeypatch.setattr(time, "sleep", interrupted)
    # a library of another test in this process may have left a handler
    before = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    former = signal.signal(number, before)
    words = ["remove-node", "--node", "1", "--folder", str(tmp_path)]
    try:
        assert deploy.main(words) == 130
        assert signal.getsignal(number) == before
    finally:
        signal.signal(number, former)
    assert left == [[".order"]]
    assert list((tmp_path / membership.ORDERS).iterdir()) == []


def test_a_keeper_drops_what_a_former_one_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = tmp_path / membership.ORDERS
    orders.mkdir()
    for name in ("a.order", "b.answer", "c.order.tmp"):
        (orders / name).touch()
    monkeypatch.setattr(deploy_keeper, "Federation", lambda folder, **_: pytest.fail("not yet"))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(pytest.fail.Exception, match="not yet"):
        deploy.main(["keep", "--folder", str(tmp_path)])
    assert list(orders.iterdir()) == []
