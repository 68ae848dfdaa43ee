"""Runs docker-compose.yml on a real Docker engine, with faults; writes docs/results/compose.md.

    scripts/test-compose        installs what is missing, then runs this

It works on a copy of the checkout in a temporary folder and ends with `docker compose down`.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from table import REPO, header, machine, row

from fl_app.engines import flower
from fl_app.engines.flower import COMPLETED, Connection, FlowerError
from fl_app.engines.nodes import nodes_online
from fl_app.records import run_state
from fl_app.records.summary import read_summary

TABLE = REPO / "docs" / "results" / "compose.md"
NODES = 3
DEADLINE_S = 900.0


class Composed:
    """The federation of the compose file of a copy of the checkout."""

    def __init__(self, checkout: Path) -> None:
        self.checkout = checkout
        self.connection = Connection("compose", checkout / "deployment" / "compose")
        self.environment = {**os.environ, "PYTHONPATH": str(checkout)}

    def compose(self, *words: str, must: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `docker compose` in the checkout."""
        return self._run(["docker", "compose", *words], must=must)

    def keys(self) -> None:
        """Run `scripts/deploy keys`."""
        words = ["-m", "fl_app.deploy", "keys", "--nodes", str(NODES)]
        self._run([sys.executable, *words, "--folder", str(self.checkout / "deployment")])
        for name in ("outputs", "data"):
            (self.checkout / name).mkdir(exist_ok=True)

    def up(self) -> None:
        """Start all, and wait until the nodes are online and all that says so is healthy."""
        self.compose("up", "--detach", "--no-build")
        self.until("all nodes online", lambda: self.online() == NODES)
        self.until("all containers healthy", lambda: set(self.states()) == {"running healthy"})

    def online(self) -> int:
        """Return how many nodes are online; -1 while the SuperLink does not answer."""
        try:
            return nodes_online(self.connection)
        except FlowerError:
            return -1

    def states(self) -> list[str]:
        """Return state and health of each container that runs on."""
        listed = self.compose("ps", "--all", "--format", "json").stdout.splitlines()
        found = [json.loads(line) for line in listed]
        return [f"{c['State']} {c['Health']}" for c in found if c["Service"] != "registrar"]

    def submit(self, name: str, *overrides: str, rounds: int) -> int:
        """Submit a run of the demo into outputs/<name>; return its id."""
        given = ["experiment=federation_demo", f"rounds={rounds}", "strategy.cluster_round=1"]
        given += [f"records.evaluate_every={rounds}", "records.checkpoint_every=1"]
        given += [f"records.folder=/outputs/{name}", *overrides]
        return flower.submit(
            self.connection, self.checkout, overrides=" ".join(given), federation={}
        )

    def rounds(self, name: str) -> list[dict[str, Any]]:
        """Return the records of a run."""
        path = self.checkout / "outputs" / name / "rounds.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def after(self, name: str, count: int) -> None:
        """Wait until a run has so many rounds."""
        self.until(f"round {count} of {name}", lambda: len(self.rounds(name)) >= count)

    def ended(self, run_id: int) -> str:
        """Wait for the end of a run and return its status."""
        status = [""]

        def over() -> bool:
            try:
                status[0] = flower.status(self.connection, run_id).state
            except FlowerError:  # the SuperLink starts again
                return False
            return status[0].startswith("finished")

        self.until(f"the end of run {run_id}", over)
        return status[0]

    def kill(self, service: str) -> None:
        """Kill the processes of a container from outside, as a crash: Docker starts it again."""
        container = self.compose("ps", "--quiet", service).stdout.strip()
        listed = self._run(["docker", "top", container, "-eo", "pid"]).stdout.split()[1:]
        for pid in map(int, listed):
            os.kill(pid, signal.SIGKILL)

    def until(self, what: str, found: Callable[[], bool]) -> None:
        """Wait until `found` holds; raises TimeoutError."""
        deadline = time.monotonic() + DEADLINE_S
        while not found():
            if time.monotonic() > deadline:
                logs = self.compose("logs", "--tail", "30", must=False).stdout
                raise TimeoutError(f"waited {DEADLINE_S:g} s for {what}:\n{logs}")
            time.sleep(2.0)

    def _run(self, words: list[str], *, must: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            words,
            cwd=self.checkout,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if must and done.returncode:
            raise RuntimeError(f"{' '.join(words)} failed:\n{done.stdout}\n{done.stderr}")
        return done


def without_keys(federation: Composed) -> list[str]:
    """Start without keys: it is refused, and no folder is made."""
    first = federation.compose("up", "--detach", must=False)
    federation.environment["FL_APP_USER"] = "0:0"
    second = federation.compose("up", "--detach", "--no-build", must=False)
    del federation.environment["FL_APP_USER"]
    federation.compose("down", must=False)
    made = (federation.checkout / "deployment").exists()
    said = [each.stderr.strip().splitlines()[-1] for each in (first, second)]
    outcome = f"refused: {first.returncode != 0 != second.returncode}; folder made: {made}"
    shown = [_short(each.replace(str(federation.checkout), "<checkout>")) for each in said]
    return [row("up without `scripts/deploy keys`", outcome, "; ".join(shown))]


def plain(federation: Composed) -> list[str]:
    """Run the demo."""
    status = federation.ended(federation.submit("plain", rounds=4))
    owner = (federation.checkout / "outputs" / "plain" / "rounds.jsonl").stat().st_uid
    what = f"{len(federation.rounds('plain'))} rounds; files belong to the caller: "
    return [row("a run", status, what + str(owner == os.getuid()))]


def killed_nodes(federation: Composed) -> list[str]:
    """Kill each SuperNode and the SuperLink in one run, one after the other."""
    services = [*(f"supernode-{node}" for node in range(NODES)), "superlink"]
    run_id = federation.submit("killed", "engine.min_success=1", rounds=2 * len(services) + 6)
    for place, service in enumerate(services):
        federation.after("killed", 2 * place + 1)
        federation.kill(service)
    status = federation.ended(run_id)
    rounds = federation.rounds("killed")
    federation.until("all nodes online", lambda: federation.online() == NODES)
    what = f"{len(rounds)} rounds; lost in the last one: {rounds[-1]['lost']}"
    return [row("kill -9 of each SuperNode, then of the SuperLink, in one run", status, what)]


def killed_serverapp(federation: Composed) -> list[str]:
    """Kill the container of the ServerApp; the service `runs` submits the run again."""
    federation.submit("serverapp", rounds=6)
    federation.after("serverapp", 2)
    federation.kill("serverapp")
    return [_continued(federation, "serverapp", "kill -9 of the ServerApp's container")]


def down_and_up(federation: Composed) -> list[str]:
    """Take all down in mid-run and up again; the service `runs` submits the run again."""
    federation.submit("down", rounds=6)
    federation.after("down", 2)
    federation.compose("down")
    federation.up()
    return [_continued(federation, "down", "`docker compose down` and `up` in mid-run")]


def _continued(federation: Composed, name: str, what: str) -> str:
    """Wait until a run has ended by itself; return its row."""
    folder = federation.checkout / "outputs" / name

    def over() -> bool:
        state = run_state.read(folder)
        return state is not None and not state.unfinished

    federation.until(f"the end of {name}", over)
    state, summary = run_state.read(folder), read_summary(folder)
    assert state is not None
    assert summary is not None
    models = (folder / "models.safetensors").read_bytes()
    usual = (federation.checkout / "outputs" / "usual" / "models.safetensors").read_bytes()
    same = f"the same models as undisturbed: {models == usual}"
    seen = f"{summary['rounds']} rounds, submitted again {state.restarts} times; {same}"
    return row(what, summary["status"], seen)


def usual(federation: Composed) -> list[str]:
    """Run without a fault what others run with one."""
    status = federation.ended(federation.submit("usual", rounds=6))
    return [row("a longer run", status, f"{len(federation.rounds('usual'))} rounds")]


def lost_node(federation: Composed) -> list[str]:
    """Remove a node for good in mid-run."""
    run_id = federation.submit("lost", rounds=6)
    federation.after("lost", 1)
    federation.compose("rm", "--stop", "--force", "supernode-2")
    status = federation.ended(run_id)
    rounds = federation.rounds("lost")
    what = f"{len(rounds)} rounds; lost in the last one: {rounds[-1]['lost']}"
    return [row("a SuperNode removed for good", status, what)]


def _short(text: str) -> str:
    return text.replace("|", "/")[:160]


SCENARIOS = (plain, usual, killed_nodes, killed_serverapp, down_and_up, lost_node)


def image_of(federation: Composed) -> str:
    """Return the name of the base of the image and its size."""
    shown = federation._run(["docker", "image", "inspect", "fl-app:0.1.0"]).stdout
    size = json.loads(shown)[0]["Size"] / 1e9
    base = os.environ.get("FL_APP_BASE", "the Dockerfile's base")
    return f"{size:.2f} GB on {base}"


def main() -> None:
    """Build the image, run all scenarios and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-build", action="store_true", help="use the image that exists")
    options = parser.parse_args()
    engine = subprocess.run(
        ["docker", "version", "--format", "{{.Server.Version}}"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    rows: list[str] = []
    with tempfile.TemporaryDirectory(prefix="fl-app-compose-") as top:
        federation = Composed(copied(Path(top)))
        if not options.no_build:
            federation.environment["FL_APP_USER"] = "0:0"
            federation.compose("build")
            del federation.environment["FL_APP_USER"]
        image = image_of(federation)
        rows += without_keys(federation)
        federation.keys()
        try:
            federation.up()
            for scenario in SCENARIOS:
                rows += scenario(federation)
                print(*rows, sep="\n", end="\n\n", flush=True)
        finally:
            print(federation.compose("logs", "--tail", "5", must=False).stdout[-3000:], flush=True)
            federation.compose("down", "--volumes", must=False)
    write(rows, engine, image)


def copied(top: Path) -> Path:
    """Copy what git would commit of this checkout, without its history."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPO, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    for name in listed:
        if (REPO / name).is_file():
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPO / name, top / name)
    return top


def write(rows: list[str], engine: str, image: str) -> None:
    """Write the page."""
    intro = (
        "# Compose\n\n"
        "Written by `benchmarks/compose.py`, which `scripts/test-compose` runs,\n"
        f"on {machine()}, Docker {engine}:\n"
        f"`docker-compose.yml` with three nodes, an image of {image}. A container\n"
        "that is killed is started again by Docker. Ended: the run's status in Flower.\n\n"
    )
    lines = [*header("what was done", "ended", "seen"), *rows]
    TABLE.write_text(intro + "\n".join(lines) + "\n")
    assert COMPLETED in rows[1], "the plain run must complete"


if __name__ == "__main__":
    main()
