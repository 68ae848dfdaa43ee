"""What a folder tells of the federation of `scripts/deploy up` that runs in it."""

import contextlib
import fcntl
import json
import os
import time
from pathlib import Path
from typing import IO

from fl_app.engines.federation import Federation

LOG = "keeper.log"
HELD = "a federation is already running in {}; stop it with scripts/deploy down"
_TRIES, _PAUSE_S = 50, 0.02
"""About a second: `holder` has the lock for a moment only."""


def file_of(folder: Path) -> Path:
    """Return the file that the keeper of a federation locks while it runs."""
    return folder / "federation.pid"


def lock(file: IO[str]) -> bool:
    """Lock the open file of a keeper until this process ends; False if another keeper has it."""
    for _ in range(_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_PAUSE_S)
    return False


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


def holder(folder: Path) -> dict[str, object] | None:
    """Return the state of a keeper that is up, starts or stops; None if there is none.

    It is empty in the first and last moments of a keeper.
    """
    with contextlib.suppress(FileNotFoundError), file_of(folder).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            with contextlib.suppress(json.JSONDecodeError):
                state: dict[str, object] = json.loads(file.read())
                return state
            return {}
    return None
