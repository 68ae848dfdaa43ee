"""Flower's ids of the nodes of a federation by client id, in a file.

The SuperLink gives each registered key an id. With the file, a key can be that client alone.
"""

import json
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from fl_app.ingress.rejection import RejectionError
from fl_app.records.atomic import replacing

FILE = "nodes.json"


def read(path: Path) -> dict[int, str]:
    """Return Flower's id of each client's node; raises ValueError for a file of another form."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, Mapping):
            raise ValueError(f"it has {type(found).__name__}")
        ids = {int(number): str(int(node)) for number, node in found.items()}
        if len(set(ids.values())) < len(ids):
            raise ValueError("it gives a node to two clients")
    except (OSError, ValueError, TypeError) as error:
        rule = 'JSON with Flower\'s id of each client\'s node, such as {"4": "1234"}'
        raise ValueError(f"the file of node ids must be {rule}, got {path}: {error}") from error
    return ids


def registered(folder: Path) -> dict[int, str]:
    """Return Flower's id of each registered node of the federation in a folder, by its number."""
    path = folder / FILE
    return read(path) if path.exists() else {}


def remember(folder: Path, number: int, node_id: str | None) -> None:
    """Note the id of a node; None: it is no longer registered."""
    known = registered(folder)
    known.pop(number, None)
    if node_id is not None:
        known[number] = node_id
    with replacing(folder / FILE) as temporary:
        temporary.write_text(json.dumps(known))


def offline(folder: Path, numbers: Iterable[int], up: Container[str]) -> list[int]:
    """Return the nodes, of those with these numbers, whose ids are not among those online."""
    known = registered(folder)
    return [number for number in numbers if known.get(number) not in up]


class NodeOwners:
    """The client that each node must be, by a file that may change while a run goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known, self._state = dict[str, int](), tuple[int, ...]()
        self._read()

    def know(self, node: str, *, of: int) -> bool:
        """Whether a node is that of one of so many clients.

        False also while the file cannot be read.
        """
        try:
            return self.client_of(node) < of
        except RejectionError:
            return False

    def client_of(self, node: str) -> int:
        """Return the client of a node; raises RejectionError if it is none's.

        Raises it also while the file cannot be read.
        """
        try:
            self._read()
        except ValueError as error:
            rule = "in engine.node_ids, which must be readable"
            raise RejectionError("the node", rule, f"{node}, and {error}") from error
        if node not in self._known:
            raise RejectionError("the node", f"in engine.node_ids={self.path}", node)
        return self._known[node]

    def _read(self) -> None:
        found = self.path.stat() if self.path.exists() else None
        state = () if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)
        if state != self._state or found is None:
            self._known = {node: client for client, node in read(self.path).items()}
            self._state = state
