"""Flower's command line for both engines: submits a run, follows it and returns its outcome.

`flwr run` exits with 0 even if the run fails, so the outcome is read from `flwr ls`.
"""

import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fl_app.engines import flower_commands, signals, watchdog
from fl_app.engines.flower_commands import FlowerError
from fl_app.engines.processes import OF_COMMANDS, Process, ProcessError, Supervisor, spawn, tail

COMPLETED, FAILED, STOPPED = "finished:completed", "finished:failed", "finished:stopped"
UNKNOWN = "finished:unknown"
"""Of a run that the SuperLink does not know, because its database is a new one."""
_TICK_S = 0.2
_POLL_STREAMING_S = 30.0  # a poll starts a process for a second; the end of the log is faster
_POLL_S = 1.0
_COMMAND_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 15.0
_LOOKS_WITHOUT_ANSWER = 15
_LOOKS_WITHOUT_STREAM = 3
_LAST_LINES_S = 10.0
_REASON_LINES = 10
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_INTERNAL = "Internal server error"
_INTERNAL_HINT = "; the log of the SuperLink says why, such as a full disk of its database"
_UNAVAILABLE = "Connection to the SuperLink is unavailable"
_NOT_FOUND = "Run ID not found"
_EXCEPTION = re.compile(r"[\w.]+(Error|Exception|Interrupt|Exit)\b(: |$)")
POLL = "FLWR_SUPEREXEC_TASK_POLL_INTERVAL"
"""Seconds between looks of a SuperExec for work; each look costs processor time on two sides."""
POLL_OF_NODE, POLL_OF_SERVER = "0.2", "1"
"""A node's SuperExec looks for each message, that of the server only for the next run."""
_SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    POLL: POLL_OF_NODE,
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONUNBUFFERED": "1",
    # empty is off: each message's process would compile the app anew, in a tenth of a second
    "PYTHONDONTWRITEBYTECODE": "",
}


class RunStatus(NamedTuple):
    """The status of a run in Flower's words: pending, starting, running or finished:*; and why."""

    state: str
    why: str

    @property
    def finished(self) -> bool:
        """Whether the run has ended, in whatever way."""
        return self.state.startswith("finished")


@dataclass(frozen=True)
class RunResult:
    """The outcome of a run: `status` as Flower states it, such as finished:completed.

    `detail` is for the user, `why` what the SuperLink says of the end.
    """

    status: str
    detail: str
    run_id: int | None = None
    why: str = ""

    @property
    def ok(self) -> bool:
        """Whether the run completed."""
        return self.status == COMPLETED


@dataclass(frozen=True)
class Connection:
    """A SuperLink by its name in the config.toml of a Flower home folder.

    `home` None means the user's home: $FLWR_HOME, or Flower's default.
    """

    name: str
    home: Path | None = None

    def environment(self) -> dict[str, str]:
        """Return this process's environment with Flower's settings for this connection.

        They disable telemetry, update checks and installations.
        """
        folders = [
            str(flower_commands.commands()),
            str(Path(sys.executable).parent),
            os.environ.get("PATH", ""),
        ]
        found = {**os.environ, **_SETTINGS, "PATH": os.pathsep.join(folders)}
        return found if self.home is None else {**found, "FLWR_HOME": str(self.home)}

    def write(self, *, address: str, root_certificates: Path | None) -> None:
        """Make this the default connection of its home; no certificate means plain HTTP."""
        assert self.home is not None
        self.home.mkdir(parents=True, exist_ok=True)
        trust = (
            "insecure = true"
            if root_certificates is None
            else f"root-certificates = {json.dumps(str(root_certificates.resolve()))}"
        )
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "{self.name}"\n\n'
            f'[superlink.{self.name}]\naddress = "{address}"\n{trust}\n'
        )


def command(
    connection: Connection, *arguments: str, timeout_s: float = _COMMAND_TIMEOUT_S
) -> dict[str, object]:
    """Run `flwr ARGUMENTS --format json` and return its output; raises FlowerError."""
    process = spawn(
        [flower_commands.executable("flwr"), *arguments, "--format", "json"],
        env={**connection.environment(), watchdog.MARK: OF_COMMANDS},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            said, complained = process.communicate(timeout=timeout_s)
        except BaseException as error:
            process.kill()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            late = f"flwr {arguments[0]} did not answer within {timeout_s:g} s"
            raise FlowerError(late) from error
    answer = _last_object(said)
    if answer is None or not answer.get("success", False):
        reason = (answer or {}).get("error-message") or complained or said
        raise FlowerError(_told(connection, arguments[0], str(reason).strip()))
    return answer


def _told(connection: Connection, action: str, reason: str) -> str:
    """Return why a command of Flower failed, with what to do if its SuperLink is at fault."""
    if _UNAVAILABLE in reason:
        return (
            f"the SuperLink of the connection {connection.name} must be running, and does not "
            "answer; start it (one of scripts/deploy by scripts/deploy up) and try again: "
            f"{reason}"
        )
    hint = _INTERNAL_HINT if _INTERNAL.lower() in reason.lower() else ""
    return f"flwr {action}: {reason}{hint}"


def _last_object(text: str) -> dict[str, object] | None:
    """Return the JSON object that a command printed; other lines can precede it."""
    for start in (at for at, sign in enumerate(text) if sign == "{"):
        try:
            found, _ = json.JSONDecoder().raw_decode(text[start:])
        except json.JSONDecodeError:
            continue
        return found if isinstance(found, dict) else None
    return None


def submit(
    connection: Connection,
    app: Path,
    *,
    overrides: str,
    composed: str = "",
    federation: Mapping[str, object],
) -> int:
    """Send the app to a SuperLink and return the id of the run; raises FlowerError.

    `composed` saves the processes of the run the composing of the overrides.
    """
    with tempfile.TemporaryDirectory(prefix="fl-app-") as folder:
        settings = Path(folder) / "run.toml"  # the command line would lose quotes
        given_as = {"overrides": overrides, "composed": composed}
        settings.write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in given_as.items()))
        given = " ".join(f"{key}={json.dumps(value)}" for key, value in federation.items())
        options = ["--federation-config", given] if given else []
        answer = command(
            connection, "run", str(app), connection.name, "--run-config", str(settings), *options
        )
    return int(str(answer["run-id"]))


