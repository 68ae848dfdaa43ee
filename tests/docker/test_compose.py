"""docker-compose.yml and the nodes written for it say what deployment.py does."""

import argparse
import json
import os
import tomllib
from pathlib import Path

import pytest
import yaml

from fl_app import deploy, resumer
from fl_app.engines import commands, compose, credentials, flower, health, registrar
from fl_app.engines.credentials import Credentials, known_as
from fl_app.records import audit

REPO = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((REPO / "docker-compose.yml").read_text())
NODES = 3
SERVICES = COMPOSE["services"] | compose.node_services(NODES, gpus=False, warm=True)["services"]
PARTS = [name for name, service in SERVICES.items() if "profiles" not in service]
KEYS = Credentials(Path("/keys"))
SOURCE = "${FL_APP_KEYS:-./deployment/keys}/"


def mounts(service):
    """Return {path in the container: (path on the host or volume, is read-only)}."""
    found = {}
    for each in SERVICES[service]["volumes"]:
        if isinstance(each, str):
            host, inside = each.rsplit(":", 1)
            found[inside] = (host, False)
            continue
        assert each["bind"] == {"create_host_path": False}
        found[each["target"]] = (each["source"], each.get("read_only", False))
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
        KEYS, node=node, nodes=NODES, superlink="superlink:9092", port=9094, data_root="/data",
        state_folder="/state",
    )  # fmt: skip
    warm = ["python", "-m", "fl_app.engines.warm_node"]
    assert SERVICES[f"supernode-{node}"]["command"] == [*warm, *expected]
    cold = compose.node_services(NODES, gpus=False, warm=False)["services"]
    assert cold[f"supernode-{node}"]["command"] == expected


def test_lost_runs_are_looked_for_where_the_serverapp_writes():
    words = SERVICES["runs"]["command"]
    assert words[:3] == ["python", "-m", resumer.__name__]
    options = resumer.parser().parse_args(words[3:])
    assert (options.address, options.once) == ("superlink:8000", False)
    assert options.root_certificates == KEYS.authority
    (folder,) = options.folders
    assert mounts("runs")[str(folder)] == mounts("serverapp")[str(folder)]


def test_the_registrar_knows_every_node():
    words = SERVICES["registrar"]["command"]
    assert words[:3] == ["python", "-m", registrar.__name__]
    options = registrar.parser().parse_args(words[3:])
    assert options.keys == [KEYS.node_public_key(node) for node in range(NODES)]
    assert (options.address, options.root_certificates) == ("superlink:8000", KEYS.authority)
    place = str(options.audit)
    assert mounts("registrar")[place] == mounts("serverapp")[place]


def test_the_registrar_notes_each_new_key_with_its_node(tmp_path, monkeypatch):
    keys = credentials.ensure(tmp_path / "keys", nodes=2)
    ids = {"node0.pub": "17", "node1.pub": None}  # node 1 was registered before
    monkeypatch.setattr(registrar, "register", lambda connection, key: ids[key.name])
    words = ["--address", "here:1", "--root-certificates", str(keys.authority)]
    public = [keys.node_public_key(node) for node in range(2)]
    registrar.main([*words, "--audit", str(tmp_path), *map(str, public)])
    assert audit.check(tmp_path / audit.FILE).problems == ()
    (line,) = (tmp_path / audit.FILE).read_text().splitlines()
    told = json.loads(line)
    assert (told["event"], told["file"], told["node"]) == ("registered", "node0.pub", "17")
    assert told["key"] == audit.fingerprint(public[0])


@pytest.mark.parametrize("service", PARTS)
def test_every_file_of_a_command_is_mounted_and_no_other_key_is(service):
    named = {word for word in SERVICES[service]["command"] if word.startswith("/keys/")}
    mounted = {inside: host for inside, host in mounts(service).items() if "/keys" in inside}
    assert named == set(mounted)
    for inside, (host, readonly) in mounted.items():
        assert readonly
        assert host == SOURCE + Path(inside).name


