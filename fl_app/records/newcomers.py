"""Which clients a run began with, and where newcomers were placed, as files in its folder."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from fl_app.records.atomic import replacing
from fl_app.records.plain import dumps
from fl_app.records.reading import json_object, readable

FILE, FIRST = "newcomers.json", "first_clients.json"


@dataclass(frozen=True)
class Placed:
    """A client that was placed by the models after a round, as `fl-app assign` tells it.

    `values` are its training losses with the model of each community by name, `margin` how far the
    second is from the least. With a privacy the losses are noisy, and `epsilon` is what the client
    has spent with them.
    """

    round: int
    model: str
    margin: float | None
    values: Mapping[str, float]
    epsilon: float | None = None


def write_newcomers(folder: Path, placed: Mapping[int, Placed]) -> None:
    """Write the last placement of each client."""
    content = {str(client): asdict(each) for client, each in sorted(placed.items())}
    with replacing(folder / FILE) as temporary:
        temporary.write_text(dumps(content, indent=1) + "\n", encoding="utf-8")


def read_newcomers(folder: Path) -> dict[int, Placed]:
    """Return the placements, none without the file; raises ValueError for a damaged one."""
    path = folder / FILE
    if not path.exists():
        return {}
    content = json_object(path)
    with readable(path, "the placements of clients"):
        return {int(client): Placed(**each) for client, each in content.items()}


def write_first(folder: Path, clients: Iterable[int]) -> None:
    """Write which clients were there before the first round."""
    with replacing(folder / FIRST) as temporary:
        temporary.write_text(dumps({"clients": sorted(clients)}) + "\n", encoding="utf-8")


def read_first(folder: Path) -> set[int]:
    """Return the clients before the first round, none without the file.

    Raises ValueError for a damaged file.
    """
    path = folder / FIRST
    if not path.exists():
        return set()
    content = json_object(path)
    with readable(path, "the clients before the first round"):
        return {int(client) for client in content["clients"]}
