"""What is told to Flower's command line, and what is made of its answers."""

import json
import os
import sys
import time
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from fl_app.engines import commands, flower, flower_commands
from fl_app.engines import federation as federations
from fl_app.engines.credentials import Credentials
from fl_app.engines.flower import Connection, RunResult
from fl_app.engines.flower_commands import FlowerError
from fl_app.engines.member import Member
from fl_app.engines.processes import ProcessError, Supervisor

FAKE = """#!{python}
import json, os, pathlib, sys, time
folder = pathlib.Path(os.environ["FAKE_FOLDER"])
words = sys.argv[1:]
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps(words) + "\\n")
if words[0] == "run":
    given = pathlib.Path(words[words.index("--run-config") + 1])
    (folder / "run.toml").write_text(given.read_text())
if words[0] == "log":
    print((folder / "log").read_text(), flush=True)
    time.sleep(float((folder / "streams").read_text()))
    sys.exit()
answers = folder / words[0]
lines = answers.read_text().splitlines()
print(lines[0])
if len(lines) > 1:
    answers.write_text("\\n".join(lines[1:]))
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A `flwr` that answers from files: one line an answer, the last one for ever."""
    program = tmp_path / "flwr"
    program.write_text(FAKE.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("FAKE_FOLDER", str(tmp_path))
    monkeypatch.setattr(flower_commands, "executable", lambda name: str(tmp_path / name))
    monkeypatch.setattr(flower, "_POLL_S", 0.05)
    (tmp_path / "log").write_text("hello from the run")
    (tmp_path / "streams").write_text("0")
    (tmp_path / "stop").write_text('{"success": true}')
    return tmp_path


def answer(folder, command, *answers):
    (folder / command).write_text("\n".join(json.dumps(one) for one in answers))


def calls(folder):
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


def seen(*states):
    return [{"success": True, "runs": [{"status": state}]} for state in states]


def followed(folder, on_tick=lambda: None):
    connection = Connection("here", folder / "home")
    with Supervisor(connection.environment()) as supervisor:
        return flower.follow(
            connection, 7, log=folder / "out.log", on_tick=on_tick, supervisor=supervisor
        )


@pytest.mark.parametrize(
    "overrides",
    ["", "rounds=2 a='b c'", 'a="x" \\ \n\t=', "records.folder='/tmp/it''s é'", "a=\x7f"],
)
def test_overrides_reach_flower_unchanged_whatever_is_in_them(fake, overrides):
    answer(fake, "run", {"success": True, "run-id": "42"})
    connection = Connection("here", fake / "home")
    given = {"overrides": overrides, "composed": json.dumps({"overrides": overrides})}
    assert flower.submit(connection, Path("/app"), **given, federation={}) == 42
    assert tomllib.loads((fake / "run.toml").read_text()) == given


def test_federation_options_are_passed_as_toml_values(fake):
    answer(fake, "run", {"success": True, "run-id": "42"})
    options = {"num-supernodes": 10, "client-resources-num-gpus": 0.25}
    connection = Connection("here", fake / "home")
    flower.submit(connection, Path("/app"), overrides="", federation=options)
    words = calls(fake)[0]
    given = words[words.index("--federation-config") + 1]
    assert given == "num-supernodes=10 client-resources-num-gpus=0.25"


def test_a_refusal_is_an_error_with_flowers_words(fake):
    answer(fake, "run", {"success": False, "error-message": "Invalid Flower App configuration"})
    with pytest.raises(FlowerError, match="flwr run: Invalid Flower App configuration"):
        flower.submit(Connection("here"), Path("/app"), overrides="", federation={})


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("Connection to the SuperLink is unavailable. Check it.", "here must be running, .* start"),
        ("Internal server error", "the log of the SuperLink says why, such as a full disk"),
    ],
)
def test_a_superlink_that_is_down_or_full_is_told_with_a_remedy(fake, reason, remedy):
    answer(fake, "run", {"success": False, "error-message": reason})
    with pytest.raises(FlowerError, match=remedy):
        flower.submit(Connection("here"), Path("/app"), overrides="", federation={})


def test_notes_before_the_answer_are_skipped(fake):
    (fake / "run").write_text('note: {not json} {"success": true, "run-id": "3"}')
    assert flower.submit(Connection("here"), Path("/app"), overrides="", federation={}) == 3


def test_a_completed_run_is_ok_and_its_log_is_copied(fake):
    answer(fake, "ls", *seen("pending", "running", "finished:completed"))
    ticks = []
    outcome = followed(fake, lambda: ticks.append(0))
    assert outcome == RunResult("finished:completed", "", 7)
    assert outcome.ok
    assert "hello from the run" in (fake / "out.log").read_text()
    assert len(ticks) >= 3


@pytest.mark.parametrize("state", ["finished:failed", "finished:stopped"])
def test_any_other_end_is_a_failure_with_its_reason(fake, state):
    answer(fake, "ls", *seen("running", state))
    (fake / "log").write_text(
        "Traceback\n  File x\nValueError: no data in /data\n\x1b[91mERROR \x1b[0m: Exit Code: 700"
    )
    outcome = followed(fake)
    assert not outcome.ok
    assert outcome == RunResult(state, "ValueError: no data in /data", 7)


def test_ctrl_c_stops_the_run_and_goes_on_up(fake):
    answer(fake, "ls", *seen("running"))
    (fake / "streams").write_text("60")

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        followed(fake, interrupt)
    assert ["stop", "7", "here", "--format", "json"] in calls(fake)


