"""What a SuperLink knows of its nodes: registers their keys, and finds those that are online."""

from collections.abc import Mapping
from pathlib import Path

from fl_app.engines import flower
from fl_app.engines.flower import Connection
from fl_app.engines.flower_commands import FlowerError

REFUSED = (
    "the SuperLink no longer lets it in: its key must be registered, and its clock at most 5 s "
    "ahead of the SuperLink's and 5 min behind"
)
"""Why a SuperNode ends with status 0 although nobody asked it to; Flower names no reason."""


def register(connection: Connection, public_key: Path) -> str | None:
    """Register a public key and return the id of its node, None if it was registered before."""
    try:
        words = ["supernode", "register", str(public_key), connection.name]
        return str(flower.command(connection, *words)["node-id"])
    except FlowerError as error:
        if "already" not in str(error):
            raise
        return None


def online(connection: Connection) -> set[str]:
    """Return Flower's ids of the registered SuperNodes that are connected."""
    return {node for node, status in _listed(connection).items() if status == "online"}


def let_in(connection: Connection) -> set[str]:
    """Return Flower's ids of all SuperNodes that are registered, connected or not."""
    return {node for node, status in _listed(connection).items() if status != "unregistered"}


def _listed(connection: Connection) -> dict[str, str]:
    nodes = flower.command(connection, "supernode", "list", connection.name)["nodes"]
    assert isinstance(nodes, list)
    found = (node for node in nodes if isinstance(node, Mapping))
    return {str(node["node-id"]): str(node["status"]) for node in found}


def unregister(connection: Connection, node_id: str) -> None:
    """Make the SuperLink refuse the key of a node; raises FlowerError."""
    flower.command(connection, "supernode", "unregister", node_id, connection.name)


def nodes_online(connection: Connection) -> int:
    """Return the number of registered SuperNodes that are connected."""
    return len(online(connection))
