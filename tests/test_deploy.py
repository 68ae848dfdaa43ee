"""What `scripts/deploy` refuses before it starts anything, and what it says of a federation."""

import fcntl
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fl_app import deploy, deploy_state
from fl_app.engines import credentials, federation_lock, flower, node_ids, ports
from fl_app.engines.federation import Federation
from fl_app.engines.flower_commands import FlowerError


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("up --node_s 4", "up does not know --node_s 4"),
        ("status rounds=3", "status does not know rounds=3"),
        ("up --nodes 0", "at least 1, got '0'"),
        ("keys --nodes -1", "at least 1, got '-1'"),
        ("up --nodes 99", "in 1..16 on one machine, got 99"),
        ("remove-node", "which node, as by --node 1"),
        ("up --folder=", "must be a folder, got ''; remove it"),
        ("down --node 3", "down takes no --node, which is for add-node, remove-node, rotate-keys"),
        ("status --nodes 4", "status takes no --nodes, which is for up, demo, keys; remove it"),
        ("up --hosts fl.example.org", "up takes no --hosts, which is for keys; remove it"),
        ("keys --hosts=,", "with a comma between each two, got ','"),
        ("run --no-warm", "run takes no --warm"),
        ("up --data-root {}/absent", "a folder that is there, got"),
        ("up --data-root {}/it's", "quote"),
    ],
)
def test_wrong_arguments_are_refused_in_a_sentence(words, told, tmp_path, capsys):
    (tmp_path / "it's").mkdir()
    with pytest.raises(SystemExit):
        deploy.main([*words.replace("{}", str(tmp_path)).split(), "--folder", str(tmp_path / "f")])
    assert told in capsys.readouterr().err
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("word", ["population.clients=9", "engine=inprocess", "+engine.folder=/x"])
def test_a_run_does_not_decide_what_its_federation_does(word, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(deploy, "keeper", lambda _: {"nodes": [0, 1]})
    assert deploy.run(tmp_path, ["rounds=2", word]) == 2
    told = capsys.readouterr().out
    assert f"{word} must not be given: the federation decides it" in told
    # who is told to give fewer clients, as by data of fewer, cannot give a number here
    assert ("scripts/deploy down, and up --nodes" in told) == ("clients" in word)


def test_a_run_takes_the_place_of_its_command(tmp_path, monkeypatch):
    became = []
    monkeypatch.setattr(deploy, "keeper", lambda _: {"nodes": [0, 1]})
    monkeypatch.setattr(deploy.os, "execv", lambda _, words: became.extend(words))
    monkeypatch.setattr(deploy, "subprocess", None)  # a child would outlive a kill of its command
    deploy.run(tmp_path, ["rounds=2"])
    assert became[1:4] == ["-m", "fl_app.main", "rounds=2"]


@pytest.mark.parametrize(
    ("words", "planned"),
    [
        (["experiment=mnist_label_swap"], 100),
        (["--config-dir={}", "experiment=wards"], 7),  # of the user's own
        (["rounds=2"], 20),
        (["experiment=federation_demo"], None),  # as many as there are nodes
        (["--multirun", "seed=0,1"], None),
        (["strategy=unknown"], None),  # the run says what is wrong
    ],
)
def test_a_run_says_which_number_of_clients_its_federation_replaces(
    words, planned, tmp_path, capsys, monkeypatch
):
    (tmp_path / "experiment").mkdir()
    own = "# @package _global_\npopulation:\n  clients: 7\n"
    (tmp_path / "experiment" / "wards.yaml").write_text(own)
    monkeypatch.setattr(deploy, "keeper", lambda _: {"nodes": [0, 1, 2]})
    monkeypatch.setattr(deploy.os, "execv", lambda *_: None)
    monkeypatch.setattr("fl_app.own.searched", [])
    deploy.run(tmp_path, [each.replace("{}", str(tmp_path)) for each in words])
    told = f"population.clients=3, a client for each node, in place of {planned}"
    lines = capsys.readouterr().out.splitlines()
    assert [line[: len(told)] for line in lines] == ([] if planned is None else [told])


@pytest.mark.parametrize(("target", "clients"), [("iid", 2), ("own", 4)])
def test_a_resumed_run_keeps_the_clients_that_share_a_data_set(
    target, clients, tmp_path, monkeypatch
):
    words = []

    monkeypatch.setattr(deploy, "keeper", lambda _: {"nodes": [0, 1, 2, 3]})
    monkeypatch.setattr(deploy.os, "execv", lambda _, given: words.extend(given))
    former = {"_target_": f"fl_app.data.population.{target}", "clients": 2}
    (tmp_path / "config.yaml").write_text(json.dumps({"population": former}))
    deploy.run(tmp_path, [f"resume={tmp_path}"])
    assert f"population.clients={clients}" in words


@pytest.mark.parametrize("action", ["up", "keys", "status", "down", "run", "add-node"])
def test_a_folder_that_cannot_be_used_is_told(action, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(deploy, "_REPO", tmp_path)
    (tmp_path / "file").touch()
    assert deploy.main([action, "--folder", str(tmp_path / "file")]) == 1
    assert "must be a folder with room in which you can read" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("ca.crt", "", "must be a certificate in PEM, got 0 bytes"),
        ("server.pem", "x", "must be a certificate in PEM, got 1 bytes"),
    ],
)
def test_a_certificate_that_is_none_is_told(file, text, told, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(deploy, "_REPO", tmp_path)
    keys = credentials.ensure(tmp_path / "f" / "keys", nodes=1)
    (keys.folder / file).write_text(text)
    assert deploy.main(["keys", "--folder", str(tmp_path / "f")]) == 1
    assert told in capsys.readouterr().out


@pytest.mark.parametrize("host", ["http://x", "fl.org:9092", "köln.de", "a b", "-x"])
def test_a_host_that_no_certificate_can_name_is_told(host, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(deploy, "_REPO", tmp_path)
    words = ["keys", "--folder", str(tmp_path / "f"), f"--hosts=fl.example.org, ::1,{host}"]
    assert deploy.main(words) == 1
    assert f"without a port, got {host!r}" in capsys.readouterr().out
    assert not (tmp_path / "f").exists()


def test_a_federation_that_starts_is_neither_running_nor_absent(tmp_path, capsys, monkeypatch):
    words = ["--folder", str(tmp_path)]
    path = federation_lock.file_of(tmp_path)
    with path.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        path.write_text(json.dumps({"pid": 1, "up": False, "nodes": [], "mark": "x"}))
        assert deploy.main(["status", *words]) == 3
        assert deploy.main(["run", *words]) == 1
        assert capsys.readouterr().out.count("just starting or stopping") == 2
        assert deploy.main(["up", *words]) == 1
        assert not (tmp_path / "keeper.log").exists()

        def ended(pid: int, number: int) -> None:
            assert (pid, number) == (1, signal.SIGTERM)
            fcntl.flock(held, fcntl.LOCK_UN)

        monkeypatch.setattr(deploy.os, "kill", ended)
        assert deploy.main(["down", *words]) == 0
    assert "is stopped" in capsys.readouterr().out


def test_a_killed_federation_is_none(tmp_path):
    path: Path = federation_lock.file_of(tmp_path)
    path.write_text(json.dumps({"pid": 1, "up": True, "nodes": [0], "mark": "x"}))
    assert federation_lock.holder(tmp_path) is None


def test_a_machine_without_ports_is_told_before_anything_is_made(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(ports, "PORTS", range(20_000, 20_004))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert deploy.main(["keep", "--nodes", "3", "--folder", str(tmp_path)]) == 1
    assert "5 ports of 127.0.0.1 in 20000..20003 must be free, got" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["federation.pid"]


def test_a_federation_in_the_foreground_is_not_kept_twice(tmp_path, capsys):
    with federation_lock.file_of(tmp_path).open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert deploy.main(["keep", "--folder", str(tmp_path)]) == 1
    assert f"a federation is already running in {tmp_path}; stop it" in capsys.readouterr().out


def test_a_federation_that_starts_too_slowly_is_stopped_and_names_the_logs_of_its_processes(
    tmp_path, capsys, monkeypatch
):
    waits = [sys.executable, "-c", "import time; time.sleep(600)"]
    started = []

    def start(words: list[str], **options: object) -> "subprocess.Popen[bytes]":
        started.append(real(waits, **options))
        return started[0]

    real = subprocess.Popen
    monkeypatch.setattr(deploy.subprocess, "Popen", start)
    monkeypatch.setattr(deploy, "_UP_TIMEOUT_S", 0.0)
    assert deploy.main(["up", "--nodes", "2", "--folder", str(tmp_path)]) == 1
    told = f"within 0 s; see {tmp_path / 'keeper.log'} and {tmp_path / 'logs'}; on a busy machine"
    assert told in capsys.readouterr().out
    assert started[0].poll() is not None


def test_who_only_looks_lets_a_keeper_start(tmp_path, monkeypatch):
    """`up` itself looks again and again whether its keeper runs."""
    path = federation_lock.file_of(tmp_path)
    with path.open("a") as looks, path.open("a") as held:
        fcntl.flock(looks, fcntl.LOCK_SH)
        pauses = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                fcntl.flock(looks, fcntl.LOCK_UN)

        monkeypatch.setattr(federation_lock.time, "sleep", pause)
        assert federation_lock.lock(held)
        assert len(pauses) == 3
        with path.open("a") as another:
            assert not federation_lock.lock(another)


def test_the_status_of_a_federation_whose_superlink_does_not_answer_is_a_sentence(
    tmp_path, capsys, monkeypatch
):
    def command(*_: object) -> None:
        raise FlowerError("flwr supernode did not answer within 120 s")

    monkeypatch.setattr(flower, "command", command)
    monkeypatch.setattr(deploy, "keeper", lambda _: {"pid": 5, "nodes": [0]})
    assert deploy.main(["status", "--folder", str(tmp_path)]) == 1
    told = "running, keeper 5, but its SuperLink does not answer: flwr supernode did not answer"
    assert capsys.readouterr().out.startswith(told)


def test_the_status_names_the_nodes_that_are_not_online(tmp_path, capsys, monkeypatch):
    for number, node in enumerate(["17", "18", "19"]):
        node_ids.remember(tmp_path, number, node)
    listed = [{"node-id": "17", "status": "online"}, {"node-id": "18", "status": "offline"}]
    monkeypatch.setattr(flower, "command", lambda *_: {"nodes": listed})
    monkeypatch.setattr(deploy, "keeper", lambda _: {"pid": 5, "nodes": [0, 1, 2]})
    assert deploy.show_status(tmp_path) == 1
    told = "running, keeper 5: 1 of 3 nodes online, without nodes [1, 2]"
    assert capsys.readouterr().out.strip() == told
    node_ids.remember(tmp_path, 1, None)
    assert node_ids.registered(tmp_path) == {0: "17", 2: "19"}


def test_without_a_count_those_nodes_start_that_were_there_last(tmp_path):
    assert list(deploy_state.first_nodes(tmp_path, None)) == [0, 1, 2]
    assert deploy_state.told_of_count(tmp_path, 2) == []
    for number in range(5):
        node_ids.remember(tmp_path, number, str(17 + number))
    node_ids.remember(tmp_path, 1, None)
    assert list(deploy_state.first_nodes(tmp_path, None)) == [0, 2, 3, 4]
    assert list(deploy_state.first_nodes(tmp_path, 3)) == [0, 1, 2]
    new, left = deploy_state.told_of_count(tmp_path, 3)
    assert new == "nodes [1] are registered, with new keys where they were removed"
    assert left.startswith("nodes [3, 4] are not started; they stay registered")
    for number in (0, 2, 3, 4):
        node_ids.remember(tmp_path, number, None)
    assert list(deploy_state.first_nodes(tmp_path, None)) == []


def test_a_file_of_node_ids_that_is_none_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    (tmp_path / node_ids.FILE).write_text("[]")
    for action in (["up", "--nodes", "2"], ["keep"]):
        assert deploy.main([*action, "--folder", str(tmp_path)]) == 1
        assert "the file of node ids must be JSON" in capsys.readouterr().out


def test_a_federation_has_keys_for_its_own_numbers_only(tmp_path):
    federation = Federation(tmp_path, nodes=[0, 3], warm=False)
    keys = credentials.ensure(tmp_path / "keys", nodes=federation.first)
    assert credentials.node_numbers(keys.folder) == [0, 3]
    federation.keys = keys
    words = " ".join(federation._node_words(0))
    assert "partition-id=0 num-partitions=4" in words
    assert Federation(tmp_path, nodes=[], warm=False).nodes == 0
