"""A federation whose SuperNodes can be stopped, killed or disconnected, and a run on it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from summaries import summary_of
from table import REPO

from fl_app.engines.federation import Federation
from fl_app.engines.flower_commands import executable
from fl_app.engines.member import Member
from fl_app.engines.processes import Process
from fl_app.records.history import read_rounds

SMALL_APP = REPO / "tests" / "end_to_end" / "small_app"
BRIDGE, NETWORK = "fl-lost", "10.231.77"
DEADLINE_S = 600.0
STOPPED, KILLED, CUT = "stopped (SIGSTOP)", "killed (kill -9)", "cable pulled"


def ip(words: str) -> None:
    """Run one command of iproute2."""
    subprocess.run(["ip", *words.split()], check=True)


@contextmanager
def cables(nodes: int) -> Iterator[None]:
    """Give every node a network namespace, with a cable to a bridge on this machine."""
    ip(f"link add {BRIDGE} type bridge")
    try:
        ip(f"addr add {NETWORK}.1/24 dev {BRIDGE}")
        ip(f"link set {BRIDGE} up")
        for node in range(nodes):
            space, cable = f"{BRIDGE}-{node}", f"{BRIDGE}-{node}"
            ip(f"netns add {space}")
            ip(f"link add {cable} type veth peer name eth0 netns {space}")
            ip(f"link set {cable} master {BRIDGE} up")
            ip(f"-n {space} addr add {NETWORK}.{10 + node}/24 dev eth0")
            ip(f"-n {space} link set eth0 up")
            ip(f"-n {space} link set lo up")
        yield
    finally:
        for node in range(nodes):  # the cable first: a namespace goes when its last process ends
            subprocess.run(["ip", "link", "del", f"{BRIDGE}-{node}"], check=False)
            subprocess.run(["ip", "netns", "del", f"{BRIDGE}-{node}"], check=False)
        ip(f"link del {BRIDGE}")


class Wired(Federation):
    """A federation whose SuperNodes reach the SuperLink over their cables."""

    def _launch(self, name: str, command: list[str], home: Path) -> Process:
        fleet = {"superlink": "--fleet-api-address"}.get(name, "--superlink")
        words = list(command)
        if fleet in words:
            place = words.index(fleet) + 1
            words[place] = words[place].replace("127.0.0.1", f"{NETWORK}.1")
        if name.startswith("supernode"):
            space = f"{BRIDGE}-{name.removeprefix('supernode-')}"
            words = ["ip", "netns", "exec", space, *words]
        return super()._launch(name, words, home)

    def node(self, number: int) -> Member:
        """Return a SuperNode."""
        return next(each for each in self.members if each.name == f"supernode-{number}")

    def lose(self, number: int, way: str) -> None:
        """Stop, kill or cut off a SuperNode with all that it started."""
        if way == CUT:
            ip(f"link set {BRIDGE}-{number} down")
        else:
            sign = signal.SIGSTOP if way == STOPPED else signal.SIGKILL
            os.killpg(self.node(number).process.popen.pid, sign)

    def bring_back(self, number: int, way: str) -> None:
        """Undo what `lose` did; a killed node is started again with its key."""
        member = self.node(number)
        if way == CUT:
            ip(f"link set {BRIDGE}-{number} up")
        elif way == STOPPED:
            os.killpg(member.process.popen.pid, signal.SIGCONT)
        else:
            member.process.popen.wait()
            member.process = self._launch(member.name, member.command, member.home)

    def received(self, number: int, kind: str = "") -> int:
        """Return how many messages a node has received, of one kind or of all."""
        return self.node(number).process.output.count(f"Receiving: {kind}")


@dataclass
class Run:
    """A run under way: its process, its folder and its federation."""

    process: "subprocess.Popen[bytes]"
    folder: Path
    federation: Wired

    def rounds(self) -> list[dict[str, Any]]:
        """Return the records so far."""
        return read_rounds(self.folder) if (self.folder / "rounds.jsonl").exists() else []

    def status(self) -> str:
        """Return how the run ended."""
        return str(summary_of(self.folder)["status"])

    def until(self, what: str, found: Callable[[], Any]) -> float:
        """Return the seconds until `found` holds; raises TimeoutError that says `what` was."""
        start = time.monotonic()
        while not found():
            if self.process.poll() is not None or time.monotonic() - start > DEADLINE_S:
                raise TimeoutError(f"waited for {what}; see {self.folder / 'terminal.txt'}")
            time.sleep(0.1)
        return time.monotonic() - start

    def sees(self, node: int, kind: str) -> None:
        """Wait until a node receives one more message of a kind."""
        before = self.federation.received(node, kind)
        self.until(f"{kind} at node {node}", lambda: self.federation.received(node, kind) > before)

    def goes_on(self, phase: str = "fit") -> float:
        """Return the seconds until client 0, which stays, gets the message after this phase."""
        received, done = self.federation.received, len(self.rounds())
        rounds = 0 if phase == "introduction" else done + 1
        evaluated = received(0, "evaluate")

        def next_message() -> bool:
            evaluating = phase != "evaluation" and received(0, "evaluate") > evaluated
            return evaluating or received(0, "train") > rounds

        return self.until("the next message to client 0", next_message)


@contextmanager
def running(
    folder: Path, federation: Wired, given: Sequence[str] | Mapping[str, Any]
) -> Iterator[Run]:
    """Start a run on the federation; it has ended when the context is left.

    `given` are overrides of fl-app, or the run_config of the small app of the tests.
    """
    folder.mkdir(parents=True)
    connection = federation.connection
    if isinstance(given, Mapping):
        lines = {**given, "folder": str(folder), "clients": federation.nodes}
        settings = folder / "run.toml"
        settings.write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in lines.items()))
        words = [executable("flwr"), "run", str(SMALL_APP), connection.name, "--stream"]
        words += ["--run-config", str(settings)]
    else:
        words = [sys.executable, "-m", "fl_app.main", *given, "engine=deployment"]
        words += [f"engine.connection={connection.name}", f"hydra.run.dir={folder}"]
        words += [f"engine.folder='{federation.folder}'", f"population.clients={federation.nodes}"]
    with (folder / "terminal.txt").open("wb") as output:
        process = subprocess.Popen(
            words, cwd=REPO, env=connection.environment(), stdout=output, stderr=output
        )
    try:
        yield Run(process, folder, federation)
        process.wait(DEADLINE_S)
    finally:
        process.terminate()
        process.wait()
