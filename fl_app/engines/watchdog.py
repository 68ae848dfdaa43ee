"""Ends every process that carries a mark, also when the one that started them was killed.

Run as a program it waits until its standard input closes, which happens at the end of the
parent whatever ended it, and then sweeps. Standard library only: it starts in milliseconds.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

MARK = "FL_APP_SUPERVISOR"
"""Environment variable that descendants inherit, through new sessions and daemons too."""
GRACE_S = 5.0
_POLL_S = 0.05


def marked(token: str) -> list[int]:
    """Return the ids of this user's live processes started under `token`, oldest first.

    Needs /proc (Linux); elsewhere the list is empty and process groups are what is stopped.
    """
    wanted = f"{MARK}={token}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone, or of another user
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return sorted(pid for pid in found if pid != os.getpid())


def sweep(token: str, *, grace_s: float = GRACE_S) -> None:
    """Ask what carries the mark to end, and after `grace_s` kill what is left."""
    _signal_all(token, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while marked(token):
        if time.monotonic() > deadline:
            _signal_all(token, signal.SIGKILL)
        time.sleep(_POLL_S)


def kill(token: str) -> None:
    """Kill all that carries the mark, and whatever it starts meanwhile."""
    while marked(token):
        _signal_all(token, signal.SIGKILL)
        time.sleep(_POLL_S)


def _signal_all(token: str, number: signal.Signals) -> None:
    for pid in marked(token):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def main() -> None:
    """Wait for the end of the parent, then sweep, and remove its scratch folder."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while sys.stdin.buffer.read(1):
        pass
    token, *scratch = sys.argv[1:]
    sweep(token)
    for folder in scratch:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
