"""Starts processes with one log each, waits until they are ready, and stops all of them.

When the context ends, also by Ctrl-C or an error, all processes are stopped: each has its own
session, and everything that it starts inherits a mark. If the parent is killed (`kill -9`), a
watchdog process ends all processes with the mark. Processes remain only if the watchdog is killed
too. Without /proc (not Linux) the mark cannot be read, and only the process groups of the direct
children that still run are stopped.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fl_app.engines import log_files, signals, watchdog

_POLL_S = 0.1
_TAIL_LINES = 15
OF_COMMANDS = uuid.uuid4().hex
"""The mark of processes that this process starts without a Supervisor."""
_tokens = {OF_COMMANDS}
_starting = threading.Lock()
"""Held while a process is started, and for good once this process ends."""


class ProcessError(RuntimeError):
    """A process cannot start, ended or did not become ready; the message has the end of its log."""


@dataclass(frozen=True)
class Process:
    """A started process and the file with its output, which begins at byte `start`."""

    name: str
    popen: "subprocess.Popen[bytes]"
    log: Path
    start: int

    @property
    def output(self) -> str:
        """The output so far."""
        return self.log.read_bytes()[self.start :].decode(errors="replace")

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self.popen.poll() is None

    def ended_children(self) -> set[int]:
        """Return the children that have ended and that it has not noticed; none without /proc."""
        place = Path("/proc") / str(self.popen.pid) / "task" / str(self.popen.pid) / "children"
        with contextlib.suppress(OSError):
            children = place.read_text().split()
            return {int(child) for child in children if _state_of(child) == "Z"}
        return set()

    def must_be_alive(self) -> None:
        """Raise ProcessError with the end of the log if the process has ended."""
        if not self.alive:
            raise ProcessError(
                f"{self.name} must keep running, but ended with code {self.popen.returncode}; "
                f"see the end of {self.log}:\n{tail(self.log)}"
            )


class Supervisor:
    """A context manager that stops its processes, and everything they started, at its end.

    `scratch` is a folder of temporary files that is deleted with them.
    """

    def __init__(self, environment: Mapping[str, str], *, scratch: Path | None = None) -> None:
        self.token = uuid.uuid4().hex
        self.scratch = scratch
        self.environment = {**environment, watchdog.MARK: self.token}
        self._processes: list[Process] = []
        self._watchdog: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        _tokens.add(self.token)
        program = [sys.executable, "-I", "-S", watchdog.__file__, self.token]
        program += [] if self.scratch is None else [str(self.scratch)]
        self._watchdog = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        cwd: Path,
        extra: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a process in its own session; its output is appended to `log`.

        `extra` is added to the common environment.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        log_files.limit(log)
        with log.open("ab") as output:
            start = output.tell()
            popen = spawn(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env={**self.environment, **(extra or {})},
            )
        process = Process(name, popen, log, start)
        self._processes = [each for each in self._processes if each.alive] + [process]
        return process

    def end(self, process: Process, *, grace_s: float = watchdog.GRACE_S) -> None:
        """Stop one process: SIGTERM, and after `grace_s` SIGKILL to its whole group."""
        self._processes = [each for each in self._processes if each is not process]
        if process.popen.returncode is not None:
            self._end_rest(process)
            return
        process.popen.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.popen.wait(grace_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.popen.pid, signal.SIGKILL)  # at once, before another group has its id
        process.popen.wait()

    def _end_rest(self, process: Process) -> None:
        """Kill what is left of the group of a process that was noticed to have ended.

        Its id may be that of another process since, so only processes with the mark are killed.
        """
        group = process.popen.pid
        if any(each.popen.pid == group for each in self._processes):
            return
        for pid in watchdog.marked(self.token):
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(pid) == group:
                    os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """Stop all processes, the last started first, and wait until all have ended."""
        with signals.deferred():
            running = [each for each in reversed(self._processes) if each.alive]
            for process in running:
                process.popen.terminate()
            for process in running:
                self.end(process)
            self._processes.clear()
            watchdog.sweep(self.token)
            if self._watchdog is not None:
                self._watchdog.communicate()  # closes its input: it sweeps once more and ends
                self._watchdog = None
            _tokens.discard(self.token)


def spawn(command: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
    """Start a process in its own session, which no Ctrl-C reaches; `options` are those of Popen."""
    with _starting:
        return subprocess.Popen(command, start_new_session=True, **options)


def kill_all() -> None:
    """Kill all processes that this process has started and not stopped."""
    for token in tuple(_tokens):
        watchdog.kill(token)


def kill_all_for_good() -> None:
    """Kill them, and let no thread of this process start another one before it ends."""
    _starting.acquire()
    kill_all()


def wait_for_line(process: Process, text: str, *, timeout_s: float) -> None:
    """Wait for `text` in the log; raises ProcessError at the process's end or the timeout."""
    deadline = time.monotonic() + timeout_s
    while text not in process.output:
        process.must_be_alive()
        _before(deadline, process, f"write {text!r}", timeout_s)


def wait_for_port(process: Process, port: int, *, timeout_s: float) -> None:
    """Wait until 127.0.0.1:`port` accepts connections; raises ProcessError as above."""
    deadline = time.monotonic() + timeout_s
    while True:
        process.must_be_alive()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        _before(deadline, process, f"listen on port {port}", timeout_s)


def _state_of(pid: str) -> str:
    return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0]


def _before(deadline: float, process: Process, aim: str, timeout_s: float) -> None:
    if time.monotonic() > deadline:
        raise ProcessError(
            f"{process.name} must {aim} within {timeout_s:g} s, but did not; "
            f"see the end of {process.log}:\n{tail(process.log)}"
        )
    time.sleep(_POLL_S)


def tail(log: Path, *, lines: int = _TAIL_LINES) -> str:
    """Return the last lines of a log; empty if there is none."""
    if not log.exists():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