def test_a_superlink_that_stays_silent_ends_the_wait(fake, monkeypatch):
    monkeypatch.setattr(flower, "_LOOKS_WITHOUT_ANSWER", 2)
    answer(fake, "ls", {"success": False, "error-message": "Connection is unavailable"})
    with pytest.raises(ProcessError, match="Connection is unavailable"):
        followed(fake)


def test_a_log_that_ends_before_its_run_is_taken_up_again(fake):
    answer(fake, "ls", *seen(*["running"] * 5, "finished:completed"))
    assert followed(fake).ok
    assert sum(words[0] == "log" for words in calls(fake)) == 2
    assert (fake / "out.log").read_text().count("hello from the run") == 1


def test_a_connection_is_written_for_flower_to_read(tmp_path):
    connection = Connection("here", tmp_path / "home")
    connection.write(address="127.0.0.1:5", root_certificates=tmp_path / 'a "b"' / "ca.crt")
    read = tomllib.loads((tmp_path / "home" / "config.toml").read_text())["superlink"]
    certificate = str(tmp_path / 'a "b"' / "ca.crt")
    assert read == {
        "default": "here",
        "here": {"address": "127.0.0.1:5", "root-certificates": certificate},
    }
    connection.write(address="127.0.0.1:6", root_certificates=None)
    read = tomllib.loads((tmp_path / "home" / "config.toml").read_text())["superlink"]
    assert read["here"] == {"address": "127.0.0.1:6", "insecure": True}


def test_the_environment_is_quiet_offline_and_finds_this_installation(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_HOME", "/users/own")
    found = Connection("here", tmp_path).environment()
    assert found["FLWR_HOME"] == str(tmp_path)
    assert found["FLWR_TELEMETRY_ENABLED"] == "0"
    assert found["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert found["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert found["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert Connection("here").environment()["FLWR_HOME"] == "/users/own"


def test_a_node_config_carries_a_folder_with_spaces_and_refuses_a_quote():
    from flwr.common.config import parse_config_args

    text = commands.node_config(node=1, nodes=3, data_root="/some where/data")
    expected = {"partition-id": 1, "num-partitions": 3, "data-root": "/some where/data"}
    assert parse_config_args([text]) == expected
    text = commands.node_config(node=1, nodes=3, data_root=None, state_folder="/a b")
    assert parse_config_args([text])["state-folder"] == "/a b"
    with pytest.raises(ValueError, match="data root must not contain a quote"):
        commands.node_config(node=1, nodes=3, data_root="/it's")


def test_commands_are_options_that_flower_knows():
    node_parser = import_module("flwr.supernode.cli.flower_supernode")._parse_args_run_supernode()
    link_parser = import_module("flwr.superlink.cli.flower_superlink")._parse_args_run_superlink()
    keys = Credentials(Path("/keys"))
    node = commands.supernode(
        keys, node=0, nodes=3, superlink="superlink:9092", port=9094, data_root=None
    )
    link = commands.superlink(keys, host="0.0.0.0", port=8000, fleet_port=9092, state="s.db")
    assert node_parser.parse_args(node[1:]).insecure is False
    parsed = link_parser.parse_args(link[1:])
    assert (parsed.isolation, parsed.enable_supernode_auth) == ("process", True)
    assert (parsed.database, parsed.runtime_dependency_install) == ("s.db", False)


@pytest.mark.parametrize("name", ["plain", "with space", "100 % a?b#c"])
def test_the_database_is_one_file_whatever_its_folder_is_called(tmp_path, monkeypatch, name):
    from flwr.server.superlink.linkstate import LinkStateFactory
    from flwr.supercore.object_store import ObjectStoreFactory
    from flwr.superlink.federation import NoOpFederationManager

    federation = federations.Federation(tmp_path / name, nodes=1, warm=False)
    home = federation._home("superlink")
    home.mkdir(parents=True)
    monkeypatch.chdir(home)
    url = federation._state()
    state = LinkStateFactory(url, NoOpFederationManager(), ObjectStoreFactory(url)).state()
    assert state.get_node_info() == []
    assert [path.name for path in (tmp_path / name).glob("*.db")] == ["state.db"]


@pytest.mark.parametrize("nodes", [0, 17])
def test_a_federation_on_one_machine_has_a_sensible_size(tmp_path, nodes):
    with pytest.raises(ValueError, match=f"nodes must be in 1..16 on one machine, got {nodes}"):
        federations.Federation(tmp_path, nodes=nodes, warm=True)


def test_a_member_that_ends_is_started_again_with_growing_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(federations, "BACK_OFF_S", 0.1)
    federation = federations.Federation(tmp_path, nodes=1, warm=False)
    with federation.supervisor:
        home = tmp_path / "home"
        process = federation._launch("node", ["false"], home)
        member = Member("node", ["false"], home, process, wait_s=0.1)
        federation.members.append(member)
        deadline = time.monotonic() + 120
        while federation.restarts < 3:
            federation.check()
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert member.wait_s == pytest.approx(0.8)


def test_the_serverapps_superexec_looks_for_work_less_often_than_those_of_the_nodes(tmp_path):
    federation = federations.Federation(tmp_path, nodes=1, warm=False)
    with federation.supervisor:
        for name in ("superexec", "supernode-0"):
            process = federation._launch(name, ["env"], tmp_path / name)
            process.popen.wait(20)
            lines = dict(line.split("=", 1) for line in process.output.splitlines() if "=" in line)
            assert lines[flower.POLL] == {"superexec": "1"}.get(name, "0.2")
