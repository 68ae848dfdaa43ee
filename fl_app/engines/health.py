"""Says by its exit status whether a part of a federation is at work; for docker-compose.yml.

    python -Im fl_app.engines.health --process flower-superexec --port 8000

A process is at work if it runs, is not stopped or stuck, and its container has a connection to the
port. With `--file` it is at work if that file, which it touches, is not older than `--within`
seconds. It imports only the standard library.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

PROC = Path("/proc")
WATCHED_S = 4.0
"""Longer than the time between two looks for work of a SuperExec or a SuperNode."""
_ESTABLISHED = "01"
_LOOK_S = 0.2


def main(arguments: Sequence[str] | None = None) -> str | int:
    """Return 0 for a part that is at work, else the reason."""
    options = parser().parse_args(arguments)
    if options.file is not None:
        return _late(options.file, options.within) or 0
    return _idle(options.process, options.port) or 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(prog="health", description=__doc__)
    what = found.add_mutually_exclusive_group(required=True)
    what.add_argument("--process", help="name of the program")
    what.add_argument("--file", type=Path, help="touched by the program after each look")
    found.add_argument("--port", type=int, help="of the other side, to which it has a connection")
    found.add_argument("--within", type=float, default=300.0, help="largest age of the file, in s")
    return found


def _late(file: Path, within: float) -> str:
    try:
        age = time.time() - file.stat().st_mtime
    except OSError as error:
        return f"{file} must be touched by the process, got {type(error).__name__}"
    return "" if age <= within else f"{file} must be touched every {within:g} s, got {age:.0f} s"


def _idle(name: str, port: int | None) -> str:
    """Return why a program is not at work; empty if it is."""
    found = [pid for pid in PROC.glob("[0-9]*") if name in _programs(pid)]
    if not found:
        return f"{name} must run, and there is no such process"
    (pid, *_) = found
    if port is not None and not _connected(port):
        return f"{name} must have a connection to port {port}, and has none"
    before, until = _switches(pid), time.monotonic() + WATCHED_S
    while time.monotonic() < until:
        time.sleep(_LOOK_S)
        if _switches(pid) != before:
            return ""
    return f"{name} must do something within {WATCHED_S:g} s, and did not: it is stopped or stuck"


def _programs(pid: Path) -> list[str]:
    """Return the names of the program of a process and of the script that it interprets."""
    with contextlib.suppress(OSError):  # it has ended
        words = (pid / "cmdline").read_bytes().split(b"\0")[:2]
        return [Path(word.decode(errors="replace")).name for word in words]
    return []


def _connected(port: int) -> bool:
    """Whether this container has an established TCP connection to a port.

    Whose it is cannot be seen: Flower's SuperExec hides its files from all other processes.
    """
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):  # without IPv6
            for line in (PROC / "net" / table).read_text().splitlines()[1:]:
                _, _, remote, state, *_ = line.split()
                if state == _ESTABLISHED and int(remote.split(":")[1], 16) == port:
                    return True
    return False


def _switches(pid: Path) -> int:
    """Return how often the main thread of a process has waited; it stands still in a stuck one."""
    with contextlib.suppress(OSError):
        for line in (pid / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                return int(line.split()[1])
    return -1


if __name__ == "__main__":
    sys.exit(main())
