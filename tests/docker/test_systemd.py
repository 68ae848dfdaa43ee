"""The units of systemd/ say what docker-compose.yml and deployment.py do."""

import re
import shlex
from collections import defaultdict
from pathlib import Path

import pytest

from fl_app import resumer
from fl_app.engines import commands, registrar, warm_node
from fl_app.engines.credentials import Credentials

REPO = Path(__file__).resolve().parents[2]
FOLDER = REPO / "systemd"
UNITS = sorted(path.name for path in FOLDER.glob("fl-*.service"))
KEYS = Credentials(Path("/keys"))
BIN = "/opt/fl-app/.venv/bin/"


def read(name):
    """Return {setting: values} of a unit, and of what is common to all."""
    found = defaultdict(list)
    for path in (FOLDER / name, FOLDER / "fl-.service.d" / "common.conf"):
        for line in path.read_text().replace("\\\n", "").splitlines():
            if line.startswith("#") or "=" not in line:
                continue
            key, value = line.split("=", 1)
            found[key].append(value)
    return found


def command(name):
    """Return the words that a unit runs, with the settings of node.conf and client 4."""
    given = dict(re.findall(r"(?m)^(\w+)=(.*)$", (FOLDER / "node.conf").read_text()))
    given |= {"CREDENTIALS_DIRECTORY": "/keys", "FL_NODE_PORT": "9094"}
    (text,) = read(name)["ExecStart"]
    text = re.sub(r"\$\{?\$?(\w+)\}?", lambda found: given.get(found[1], found[0]), text)
    unit = name.split(".")[0].replace("@", "@4")
    text = text.replace("%i", "4").replace("%S", "/var/lib").replace("%N", unit)
    return [word.removeprefix(BIN) for word in shlex.split(text)]


def test_the_superlink_runs_the_same_command():
    state = "/var/lib/fl-superlink/state.db"
    expected = commands.superlink(KEYS, host="127.0.0.1", port=8000, fleet_port=9092, state=state)
    at = expected.index("--fleet-api-address") + 1
    expected[at] = "0.0.0.0:9092"
    assert command("fl-superlink.service") == expected


def test_the_superexec_runs_the_same_command():
    assert command("fl-superexec.service") == commands.superexec(KEYS, address="127.0.0.1:8000")


def test_a_node_runs_the_same_command_with_its_own_key():
    expected = commands.supernode(
        KEYS, node=4, nodes=9, superlink="fl.example.org:9092", port=9094, data_root="/srv/data",
        state_folder="/var/lib/fl-node@4/clients",
    )  # fmt: skip
    expected[expected.index(str(KEYS.node_key(4)))] = "/keys/node"
    assert command("fl-node@.service") == ["python", "-m", warm_node.__name__, *expected]


def test_lost_runs_are_looked_for_where_the_serverapp_may_write():
    words = command("fl-resumer.service")
    assert words[:3] == ["python", "-m", resumer.__name__]
    (folder,) = resumer.parser().parse_args(words[3:]).folders
    for name in ("fl-resumer.service", "fl-superexec.service", "fl-registrar.service"):
        assert folder.name in read(name)["StateDirectory"]
        assert read(name)["User"] == ["fl-runs"]


def test_the_registrar_reads_all_public_keys():
    program = shlex.split(command("fl-registrar.service")[2])
    assert program[:4] == ["exec", f"{BIN}python", "-m", registrar.__name__]
    options = registrar.parser().parse_args(program[4:])
    assert (options.address, options.root_certificates) == ("127.0.0.1:8000", KEYS.authority)


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_has_a_user_starts_again_and_sees_the_keys_of_its_command_alone(name):
    unit = read(name)
    assert f"u {unit['User'][0]} " in (FOLDER / "users.conf").read_text()
    ends = unit["Type"] == ["oneshot"]
    assert unit["Restart"] == ["on-failure" if ends else "always"]
    assert unit["NoNewPrivileges"] == ["yes"]
    assert (unit["ProtectSystem"], unit["CapabilityBoundingSet"]) == (["strict"], [""])
    named = set(re.findall(r"/keys/([\w.]+)", " ".join(command(name))))
    assert {each.split(":")[0] for each in unit["LoadCredential"]} == named
    assert not any("ca.key" in each for each in unit["LoadCredential"])
