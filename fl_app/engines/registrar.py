"""Registers SuperNode keys with a SuperLink, for docker-compose.yml and for manual use.

python -m fl_app.engines.registrar --address HOST:PORT --root-certificates ca.crt KEY.pub ...
"""

import argparse
import re
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from fl_app.engines.federation import NAME
from fl_app.engines.flower import Connection
from fl_app.engines.flower_commands import FlowerError
from fl_app.engines.node_ids import FILE, registered, remember
from fl_app.engines.nodes import register
from fl_app.records.audit import AuditLog, actor, fingerprint

_POLL_S = 0.5
_NAME = re.compile(r"node(\d{1,9})\.pub", re.ASCII)


def main(arguments: Sequence[str] | None = None) -> None:
    """Register the given public keys; a key that is already registered causes no error."""
    found = parser()
    options = found.parse_args(arguments)
    for file in (options.root_certificates, *options.keys):
        if not file.is_file():
            found.error(f"certificates and keys must be files that are there, got {file}")
    for key in options.keys if options.node_ids is not None else ():
        if _NAME.fullmatch(key.name) is None:
            found.error(f"with --node-ids a key must be named as node4.pub, got {key.name}")
    with tempfile.TemporaryDirectory(prefix="fl-app-") as home:
        connection = Connection(NAME, Path(home))
        connection.write(address=options.address, root_certificates=options.root_certificates)
        _wait_for(options.address, options.wait)
        for key in options.keys:
            try:
                node = register(connection, key)
            except FlowerError as error:
                sys.exit(f"{key.name} could not be registered: {error}")
            print(f"{key.name} is registered", flush=True)
            if options.node_ids is not None:
                _remember(options.node_ids, key, node)
            if node is not None and options.audit is not None:
                told = {"file": key.name, "node": node, "key": fingerprint(key), "by": actor()}
                AuditLog(options.audit).append("registered", **told)


def _wait_for(address: str, seconds: float) -> None:
    """Wait until a SuperLink listens, or so long; then the first key says what is wrong."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host.strip("[]"), port), _POLL_S).close()
        except OSError:
            time.sleep(_POLL_S)
        else:
            return


def _remember(folder: Path, key: Path, node: str | None) -> None:
    """Note which client the node of a key is; one that was registered before is noted already."""
    name = _NAME.fullmatch(key.name)
    assert name is not None
    client = int(name[1])
    if node is not None:
        remember(folder, client, node)
    elif client not in registered(folder):
        print(
            f"the id of the node of {key.name}, which was registered before, is not in "
            f"{folder / FILE}; find it with flwr supernode list and add it"
        )


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(prog="registrar", description=__doc__)
    found.add_argument("--address", required=True, help="SuperLink, as host:port")
    found.add_argument("--root-certificates", type=Path, required=True)
    told = "folder whose audit log notes each new key with the id of its node"
    found.add_argument("--audit", type=Path, metavar="FOLDER", help=told)
    told = f"folder whose {FILE} notes which client the node of each key node<client>.pub is"
    found.add_argument("--node-ids", type=Path, metavar="FOLDER", help=told)
    told = "wait so long at most for a SuperLink that is starting (default: 0)"
    found.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help=told)
    found.add_argument("keys", type=Path, nargs="+", metavar="KEY.pub")
    return found


if __name__ == "__main__":
    main()
