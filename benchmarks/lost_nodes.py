"""Loses SuperNodes of a real federation in every phase; writes docs/results/lost_nodes.md.

    .venv/bin/python benchmarks/lost_nodes.py

Needs root on Linux: each node runs in a network namespace of its own, so that its cable can be
pulled. All traffic stays between addresses of this machine; nothing is left running.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from table import header, machine, row

from fl_app.engines import credentials, deployment
from fl_app.engines.deployment import Federation
from fl_app.engines.processes import Process

REPO = Path(__file__).resolve().parent.parent
TABLE = REPO / "docs" / "results" / "lost_nodes.md"
NODES, ROUNDS = 5, 14
BRIDGE, NETWORK = "fl-lost", "10.231.77"
DEADLINE_S = 600.0
OVERRIDES = [
    "experiment=federation_demo", "strategy.cluster_round=2", f"rounds={ROUNDS}",
    f"population.clients={NODES}", "population.train_samples=100", "population.test_samples=50",
    "records.evaluate_every=2", "records.figures=false", "records.report=false",
]  # fmt: skip
WAYS = ("stopped (SIGSTOP)", "killed (kill -9)", "cable pulled")
LOST = {"introduction": 4, "fit": 3, "evaluation": 2, "between rounds": 1}
"""Phase, and the client that is lost in it; client 0 stays."""


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
        for node in range(nodes):
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

    def node(self, number: int) -> deployment.Member:
        """Return a SuperNode."""
        return next(each for each in self.members if each.name == f"supernode-{number}")

    def lose(self, number: int, way: str) -> None:
        """Stop, kill or cut off a SuperNode with all that it started."""
        if way == WAYS[2]:
            ip(f"link set {BRIDGE}-{number} down")
        else:
            sign = signal.SIGSTOP if way == WAYS[0] else signal.SIGKILL
            os.killpg(self.node(number).process.popen.pid, sign)

    def bring_back(self, number: int, way: str) -> None:
        """Undo what `lose` did; a killed node is started again with its key."""
        member = self.node(number)
        if way == WAYS[2]:
            ip(f"link set {BRIDGE}-{number} up")
        elif way == WAYS[0]:
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
        path = self.folder / "rounds.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def until(self, what: str, found: Callable[[], Any]) -> float:
        """Return the seconds until `found` holds; raises TimeoutError that says `what` was."""
        start = time.monotonic()
        while not found():
            if self.process.poll() is not None or time.monotonic() - start > DEADLINE_S:
                raise TimeoutError(f"waited for {what}; the log is {self.folder / 'flower.log'}")
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
def running(folder: Path, federation: Wired, *overrides: str) -> Iterator[Run]:
    """Start a run on the federation; it has ended when the context is left."""
    words = [sys.executable, "-m", "fl_app.main", *OVERRIDES, "engine=deployment"]
    words += [f"engine.connection={deployment.NAME}", f"engine.folder='{federation.folder}'"]
    words += [f"hydra.run.dir={folder}", *overrides]
    with subprocess.Popen(words, cwd=REPO, stdout=subprocess.DEVNULL) as process:
        try:
            yield Run(process, folder, federation)
            process.wait(DEADLINE_S)
        finally:
            process.terminate()


def named(run: Run, client: int) -> str:
    """Return how the records name a lost client."""
    failed = [r["round"] for r in run.rounds() if str(client) in r["failed"]]
    lost = [r["round"] for r in run.rounds() if client in r["lost"]]
    parts = [f"`failed` in round {', '.join(map(str, failed))}"] if failed else []
    parts += [f"`lost` in rounds {lost[0]} to {lost[-1]}"] if lost else []
    return "; ".join(parts) or "NOT NAMED"


def every_phase(run: Run, way: str) -> list[str]:
    """Lose a client in each phase, bring the first one back; return the rows of the table."""
    federation, took = run.federation, {}
    for phase, client in LOST.items():
        if phase == "between rounds":
            over = len(run.rounds())
            run.until("the end of a round", lambda over=over: len(run.rounds()) > over)
        else:
            kind = {"introduction": "get_properties", "fit": "train", "evaluation": "evaluate"}
            run.sees(client, kind[phase])
        federation.lose(client, way)
        took[phase] = run.goes_on(phase)
        print(f"{way}, {phase}: the run goes on after {took[phase]:.0f} s", flush=True)
    first = LOST["introduction"]
    federation.bring_back(first, way)
    back = run.until(f"client {first} to train", lambda: trained_last(run, first))
    print(f"{way}: client {first} trains again after {back:.0f} s", flush=True)
    run.process.wait(DEADLINE_S)
    status = json.loads((run.folder / "summary.json").read_text())["status"]
    rows = [
        row(phase, way, status, f"{took[phase]:.0f}", f"client {client}: {named(run, client)}")
        for phase, client in LOST.items()
    ]
    came = f"client {first} takes part again {back:.0f} s after it came back"
    return [*rows, row("comes back", way, status, "", came)]


def trained_last(run: Run, client: int) -> bool:
    """Return whether a client took part in the round that was recorded last."""
    record = run.rounds()[-1]
    return client in record["sampled"] and str(client) not in record["failed"]


def hung(run: Run) -> list[str]:
    """Stop the ClientApp of one client in its training, while its SuperNode goes on."""
    before = run.federation.received(1, "train")
    run.until("training at client 1", lambda: run.federation.received(1, "train") > before)
    pid = run.federation.node(1).process.popen.pid
    apps = []

    def started() -> bool:
        apps[:] = [p for p in _session(pid) if b"flwr-clientapp" in _words(p)]
        return bool(apps)

    run.until("the ClientApp of client 1", started)
    for app in apps:
        os.kill(app, signal.SIGSTOP)
    took = run.goes_on()
    for app in apps:
        os.kill(app, signal.SIGCONT)
    over = len(run.rounds())
    run.until(
        "client 1 to train again", lambda: len(run.rounds()) > over + 1 and trained_last(run, 1)
    )
    run.process.wait(DEADLINE_S)
    status = json.loads((run.folder / "summary.json").read_text())["status"]
    how = "ClientApp stopped, `engine.round_timeout_s=60`"
    return [row("fit", how, status, f"{took:.0f}", f"client 1: {named(run, 1)}; takes part again")]


def everyone(run: Run) -> list[str]:
    """Stop all nodes in a fit, and let them go on once they are given up."""
    federation, count = run.federation, run.federation.nodes
    run.sees(0, "train")
    for node in range(count):
        federation.lose(node, WAYS[0])
    log = run.folder / "flower.log"
    again = run.until("the round to be given up", lambda: "is played again" in log.read_text())
    for node in range(count):
        federation.bring_back(node, WAYS[0])
    took = again + run.goes_on()
    run.process.wait(DEADLINE_S)
    summary = json.loads((run.folder / "summary.json").read_text())
    what = "all clients: the round was played again once they had come back"
    return [row("fit", f"all nodes {WAYS[0]}", summary["status"], f"{took:.0f}", what)]


def _session(leader: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=", "-g", str(leader)], capture_output=True, text=True, check=False
    )
    return [int(pid) for pid in listed.stdout.split()]


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def scenario(top: Path, name: str, play: Callable[[Run], list[str]], *overrides: str) -> list[str]:
    """Play one scenario on a federation of its own."""
    folder = top / name
    keys = folder / "federation" / "keys"
    credentials.ensure(keys, nodes=NODES, addresses=("127.0.0.1", f"{NETWORK}.1"))
    with (
        cables(NODES),
        Wired(folder / "federation", nodes=NODES) as federation,
        running(folder / "run", federation, *overrides) as run,
    ):
        return play(run)


def main(arguments: Sequence[str] | None = None) -> None:
    """Play the scenarios one after another and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="play the scenario of this name and write nothing")
    only = parser.parse_args(arguments).only
    scenarios: dict[str, tuple[Callable[[Run], list[str]], list[str]]] = {
        way.split()[0]: (lambda run, way=way: every_phase(run, way), []) for way in WAYS
    }
    scenarios["hung"] = hung, ["engine.round_timeout_s=60", "rounds=8"]
    scenarios["everyone"] = everyone, ["rounds=3"]
    rows: list[str] = []
    with tempfile.TemporaryDirectory(prefix="fl-lost-") as top:
        for name, (play, overrides) in scenarios.items():
            if only in (None, name):
                rows += scenario(Path(top), name, play, *overrides)
                print("\n".join(rows), flush=True)
    if only is None:
        write(rows)


def write(rows: Sequence[str]) -> None:
    """Write the page."""
    lines = [
        "# Lost nodes", "",
        f"Written by `benchmarks/lost_nodes.py`, on {machine()}: {NODES} SuperNodes with TLS and",
        "node authentication, each in a network namespace of its own. In one run per way a node is",
        "lost for good in each phase, with all processes that it started; then the first one is",
        "brought back. Seconds are from the loss until client 0, which stays, gets the message of",
        "the next phase, its own training included. Named as: the fields of `rounds.jsonl`.", "",
        *header("phase", "how it was lost", "the run", "seconds until it went on", "named as"),
        *rows,
    ]  # fmt: skip
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
