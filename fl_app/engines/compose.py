"""Writes what docker-compose.yml needs: keys, the services of its nodes, and its settings."""

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from fl_app.engines import commands, credentials, flower
from fl_app.engines.credentials import Credentials

NODES = "nodes.yml"
NODES_AT_FIRST = 3
"""Nodes of a federation that was told no other number."""
ENVIRONMENT = ".env"
_MARK = "# Written by scripts/deploy keys, which replaces it\n"
_INSIDE = Credentials(Path("/keys"))
_KEYS = "${FL_APP_KEYS:-./deployment/keys}"
_OUTPUTS, _STATE, _PORT = "/outputs", "/state", 9094
_GPUS = {"reservations": {"devices": [{"capabilities": ["gpu"], "driver": "nvidia", "count": 1}]}}
_WARM = "fl_app.engines.warm_node"
_HEALTH = ("python", "-Im", "fl_app.engines.health")
_SERVICE, _GPU = re.compile(r"^  supernode-(\d+):", re.MULTILINE), "driver: nvidia"
"""What a node, and its GPU, look like in the file that `write` wrote."""


class ForeignFileError(ValueError):
    """A file that would be replaced is somebody else's."""


def prepare(
    repo: Path,
    folder: Path,
    *,
    nodes: int | None,
    hosts: Sequence[str],
    gpus: bool | None,
    warm: bool | None,
) -> str:
    """Create keys, files and a connection `compose`; return what to type next.

    `nodes`, `gpus` and `warm` None mean what an earlier call wrote. Raises ForeignFileError, and
    CredentialsError if a key is needed that is kept elsewhere.
    """
    former = (folder / NODES).read_text() if (folder / NODES).exists() else ""
    if nodes is None:
        there = [int(number) for number in _SERVICE.findall(former)]
        there = there or credentials.node_numbers(folder / "keys")
        nodes = max(there, default=NODES_AT_FIRST - 1) + 1
    names, addresses = credentials.split_hosts(hosts)
    made = credentials.ensure(
        folder / "keys",
        nodes=nodes,
        names=["localhost", "superlink", *names],
        addresses=["127.0.0.1", *addresses],
    )
    written = write(
        repo,
        folder,
        nodes=nodes,
        gpus=_GPU in former if gpus is None else gpus,
        warm=(not former or _WARM in former) if warm is None else warm,
    )
    connection = flower.Connection("compose", folder / "compose")
    connection.write(address="127.0.0.1:8000", root_certificates=made.authority)
    beyond = [number for number in credentials.node_numbers(made.folder) if number >= nodes]
    left = f"; those of {beyond} are still there, and no service uses them" if beyond else ""
    return (
        f"keys of {nodes} nodes are in {made.folder}{left}\n"
        f"the SuperLink's certificate {_described(made.certificate)}\n"
        f"{' and '.join(map(str, written))} are written\n"
        "start with: mkdir -p outputs data && docker compose up --build --detach\n"
        f"submit with: FLWR_HOME={shlex.quote(str(connection.home))} flwr run . compose --stream "
        "--run-config \"overrides='records.folder=/outputs/first'\""
    )


def _described(certificate: Path) -> str:
    ends = f"ends on {credentials.valid_until(certificate):%Y-%m-%d}"
    known = ", ".join(credentials.known_as(certificate))
    return f"{ends} and is for {known}; a new one needs: docker compose restart superlink"