def status(connection: Connection, run_id: int) -> RunStatus:
    """Return the status of a run; raises FlowerError if the SuperLink does not answer."""
    try:
        answer = command(connection, "ls", connection.name, "--run-id", str(run_id))
    except FlowerError as error:
        if _NOT_FOUND not in str(error):
            raise
        return RunStatus(UNKNOWN, f"the SuperLink does not know run {run_id}")
    runs = answer["runs"]
    assert isinstance(runs, list)
    return RunStatus(str(runs[0]["status"]), str(runs[0].get("status-details", "")))


def under_way(connection: Connection) -> list[int]:
    """Return the ids of the runs that have not ended; raises FlowerError without an answer."""
    runs = command(connection, "ls", connection.name)["runs"]
    assert isinstance(runs, list)
    return [int(r["run-id"]) for r in runs if not RunStatus(str(r["status"]), "").finished]


def stop(connection: Connection, run_id: int) -> None:
    """Stop a run; raises FlowerError if it has already ended."""
    command(connection, "stop", str(run_id), connection.name, timeout_s=_STOP_TIMEOUT_S)


def follow(
    connection: Connection,
    run_id: int,
    *,
    log: Path,
    on_tick: Callable[[], None],
    supervisor: Supervisor,
) -> RunResult:
    """Copy the run's log to `log` until the run ends, and return its outcome.

    `on_tick` is called several times a second. If it raises an exception, the run is stopped.
    Raises ProcessError if the SuperLink does not answer for long; the run is not stopped.
    Signals raise no exception here, so `on_tick` raises KeyboardInterrupt after a Ctrl-C.
    """
    words = [flower_commands.executable("flwr"), "log", str(run_id), connection.name, "--stream"]

    def stream() -> Process:
        log.write_bytes(b"")  # Flower sends the log from its beginning
        return supervisor.start("flwr log", words, log=log, cwd=log.parent)

    with signals.deferred():
        try:
            state, why = _until_finished(lambda: status(connection, run_id), stream, on_tick)
        except ProcessError:  # the run may go on while its SuperLink does not answer
            raise
        except BaseException:
            _stop_quietly(connection, run_id)
            raise
    if state == COMPLETED:
        return RunResult(state, "", run_id)
    return RunResult(state, reason_in(log) or why, run_id, why)


def _until_finished(
    look: Callable[[], RunStatus], stream: Callable[[], Process], on_tick: Callable[[], None]
) -> RunStatus:
    """Poll the status rarely while the log streams, and often after the stream has ended.

    If the stream ends before the run (the SuperLink was restarted), a new stream is started.
    """
    found, unanswered, looks = RunStatus("", ""), 0, 0
    streaming, looked = stream(), time.monotonic()
    while not found.finished:
        on_tick()
        time.sleep(_TICK_S)
        if time.monotonic() - looked < (_POLL_STREAMING_S if streaming.alive else _POLL_S):
            continue
        try:
            found, unanswered = look(), 0
        except FlowerError as error:
            unanswered += 1
            if unanswered == _LOOKS_WITHOUT_ANSWER:
                raise ProcessError(f"the SuperLink must answer, got: {error}") from error
        looks, looked = 0 if streaming.alive else looks + 1, time.monotonic()
        if looks >= _LOOKS_WITHOUT_STREAM and not unanswered and not found.finished:
            streaming, looks = stream(), 0
    on_tick()
    with contextlib.suppress(subprocess.TimeoutExpired):
        streaming.popen.wait(_LAST_LINES_S)
    return found


def _stop_quietly(connection: Connection, run_id: int) -> None:
    try:
        stop(connection, run_id)
    except FlowerError:
        return  # the run or the SuperLink has already ended


def reason_in(log: Path) -> str:
    """Return the reason why a run failed: the message of the last exception in its log.

    Without one it is the last error, and "" if the log has none.
    """
    lines = [_COLOUR.sub("", line).rstrip() for line in tail(log, lines=400).splitlines()]
    filled = [line for line in lines if line]
    raised = [at for at, line in enumerate(filled) if _EXCEPTION.match(line)]
    if raised:
        words = itertools.takewhile(lambda line: "ERROR" not in line, filled[raised[-1] :])
        return "\n".join(itertools.islice(words, _REASON_LINES))
    return next((line for line in reversed(filled) if line.startswith("ERROR")), "")
