"""Finds the output folder of the run that is under way on a connection of the user."""

import os
import socket
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fl_app.engines import flower
from fl_app.engines.deployment import RUNS
from fl_app.engines.flower import Connection
from fl_app.records import run_state

_STARTED_BY_FLOWER = (":local:", ":local-in-memory:")
_PORT, _PATIENCE_S = 39091, 2.0
"""Of the SuperLink that Flower's commands start on this machine if it does not run."""
OUTPUTS = ("outputs", "multirun")
"""Where commands write output folders, in the folder in which they are typed."""


def configuration() -> Path:
    """Return the file with the connections of this user."""
    home = os.environ.get("FLWR_HOME")
    return (Path(home) if home else Path.home() / ".flwr") / "config.toml"


def connections() -> dict[str, dict[str, Any]]:
    """Return the connections of this user by name; raises ValueError for a damaged file."""
    try:
        known = tomllib.loads(configuration().read_text(encoding="utf-8")).get("superlink", {})
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{configuration()} must be a TOML file, got: {error}") from error
    return {name: entry for name, entry in known.items() if isinstance(entry, dict)}


def folder_of(name: str) -> Path:
    """Return the output folder of the run on a connection; raises ValueError if it is not known."""
    on_it = set[int]() if _sleeps(name) else set(flower.under_way(Connection(name)))
    if not on_it:
        raise ValueError(
            f"a run must be under way on the connection {name}, got none; start one, or type "
            f"fl-app watch <output folder> for a run that has ended"
        )
    roots = [configuration().parent.parent / RUNS, *map(Path, OUTPUTS)]
    found = [folder for folder in run_state.unfinished(roots) if _run_in(folder) in on_it]
    if len(found) != 1:
        raise ValueError(_which(name, sorted(on_it), found, roots))
    return found[0]


def _sleeps(name: str) -> bool:
    """Whether Flower would start a SuperLink of its own just to be asked, and leave it."""
    if connections()[name].get("address") not in _STARTED_BY_FLOWER:
        return False
    port = int(os.environ.get("FLWR_LOCAL_SUPERLINK_HTTP_API_PORT", _PORT))
    try:
        with socket.create_connection(("127.0.0.1", port), _PATIENCE_S):
            return False
    except OSError:
        return True


def _run_in(folder: Path) -> int | None:
    state = run_state.read(folder)
    return None if state is None else state.run_id


def _which(name: str, on_it: list[int], found: Sequence[Path], roots: Sequence[Path]) -> str:
    if found:
        return (
            f"one run must be under way on {name}, got {len(found)}; type fl-app watch with one of "
            f"{', '.join(map(str, found))}"
        )
    return (
        f"one of {', '.join(map(str, roots))} must have the output folder of run "
        f"{' or '.join(map(str, on_it))} of {name}, got none; type fl-app watch <output folder> on "
        f"the machine that has it, or flwr log {on_it[-1]} {name}"
    )
