"""What a folder tells of the federation of `scripts/deploy up` that runs in it."""

import json
import os
from pathlib import Path

from fl_app.engines.federation import Federation
from fl_app.engines.federation_lock import OF_RUN, file_of, holder

LOG = "keeper.log"
HELD = "a federation is already running in {}; stop it with scripts/deploy down"
_OF_RUN = "a run has a federation of its own in {} (process {}); wait for its end, or stop the run"


def publish(federation: Federation, folder: Path, *, up: bool) -> None:
    """Write the state of a federation over the locked file of its keeper, which is this process."""
    state = {
        "pid": os.getpid(),
        "up": up,
        "nodes": federation.numbers,
        "mark": federation.supervisor.token,
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