def test_the_authoritys_key_and_other_nodes_keys_stay_outside():
    for service in PARTS:
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
    volumes = compose.node_services(NODES, gpus=False, warm=True)["volumes"]
    for node in range(NODES):  # what stays with a client is seen by no other node
        assert mounts(f"supernode-{node}")["/state"] == (f"client-{node}", False)
    assert volumes == {f"client-{node}": None for node in range(NODES)}


def test_the_order_of_starting_is_superlink_keys_nodes():
    for service in ("serverapp", "registrar"):
        assert SERVICES[service]["depends_on"]["superlink"]["condition"] == "service_healthy"
    for node in range(NODES):
        needs = SERVICES[f"supernode-{node}"]["depends_on"]
        assert needs["registrar"]["condition"] == "service_completed_successfully"


def test_the_control_port_is_open_to_this_machine_only():
    assert SERVICES["superlink"]["ports"] == ["127.0.0.1:8000:8000", "9092:9092"]


def test_monitoring_reaches_the_serverapp_and_not_the_superlink():
    """Whoever reaches the SuperLink can submit runs, which bring code."""
    members = {name: {*service["networks"]} for name, service in SERVICES.items()}
    assert members["prometheus"] == members["grafana"] == {"monitoring"}
    assert {name for name in PARTS if "monitoring" in members[name]} == {"serverapp"}
    assert {*COMPOSE["networks"]} == {"federation", "monitoring"}


@pytest.mark.parametrize("service", PARTS)
def test_a_part_has_a_health_check_no_capability_and_the_users_id(service):
    part = SERVICES[service]
    ends = service == "registrar"
    assert part["healthcheck"] == {"disable": True} if ends else "test" in part["healthcheck"]
    assert part["cap_drop"] == ["ALL"]
    assert part["logging"] == {"driver": "local"}  # the only one that replaces old lines unasked
    assert part["user"] == "${FL_APP_USER:?run scripts/deploy keys first}"


@pytest.mark.parametrize(
    "service", ["serverapp", "runs", *(f"supernode-{n}" for n in range(NODES))]
)
def test_a_health_check_is_of_the_part_itself(service):
    part = SERVICES[service]
    *command, module = part["healthcheck"]["test"][:4]
    assert (command, module) == (["CMD", "python", "-Im"], health.__name__)
    options = health.parser().parse_args(part["healthcheck"]["test"][4:])
    if service == "runs":
        words = part["command"][3:]
        assert options.file == resumer.parser().parse_args(words).looked
        return
    assert options.process in part["command"]
    assert any(word.endswith(f":{options.port}") for word in part["command"])


def test_the_resumer_tells_of_its_last_look(tmp_path, monkeypatch):
    monkeypatch.setattr(flower, "under_way", lambda connection: [])
    (tmp_path / "ca.crt").touch()
    words = ["--address", "here:1", "--root-certificates", str(tmp_path / "ca.crt")]
    looked = ["--once", "--looked", str(tmp_path / "looked"), str(tmp_path)]
    assert resumer.main([*words, *looked]) == 0
    assert health.main(["--file", str(tmp_path / "looked")]) == 0


