"""What a folder tells of the federation of `scripts/deploy up` that runs in it."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from fl_app.engines import node_ids
from fl_app.engines.compose import NODES_AT_FIRST
from fl_app.engines.federation import Federation
from fl_app.engines.federation_lock import OF_RUN, file_of, holder

LOG = "keeper.log"
HELD = "a federation is already running in {}; stop it with scripts/deploy down"
_OF_RUN = "a run has a federation of its own in {} (process {}); wait for its end, or stop the run"


def first_nodes(folder: Path, count: int | None) -> Sequence[int]:
    """Return the numbers of the nodes that a federation starts: `count` of them, else the last.

    The last are those that are registered, without the removed and with the added ones. Raises
    ValueError if the file with their ids cannot be read.
    """
    known = sorted(node_ids.registered(folder))
    if count is not None:
        return range(count)
    return known if (folder / node_ids.FILE).exists() else range(NODES_AT_FIRST)


def told_of_count(folder: Path, count: int | None) -> list[str]:
    """Return the sentences on how a count of nodes differs from those that are registered."""
    known = set(node_ids.registered(folder))
    if count is None or not known:
        return []
    new, left = sorted(set(range(count)) - known), sorted(n for n in known if n >= count)
    found = [f"nodes {new} are registered, with new keys where they were removed"] if new else []
    if left:
        found.append(f"nodes {left} are not started; they stay registered, and up without --nodes")
        found[-1] += " starts them again"
    return found


def publish(federation: Federation, folder: Path, *, up: bool) -> None:
    """Write the state of a federation over the locked file of its keeper, which is this process."""
    state = {
        "pid": os.getpid(),
        "up": up,
        "nodes": federation.numbers,
        "mark": federation.supervisor.token,
        "refused": federation.refused,
    }
    file_of(folder).write_text(json.dumps(state))


def keeper(folder: Path) -> dict[str, object] | None:
    """Return the state of the keeper of a federation that is up, or None if there is none.

    One of an earlier release says only that it is up.
    """
    state = holder(folder)
    return state if state and state.get("up", True) else None


def used_by_run(folder: Path) -> str | None:
    """Return the sentence on a run whose own federation uses a folder; None if there is none."""
    state = holder(folder)
    return _OF_RUN.format(folder, state["pid"]) if state and state.get(OF_RUN) else None
