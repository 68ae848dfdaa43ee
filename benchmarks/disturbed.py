"""A federation of `scripts/deploy up` whose processes can be killed and stopped, and runs on it."""

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from summaries import summary_of
from table import REPO
from waiting import wait_for

from fl_app.deploy import keeper
from fl_app.engines import watchdog
from fl_app.records import run_state
from fl_app.records.history import read_rounds

ROUNDS = 6
DEADLINE_S = 900.0
PARTS = {
    "SuperLink": "flower-superlink",
    "SuperNode": "flower-supernode",
    "ServerApp": "flwr-serverapp",
    "ClientApp": "warm_process.py",  # clients are forks of this process
    "warm process": "warm_process.py",
    "SuperExec of the server": "flower-superexec --runtime-api-address",
    "SuperExec of a SuperNode": "flower-superexec --insecure",
}
_PLAIN = re.compile(r"(round=|resuming|Communities|[│┃┏┡└]|completed|accuracy|agreement|results)")
_MOST = 300
T = TypeVar("T")


class Disturbed:
    """A context manager: the federation, which is started again where it was killed.

    `also` are environment variables of its processes.
    """

    def __init__(self, top: Path, also: Mapping[str, str] | None = None) -> None:
        self.top, self.folder = top, top / "federation"
        self.environment = {**os.environ, **(also or {})}

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._deploy("down")

    def up(self) -> None:
        """Start the federation; return when its nodes are online."""
        self._deploy("up")

    def _deploy(self, action: str) -> None:
        words = [sys.executable, "-m", "fl_app.deploy", action, "--folder", str(self.folder)]
        subprocess.run(words, cwd=REPO, env=self.environment, check=True)

    @property
    def _state(self) -> dict[str, Any]:
        state = keeper(self.folder)
        assert state is not None, "the federation must be running"
        return state

    def marked(self) -> dict[int, str]:
        """Return the command lines of all processes of the federation."""
        found = {}
        for pid in watchdog.marked(str(self._state["mark"])):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            found[pid] = line.replace(b"\0", b" ").decode(errors="replace")
        return found

    def pids(self, part: str) -> list[int]:
        """Return the processes of a part; one of the nodes' and one of the ClientApps."""
        lines = {pid: line for pid, line in self.marked().items() if PARTS[part] in line}
        if part == "SuperNode":
            return [pid for pid, line in lines.items() if "partition-id=1 " in line]
        if part == "ClientApp":
            return [pid for pid in lines if _parent(pid) in lines][:1]
        if part == "warm process":
            return [pid for pid in lines if _parent(pid) not in lines]
        if part == "SuperExec of a SuperNode":
            return [pid for pid in lines if _parent(pid) in self.pids("SuperNode")]
        return list(lines)

    def order(self, action: str) -> None:
        """Change the running federation, as by `scripts/deploy rotate-keys`."""
        self._deploy(action)

    def kill_all(self) -> None:
        """Kill the keeper and all processes of the federation."""
        state = self._state
        os.kill(int(state["pid"]), signal.SIGKILL)
        watchdog.kill(str(state["mark"]))

    def keeper_pid(self) -> int:
        """Return the process that keeps the federation."""
        return int(self._state["pid"])

    def kill_keeper(self) -> None:
        """Kill the keeper alone; return when all that it had started has ended, too."""
        state = self._state
        os.kill(int(state["pid"]), signal.SIGKILL)
        while watchdog.marked(str(state["mark"])):
            time.sleep(0.1)

    def start(self, name: str, folder: Path | None = None) -> "Run":
        """Start a run of the demo."""
        return Run(self, folder or self.top / name)


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return -1
    return int(stat.rpartition(")")[2].split()[1])


class Run:
    """A run under way: the command that submitted it, and its folder."""

    def __init__(self, federation: Disturbed, folder: Path) -> None:
        self.federation, self.folder, self.began = federation, folder, time.monotonic()
        words = [sys.executable, "-m", "fl_app.deploy", "run", "--folder", str(federation.folder)]
        words += ["experiment=federation_demo", f"rounds={ROUNDS}", "client.epochs=1"]
        words += ["strategy.cluster_round=2", "records.checkpoint_every=1", "tracking=none"]
        words += [f"records.evaluate_every={ROUNDS}", "records.report=false"]
        words += ["records.figures=false", f"hydra.run.dir={folder}"]
        self.terminal = federation.top / f"{folder.parent.name}-{folder.name}.txt"
        with self.terminal.open("wb") as output:
            self.command = subprocess.Popen(
                words, cwd=REPO, stdout=output, stderr=output, start_new_session=True
            )

    def rounds(self) -> list[dict[str, Any]]:
        """Return the records so far."""
        return read_rounds(self.folder) if (self.folder / "rounds.jsonl").exists() else []

    def until(self, what: str, found: Callable[[], T]) -> T:
        """Wait until `found` holds and return what it found; raises TimeoutError."""
        left = self.began + DEADLINE_S - time.monotonic()
        return wait_for(
            what, found, seconds=left, every=0.05, details=lambda: f"see {self.terminal}"
        )

    def command_pids(self) -> list[int]:
        """Return the processes of the submitting command, without those that it follows with."""
        listed = subprocess.run(
            ["ps", "-o", "pid=", "-g", str(self.command.pid)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return [int(pid) for pid in listed.stdout.split()]

    def kill_command(self) -> None:
        """Kill the submitting command."""
        for pid in self.command_pids():
            os.kill(pid, signal.SIGKILL)
        self.command.wait()

    def over(self) -> bool:
        """Whether the run has ended, and the command that submitted it."""
        state = run_state.read(self.folder)
        ended = state is not None and not state.unfinished
        return ended and self.command.poll() is not None

    def outcome(self) -> dict[str, Any]:
        """Wait for the end of the run; return the line of the table."""
        self.until("the end of the run", self.over)
        summary = summary_of(self.folder)
        models = self.folder / "models.safetensors"
        state = run_state.read(self.folder)
        assert state is not None
        return {
            "status": summary["status"],
            "models": hashlib.sha256(models.read_bytes()).hexdigest() if models.exists() else None,
            "accuracy": summary["accuracy"]["mean"],
            "restarts": state.restarts,
            "seconds": time.monotonic() - self.began,
            "told": self._told(),
        }

    def _told(self) -> str:
        """Return what the terminal said beside the rounds, and the failures in the records."""
        lines = [line.strip() for line in self.terminal.read_text().splitlines()]
        said = [line for line in lines if line and not _PLAIN.match(line)]
        failed = {
            f"client {client} failed in round {record['round']}: {why}"
            for record in self.rounds()
            for client, why in record["failed"].items()
        }
        lost = [r["round"] for r in self.rounds() if r["lost"]]
        said += sorted(failed) + ([f"lost in rounds {lost}"] if lost else [])
        return short("; ".join(dict.fromkeys(said)), self.federation.top)


def short(text: str, top: Path) -> str:
    """Return a text for a cell of the table, without the names of folders of this machine."""
    plain = text.replace(str(top), "").replace("|", "/").replace("\n", " ")
    return plain if len(plain) <= _MOST else plain[:_MOST] + " ..."