def test_keys_of_fewer_nodes_tell_of_those_that_are_left(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(deploy, "_REPO", tmp_path)
    assert deploy.keys(tmp_path / "deployment", options(nodes=4)) == 0
    assert deploy.keys(tmp_path / "deployment", options(nodes=2)) == 0
    told = capsys.readouterr().out
    assert "keys; those of [2, 3] are still there, and no service uses them" in told


def test_one_image_serves_all_is_built_once_and_has_the_tested_flower():
    parts = [SERVICES[name] for name in PARTS]
    assert [name for name in PARTS if "build" in SERVICES[name]] == ["superlink"]
    version = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["version"]
    assert {part["image"] for part in parts} == {f"${{FL_APP_IMAGE:-fl-app:{version}}}"}
    assert yaml.safe_load((REPO / "CITATION.cff").read_text())["version"] == version
    dockerfile = (REPO / "Dockerfile").read_text()
    ignored = (REPO / ".dockerignore").read_text().splitlines()
    for name in ("pyproject.toml", "constraints.txt", "README.md", "fl_app", "conf"):
        assert f"!{name}" in ignored
        assert name in dockerfile
        assert (REPO / name).exists()


def test_an_index_of_torch_need_not_have_what_torch_needs():
    lines = (REPO / "Dockerfile").read_text().replace("\\\n", "").splitlines()
    (words,) = [line.split() for line in lines if "--index-url" in line]
    end = words.index("--index-url")
    begin = max(at for at, word in enumerate(words[:end]) if word.endswith("/pip"))
    assert {"--no-deps", "--constraint"} <= set(words[begin:end])


def test_a_node_reserves_a_gpu_if_it_is_told_to():
    node = compose.node_services(1, gpus=True, warm=True)["services"]["supernode-0"]
    (device,) = node["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu"]


def options(**given):
    return argparse.Namespace(**{"nodes": 2, "hosts": [], "gpus": None, "warm": None} | given)


def test_keys_writes_all_that_compose_reads_and_can_be_repeated(tmp_path, monkeypatch):
    monkeypatch.setattr(deploy, "_REPO", tmp_path)
    folder = tmp_path / "deployment"
    assert deploy.keys(folder, options()) == 0
    first = (folder / "keys" / "node0").read_bytes()
    assert deploy.keys(folder, options(nodes=4, hosts=["fl.example", "10.0.0.7"])) == 0
    assert (folder / "keys" / "node0").read_bytes() == first
    assert {"fl.example", "10.0.0.7", "superlink"} <= set(known_as(folder / "keys" / "server.pem"))
    assert "supernode-3" in yaml.safe_load((folder / "nodes.yml").read_text())["services"]
    lines = (tmp_path / ".env").read_text().splitlines()
    assert f"COMPOSE_FILE=docker-compose.yml{os.pathsep}./deployment/nodes.yml" in lines
    assert f"FL_APP_USER={os.getuid()}:{os.getgid()}" in lines


def test_keys_tells_until_when_the_certificate_lasts(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(deploy, "_REPO", tmp_path)
    assert deploy.keys(tmp_path / "deployment", options(hosts=["fl.example"])) == 0
    ends = credentials.valid_until(tmp_path / "deployment" / "keys" / "server.pem")
    told = f"certificate ends on {ends.date()} and is for localhost, superlink, fl.example, "
    assert told in capsys.readouterr().out


def test_a_renewal_keeps_nodes_hosts_and_gpus(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(deploy, "_REPO", tmp_path)
    folder = tmp_path / "deployment"
    assert deploy.keys(folder, options(nodes=4, hosts=["fl.example"], gpus=True)) == 0
    before = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (folder / "keys" / "node3").unlink()
    assert deploy.main(["keys", "--folder", str(folder)]) == 0
    after = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert before.items() - after.items() == {("node3", before["node3"])}
    (folder / "nodes.yml").unlink()
    assert deploy.keys(folder, options(nodes=None)) == 0
    assert "keys of 4 nodes" in capsys.readouterr().out
    services = yaml.safe_load((folder / "nodes.yml").read_text())["services"]
    assert set(services) == {"registrar", *(f"supernode-{node}" for node in range(4))}


def test_nodes_are_warm_until_told_otherwise(tmp_path, monkeypatch):
    monkeypatch.setattr(deploy, "_REPO", tmp_path)
    found = []
    for warm in (None, False, None, True):
        assert deploy.keys(tmp_path / "deployment", options(warm=warm)) == 0
        found.append("warm_node" in (tmp_path / "deployment" / "nodes.yml").read_text())
    assert found == [True, False, False, True]


@pytest.mark.parametrize(
    "page", ["README.md", "docs/deployment.md", "docs/production.md", "docker-compose.yml"]
)
def test_the_folders_are_made_before_all_is_started(page):
    before, *_ = (REPO / page).read_text().split("docker compose up --build")
    start = before.rindex("scripts/deploy keys")
    assert "mkdir -p outputs data" in before[start:]


def test_keys_replaces_no_settings_of_others(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(deploy, "_REPO", tmp_path)
    (tmp_path / ".env").write_text("MINE=1\n")
    assert deploy.keys(tmp_path / "deployment", options()) == 1
    assert "rename it" in capsys.readouterr().out
    assert (tmp_path / ".env").read_text() == "MINE=1\n"
