"""Nodes that must not get into a federation: what each of them is told."""

import datetime
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import certificates
from disturbed import Disturbed, short

from fl_app.engines import commands, credentials, flower
from fl_app.engines.credentials import Credentials
from fl_app.engines.federation import NAME
from fl_app.engines.flower_commands import executable
from fl_app.engines.nodes import nodes_online
from fl_app.engines.ports import free_ports

LOOK_S = 25.0
"""How long a stranger may try."""
_FAKETIME = "faketime"
_ERROR_LINES = 4
_GRPC_HEAD = re.compile(r"^[IWE]\d{4} [\d:.]+ +\d+ \S+\] ")


def strangers(federation: Disturbed, name: str) -> list[dict[str, Any]]:
    """Let strangers try to get in during one run; return a line for each of them and the run."""
    run = federation.start(name)
    run.until("round 1", lambda: len(run.rounds()) >= 1)
    told = {
        "a node with a key that is not registered": _wrong_key(federation),
        "a node without TLS (plain text)": _plain_text(federation),
        "a node with the certificate of another authority": _other_authority(federation),
        "a node whose clock is 3 days ahead": _clock(federation),
        "a SuperLink whose certificate has expired": _expired(federation),
    }
    ended = run.outcome()
    return [{**ended, "fault": fault, "told": said} for fault, said in told.items()]


def _keys(federation: Disturbed) -> Credentials:
    return Credentials(federation.folder / "keys")


def _fleet(federation: Disturbed) -> str:
    """Return the address for nodes, from the command line of the SuperLink."""
    (line,) = [each for each in federation.marked().values() if "flower-superlink" in each]
    words = line.split()
    return words[words.index("--fleet-api-address") + 1]


def node_command(federation: Disturbed, keys: Credentials, *, node: int = 0) -> list[str]:
    """Return the command of a SuperNode with the first of the keys, as client `node`."""
    (port,) = free_ports(1)
    found = commands.supernode(
        keys, node=0, nodes=9, superlink=_fleet(federation), port=port, data_root=None
    )
    config = commands.node_config(node=node, nodes=9, data_root=None)
    found[found.index("--node-config") + 1] = config
    return [executable(found[0]), *found[1:]]


def _tried(federation: Disturbed, words: Sequence[str]) -> str:
    """Run a SuperNode for a while; return what it said, and whether it is online."""
    connection = flower.Connection(NAME, federation.folder / "home")
    before = nodes_online(connection)
    home = Path(tempfile.mkdtemp(dir=federation.top))
    environment = {**connection.environment(), "FLWR_HOME": str(home)}
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            words, env=environment, cwd=home, stdout=log, stderr=log, start_new_session=True
        )
        ended = time.monotonic() + LOOK_S
        while process.poll() is None and time.monotonic() < ended:
            time.sleep(0.2)
        online = nodes_online(connection) > before
        code = process.poll()
        if code is None:
            os.killpg(process.pid, 9)
            process.wait()
    end = "it tries again and again" if code is None else f"it ends with code {code}"
    state = "it is connected" if online else end
    return short(f"{state}: {_words(home / 'log')}", federation.top)


def _words(log: Path) -> str:
    """Return the first error of a log with what follows it, else its warnings or last lines."""
    plain = (flower._COLOUR.sub("", each) for each in log.read_text().splitlines())
    lines = [_GRPC_HEAD.sub("", each).strip() for each in plain]
    filled = [each for each in lines if each]
    errors = [at for at, each in enumerate(filled) if "ERROR" in each or " error: " in each]
    if errors:
        return " ".join(filled[errors[0] : errors[0] + _ERROR_LINES])
    said = [each for each in filled if each.startswith(("WARNING", "INFO"))]
    return "; ".join(dict.fromkeys((said or filled)[-3:]))


def _wrong_key(federation: Disturbed) -> str:
    with _other_keys(federation) as other:
        good = _keys(federation)
        mixed = node_command(federation, good)
        place = mixed.index("--auth-supernode-private-key") + 1
        mixed[place] = str(other.node_key(0))
        return _tried(federation, mixed)


def _other_authority(federation: Disturbed) -> str:
    with _other_keys(federation) as other:
        words = node_command(federation, _keys(federation))
        words[words.index("--root-certificates") + 1] = str(other.authority)
        return _tried(federation, words)


def _plain_text(federation: Disturbed) -> str:
    words = node_command(federation, _keys(federation))
    place = words.index("--root-certificates")
    words[place : place + 2] = ["--insecure"]
    place = words.index("--auth-supernode-private-key")
    del words[place : place + 2]
    return _tried(federation, words)


def _clock(federation: Disturbed) -> str:
    if shutil.which(_FAKETIME) is None:
        return "not tried: no faketime"
    with registered(federation) as keys:
        return _tried(federation, [_FAKETIME, "-f", "+3d", *node_command(federation, keys)])


@contextmanager
def _other_keys(federation: Disturbed) -> Iterator[Credentials]:
    with tempfile.TemporaryDirectory(dir=federation.top) as folder:
        yield credentials.ensure(Path(folder), nodes=1)


@contextmanager
def registered(federation: Disturbed) -> Iterator[Credentials]:
    """Yield keys of a node that the SuperLink knows, with the authority of the federation."""
    with _other_keys(federation) as other:
        for name in ("authority", "certificate", "key"):
            shutil.copy(getattr(_keys(federation), name), getattr(other, name))
        connection = flower.Connection(NAME, federation.folder / "home")
        words = ["supernode", "register", str(other.node_public_key(0)), connection.name]
        node = str(flower.command(connection, *words)["node-id"])
        try:
            yield other
        finally:
            flower.command(connection, "supernode", "unregister", node, connection.name)


def _expired(federation: Disturbed) -> str:
    """Start a SuperLink of its own with an expired certificate; a node tries to reach it."""
    with _other_keys(federation) as keys, tempfile.TemporaryDirectory() as folder:
        certificates.replace(keys, ends_in=-datetime.timedelta(days=1))
        port, fleet = free_ports(2)
        words = commands.superlink(
            keys, host="127.0.0.1", port=port, fleet_port=fleet, state=f"{folder}/state.db"
        )
        process = subprocess.Popen(
            [executable(words[0]), *words[1:]],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            time.sleep(LOOK_S / 2)
            node = node_command(federation, keys)
            node[node.index("--superlink") + 1] = f"127.0.0.1:{fleet}"
            return _tried(federation, node)
        finally:
            process.terminate()
            process.wait()
