"""Ends every process with a mark, even if the process that started them was killed.

As a program it waits until its standard input closes, which happens whenever the parent ends, and
then ends the marked processes. It imports only the standard library and starts in milliseconds.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

MARK = "FL_APP_SUPERVISOR"
"""Environment variable that descendants inherit, including new sessions and daemons."""
GRACE_S = 5.0
_POLL_S = 0.05
_LOOKS = 4


def marked(token: str) -> list[int]:
    """Return the sorted ids of this user's live processes with the mark `token`.

    Their children count too: a process that gives itself a title, like Ray's agents, has no mark.
    Needs /proc (Linux); on other systems the list is empty, and only process groups are stopped.
    """
    wanted = f"{MARK}={token}".encode()
    found, parents = set[int](), dict[int, int]()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            state, parent, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
            if state != "Z":
                parents[int(entry.name)] = int(parent)
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.add(int(entry.name))
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {os.getpid()})


def sweep(token: str, *, grace_s: float = GRACE_S) -> None:
    """Terminate the marked processes, and after `grace_s` kill those that remain."""
    _signal_all(token, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while marked(token):
        if time.monotonic() > deadline:
            _signal_all(token, signal.SIGKILL)
        time.sleep(_POLL_S)


def kill(token: str) -> None:
    """Kill the marked processes and all processes that they start meanwhile.

    A process that is just replaced by another program shows no mark for a moment, so none must be
    there several times.
    """
    looks = 0
    while looks < _LOOKS:
        looks = 0 if marked(token) else looks + 1
        _signal_all(token, signal.SIGKILL)
        time.sleep(_POLL_S)


def _signal_all(token: str, number: signal.Signals) -> None:
    for pid in marked(token):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def main() -> None:
    """Wait for the end of the parent, end its processes and remove its scratch folder."""
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
