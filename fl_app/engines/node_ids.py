"""Flower's ids of the nodes of a federation on this machine, in a file of its folder."""

import json
from collections.abc import Container, Iterable
from pathlib import Path

from fl_app.records.atomic import replacing

_FILE = "nodes.json"


def registered(folder: Path) -> dict[int, str]:
    """Return Flower's id of each registered node of the federation in a folder, by its number."""
    path = folder / _FILE
    found: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    return {int(number): node for number, node in found.items()}


def remember(folder: Path, number: int, node_id: str | None) -> None:
    """Note the id of a node; None: it is no longer registered."""
    known = registered(folder)
    known.pop(number, None)
    if node_id is not None:
        known[number] = node_id
    with replacing(folder / _FILE) as temporary:
        temporary.write_text(json.dumps(known))


def offline(folder: Path, numbers: Iterable[int], up: Container[str]) -> list[int]:
    """Return the nodes, of those with these numbers, whose ids are not among those online."""
    known = registered(folder)
    return [number for number in numbers if known.get(number) not in up]
