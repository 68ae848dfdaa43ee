"""The lock on the folder of a federation: one process at a time runs a federation in it.

Two would share a database, a Flower home and an audit log.
"""

import contextlib
import fcntl
import json
import os
import shlex
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from fl_app.engines import private_folder
from fl_app.engines.processes import ProcessError

OF_RUN = "run"
"""Says in the state of a holder that it is a run with a federation of its own."""
_TRIES, _PAUSE_S = 50, 0.02
"""About a second: `holder` has the lock for a moment only."""


def file_of(folder: Path) -> Path:
    """Return the file that the process of a federation locks while it runs."""
    return folder / "federation.pid"


def lock(file: IO[str]) -> bool:
    """Lock the open file of a federation until this process ends; False if another one has it."""
    for _ in range(_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_PAUSE_S)
    return False


def holder(folder: Path) -> dict[str, object] | None:
    """Return the state of the process whose federation uses a folder; None if there is none.

    It is empty in the first and last moments of a federation.
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


def problem(folder: Path) -> str | None:
    """Return why a run cannot have a federation of its own in a folder, None if it can."""
    with contextlib.suppress(OSError):  # a folder that cannot be used is told by who uses it
        state = holder(folder)
        return None if state is None else _told(folder, state)
    return None


@contextlib.contextmanager
def held_by_run(folder: Path, mark: str) -> Iterator[None]:
    """Hold a folder during the block, for a run whose federation has processes with this mark.

    Raises ProcessError if another federation uses the folder.
    """
    private_folder.make(folder)  # the file of the lock would make it look like a federation's
    with file_of(folder).open("a") as file:
        if not lock(file):
            raise ProcessError(_told(folder, holder(folder) or {}))
        state = {"pid": os.getpid(), "up": False, "nodes": [], "mark": mark, OF_RUN: True}
        file_of(folder).write_text(json.dumps(state))
        try:
            yield
        finally:
            file.truncate(0)


def _told(folder: Path, state: Mapping[str, object]) -> str:
    """Return the sentence on a folder that another federation uses."""
    of_run = bool(state.get(OF_RUN))
    who = "a run" if of_run else "scripts/deploy up"
    on_it = f"run on it with scripts/deploy run --folder {shlex.quote(str(folder))}"
    remedy = "wait for its end" if of_run else on_it
    return (
        f"engine.folder must be the folder of one federation at a time, got {folder}, in which "
        f"that of {who} runs (process {state.get('pid', 'unknown')}); {remedy}, or give another "
        "folder"
    )
