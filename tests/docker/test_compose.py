"""docker-compose.yml says what deployment.py does: same commands, and every file is mounted."""

import tomllib
from pathlib import Path

import pytest
import yaml

from fl_app.engines import commands, registrar
from fl_app.engines.credentials import Credentials

REPO = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((REPO / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
KEYS = Credentials(Path("/keys"))
NODES = 3


def mounts(service):
    """Return {path in the container: (path on the host or volume, is read-only)}."""
    found = {}
    for text in SERVICES[service]["volumes"]:
        readonly = text.endswith(":ro")
        host, inside = text.removesuffix(":ro").rsplit(":", 1)
        found[inside] = (host, readonly)
    return found


def test_the_superlink_runs_the_same_command():
    expected = commands.superlink(
        KEYS, host="0.0.0.0", port=8000, fleet_port=9092, state="/state/state.db"
    )
    assert SERVICES["superlink"]["command"] == expected


def test_the_serverapp_runs_the_same_command():
    assert SERVICES["serverapp"]["command"] == commands.superexec(KEYS, address="superlink:8000")


@pytest.mark.parametrize("node", range(NODES))
def test_each_node_runs_the_same_command_with_its_own_key(node):
    expected = commands.supernode(
        KEYS, node=node, nodes=NODES, superlink="superlink:9092", port=9094, data_root="/data"
    )
    assert SERVICES[f"supernode-{node}"]["command"] == expected


def test_the_registrar_knows_every_node():
    words = SERVICES["registrar"]["command"]
    assert words[:3] == ["python", "-m", registrar.__name__]
    options = registrar.parser().parse_args(words[3:])
    assert options.keys == [KEYS.node_public_key(node) for node in range(NODES)]
    assert (options.address, options.root_certificates) == ("superlink:8000", KEYS.authority)


@pytest.mark.parametrize("service", SERVICES)
def test_every_file_of_a_command_is_mounted_and_no_other_key_is(service):
    named = {word for word in SERVICES[service]["command"] if word.startswith("/keys/")}
    mounted = {inside: host for inside, host in mounts(service).items() if "/keys" in inside}
    assert named == set(mounted)
    for inside, (host, readonly) in mounted.items():
        assert readonly
        assert host == f"./deployment{inside}"


def test_the_authoritys_key_and_other_nodes_keys_stay_outside():
    for service in SERVICES:
        inside = mounts(service).keys()
        assert "/keys" not in inside
        assert "/keys/ca.key" not in inside
        private = {path for path in inside if path in {f"/keys/node{n}" for n in range(NODES)}}
        own = {f"/keys/node{service[-1]}"} if service.startswith("supernode") else set()
        assert private == own


def test_state_and_results_outlive_their_containers():
    assert mounts("superlink")["/state"] == ("state", False)
    assert "state" in COMPOSE["volumes"]
    assert "/outputs" in mounts("serverapp")


def test_the_order_of_starting_is_superlink_keys_nodes():
    for service in ("serverapp", "registrar"):
        assert SERVICES[service]["depends_on"]["superlink"]["condition"] == "service_healthy"
    for node in range(NODES):
        needs = SERVICES[f"supernode-{node}"]["depends_on"]
        assert needs["registrar"]["condition"] == "service_completed_successfully"


def test_the_control_port_is_open_to_this_machine_only():
    assert SERVICES["superlink"]["ports"] == ["127.0.0.1:8000:8000", "9092:9092"]


def test_one_image_serves_all_and_has_the_tested_flower():
    version = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["version"]
    assert {service["image"] for service in SERVICES.values()} == {f"fl-app:{version}"}
    assert yaml.safe_load((REPO / "CITATION.cff").read_text())["version"] == version
    dockerfile = (REPO / "Dockerfile").read_text()
    ignored = (REPO / ".dockerignore").read_text().splitlines()
    for name in ("pyproject.toml", "constraints.txt", "README.md", "fl_app", "conf"):
        assert f"!{name}" in ignored
        assert name in dockerfile
        assert (REPO / name).exists()
