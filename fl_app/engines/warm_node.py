"""Runs a SuperNode with a warm process beside it, in a container or on a machine of one's own.

    python -m fl_app.engines.warm_node flower-supernode --superlink ...

Clients are then forks of the warm process, as in `scripts/deploy up`. The output of the SuperNode
is passed on. This program ends with the SuperNode and its exit status, and with RESTART when the
SuperNode cannot go on, so that its service starts it again; nothing that was started remains. Where
no process can be forked, it becomes the SuperNode. It imports only the standard library.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import IO

from fl_app.engines import warm_clients
from fl_app.engines.nodes import REFUSED
from fl_app.engines.processes import Process, Supervisor, spawn, tail
from fl_app.engines.stale_reply import Lines
from fl_app.engines.warm_clients import WarmClients

RESTART = 75
"""Exit status of a program that will succeed when it is started again (EX_TEMPFAIL)."""
NOT_FOUND = 127
"""Exit status of a shell for a command that is not there."""
_STARTS = "Starting Flower SuperNode"
LOOK_S = 1.0
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
"""Time before a warm process that has ended is started again; it doubles each time."""


class WarmProcess:
    """The warm process, started again when it ends."""

    def __init__(self, supervisor: Supervisor, warm: WarmClients) -> None:
        self._supervisor, self._warm = supervisor, warm
        self._wait_s, self._due = FIRST_WAIT_S, 0.0
        self._process = self._start()

    def check(self) -> None:
        """Start it again if it has ended, after a wait in which Flower starts the clients."""
        if self._process.alive:
            return
        if not self._due:
            told = " ".join(tail(self._process.log, lines=2).split())
            _tell(f"the warm process has ended and is started again in {self._wait_s:g} s: {told}")
            self._due = time.monotonic() + self._wait_s
            self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)
        elif time.monotonic() >= self._due:
            self._process, self._due = self._start(), 0.0

    def _start(self) -> Process:
        folder = self._warm.folder
        log = folder / "log"
        log.unlink(missing_ok=True)
        return self._supervisor.start(warm_clients.NAME, self._warm.command, log=log, cwd=folder)


class Node:
    """A running SuperNode whose output is passed on and read."""

    def __init__(self, command: Sequence[str], supervisor: Supervisor) -> None:
        self.popen = spawn(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=supervisor.environment,
        )
        self._process = Process("supernode", self.popen, Path(os.devnull), 0)
        self._behind, self._lines = False, Lines()
        self.started = False
        """Whether it said that it starts, which it does not if it was asked for its options."""
        self._ended = set[int]()
        assert self.popen.stdout is not None
        self._reader = threading.Thread(
            target=self._pass_on, args=(self.popen.stdout,), daemon=True
        )
        self._reader.start()

    def fault(self) -> str | None:
        """Return why the SuperNode cannot go on; None: it can."""
        if self._behind:
            return "it has a reply that no run awaits"
        if self._lines.left:
            return "it has left the SuperLink after an error"
        before, self._ended = self._ended, self._process.ended_children()
        return "its SuperExec has ended" if before & self._ended else None

    def end(self, supervisor: Supervisor) -> int:
        """Stop it, if it still runs; return its exit status after its last line."""
        supervisor.end(self._process)
        self._reader.join(LOOK_S)  # a client that still runs may hold the pipe
        return self.popen.wait()

    def _pass_on(self, output: IO[bytes]) -> None:
        for line in output:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            text = line.decode(errors="replace")
            self.started |= _STARTS in text
            self._behind |= self._lines.show(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in the arguments; return the exit status."""
    command = [*(sys.argv[1:] if arguments is None else arguments)]
    if not command or command[0].startswith("-"):
        print(f"usage: {__doc__.splitlines()[2].strip()}", file=sys.stderr)
        return 2
    if shutil.which(command[0]) is None:
        _tell(f"the first word must be a command that is there, got {command[0]}; see PATH")
        return NOT_FOUND
    if not warm_clients.available():
        _tell("no process can be forked here, so each client imports its libraries by itself")
        os.execvp(command[0], command)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    with Supervisor(dict(os.environ), scratch=warm_clients.new_folder()) as supervisor:
        return _run(command, supervisor)


def _run(command: Sequence[str], supervisor: Supervisor) -> int:
    assert supervisor.scratch is not None
    warm = WarmClients(supervisor.scratch)
    warm.install()
    environment = supervisor.environment
    environment["PATH"] = os.pathsep.join([str(warm.commands), environment["PATH"]])
    process, node = WarmProcess(supervisor, warm), Node(command, supervisor)
    try:
        while node.popen.poll() is None:
            if (fault := node.fault()) is not None:
                _tell(f"the SuperNode must be started again: {fault}")
                return RESTART
            process.check()
            time.sleep(LOOK_S)
    finally:
        code = node.end(supervisor)
    if code == 0 and node.started:
        _tell(f"the SuperNode has ended: {REFUSED}")
    return code if code >= 0 else 128 - code


def _stop(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one would interrupt the end
    raise SystemExit(128 + number)


def _tell(text: str) -> None:
    print(f"warm_node: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