def write(repo: Path, folder: Path, *, nodes: int, gpus: bool, warm: bool) -> list[Path]:
    """Write the services of `nodes` nodes into `folder` and the settings into `repo`.

    With `gpus`, each node reserves a GPU; with `warm`, it has a warm process. Raises
    ForeignFileError for settings that a user wrote.
    """
    services, settings = folder / NODES, repo / ENVIRONMENT
    if settings.exists() and not settings.read_text().startswith(_MARK):
        raise ForeignFileError(
            f"{settings} must be absent or written by this command, got another file; rename it, "
            f"and add its lines again"
        )
    services.write_text(
        _MARK + yaml.safe_dump(node_services(nodes, gpus=gpus, warm=warm), sort_keys=False)
    )
    inside = folder.is_relative_to(repo)  # then a checkout can be moved
    place = f"./{folder.relative_to(repo)}" if inside else str(folder)
    given = {
        "COMPOSE_FILE": os.pathsep.join(["docker-compose.yml", f"{place}/{NODES}"]),
        "COMPOSE_PATH_SEPARATOR": os.pathsep,
        "FL_APP_USER": f"{os.getuid()}:{os.getgid()}",
        "FL_APP_KEYS": f"{place}/keys",
    }
    settings.write_text(_MARK + "".join(f"{k}={shlex.quote(v)}\n" for k, v in given.items()))
    return [services, settings]


def node_services(nodes: int, *, gpus: bool, warm: bool) -> dict[str, Any]:
    """Return the services of a compose file, the registrar and the nodes, with their volumes."""
    found = {"registrar": _registrar(nodes)}
    found |= {f"supernode-{node}": _supernode(node, nodes, gpus, warm) for node in range(nodes)}
    return {"services": found, "volumes": {f"client-{node}": None for node in range(nodes)}}


def _registrar(nodes: int) -> dict[str, Any]:
    public = [_INSIDE.node_public_key(node) for node in range(nodes)]
    command = ["python", "-m", "fl_app.engines.registrar", "--address", "superlink:8000"]
    command += ["--root-certificates", str(_INSIDE.authority), "--audit", _OUTPUTS]
    command += ["--node-ids", _OUTPUTS]
    found = _part(
        [*command, *map(str, public)],
        files=[_INSIDE.authority, *public],
        after={"superlink": "service_healthy"},
        restart="on-failure",
    )
    outputs = _mount("${FL_APP_OUTPUTS:-./outputs}", _OUTPUTS)
    found["volumes"].append(outputs | {"read_only": False})
    return found | {"healthcheck": {"disable": True}}  # its exit status lets the nodes start


def _supernode(node: int, nodes: int, gpus: bool, warm: bool) -> dict[str, Any]:
    command = commands.supernode(
        _INSIDE,
        node=node,
        nodes=nodes,
        superlink="superlink:9092",
        port=_PORT,
        data_root="/data",
        state_folder=_STATE,
    )
    command = ["python", "-m", _WARM, *command] if warm else command
    found = _part(
        command,
        files=[_INSIDE.authority, _INSIDE.node_key(node)],
        after={"registrar": "service_completed_successfully"},
        restart="unless-stopped",
    )
    found["volumes"] += [_mount("${FL_APP_DATA:-./data}", "/data"), f"client-{node}:{_STATE}"]
    found["healthcheck"] = {
        "test": ["CMD", *_HEALTH, "--process", "flower-supernode", "--port", "9092"],
        "interval": "30s",
        "timeout": "10s",
        "retries": 4,
    }
    return found | ({"deploy": {"resources": _GPUS}} if gpus else {})


def _part(
    command: list[str], *, files: list[Path], after: dict[str, str], restart: str
) -> dict[str, Any]:
    """Return a service; only `files` of the keys are in its container."""
    return {
        "image": "${FL_APP_IMAGE:-fl-app:0.1.0}",
        "user": "${FL_APP_USER:?run scripts/deploy keys first}",
        "restart": restart,
        "init": True,
        "logging": {"driver": "local"},
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "networks": ["federation"],
        "command": command,
        "volumes": [_mount(f"{_KEYS}/{file.name}", str(file)) for file in files],
        "depends_on": {name: {"condition": condition} for name, condition in after.items()},
    }


def _mount(source: str, target: str) -> dict[str, Any]:
    """Return a read-only mount that is an error if its source is missing."""
    return {
        "type": "bind",
        "source": source,
        "target": target,
        "read_only": True,
        "bind": {"create_host_path": False},
    }
