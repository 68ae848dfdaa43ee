"""The federation of docker-compose.yml in a copy of a checkout, whose containers can be killed."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from waiting import online, wait_for

from fl_app.engines import flower
from fl_app.engines.flower import Connection, RunStatus
from fl_app.engines.flower_commands import FlowerError
from fl_app.records.history import read_rounds

NODES, ROUNDS = 3, 4
SUPERNODES = [f"supernode-{node}" for node in range(NODES)]
NETWORK = "fl-app_federation"
DEADLINE_S = 900.0


class Composed:
    """The federation of the compose file of a copy of the checkout."""

    def __init__(self, checkout: Path) -> None:
        self.checkout = checkout
        self.connection = Connection("compose", checkout / "deployment" / "compose")
        self.environment = {**os.environ, "PYTHONPATH": str(checkout)}

    def compose(self, *words: str, must: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `docker compose` in the checkout."""
        return self.run(["docker", "compose", *words], must=must)

    def keys(self, *options: str) -> None:
        """Run `scripts/deploy keys`."""
        words = ["-m", "fl_app.deploy", "keys", "--nodes", str(NODES), *options]
        self.run([sys.executable, *words, "--folder", str(self.checkout / "deployment")])
        for name in ("outputs", "data"):
            (self.checkout / name).mkdir(exist_ok=True)

    def up(self) -> None:
        """Start all, and wait until the nodes are online and all that says so is healthy."""
        self.compose("up", "--detach", "--no-build")
        self.all_online()
        self.until("all containers healthy", lambda: set(self.states()) == {"running healthy"})

    def states(self) -> list[str]:
        """Return state and health of each container that runs on."""
        listed = self.compose("ps", "--all", "--format", "json").stdout.splitlines()
        found = [json.loads(line) for line in listed]
        return [f"{c['State']} {c['Health']}" for c in found if c["Service"] != "registrar"]

    def submit(self, name: str, *overrides: str, rounds: int) -> int:
        """Submit a run of the demo into outputs/<name>; return its id."""
        given = ["experiment=federation_demo", f"rounds={rounds}", "strategy.cluster_round=1"]
        given += [f"records.evaluate_every={rounds}", "records.checkpoint_every=1"]
        given += [f"records.folder=/outputs/{name}", "engine.node_ids=/outputs/nodes.json"]
        given += ["engine.connect_timeout_s=900", *overrides]
        return flower.submit(
            self.connection, self.checkout, overrides=" ".join(given), federation={}
        )

    def typed(self, command: str) -> None:
        """Run a command of the docs in the checkout; `scripts/deploy` with this environment."""
        program = f"{shlex.quote(sys.executable)} -m fl_app.deploy"
        self.run(["bash", "-c", command.replace("scripts/deploy", program)])

    def started_again(self, services: Sequence[str]) -> int:
        """Return how often Docker started the containers of services again by itself."""
        found = self.compose("ps", "--quiet", *services).stdout.split()
        words = ["docker", "inspect", "--format", "{{.RestartCount}}", *found]
        return sum(map(int, self.run(words).stdout.split()))

    def rounds(self, name: str) -> list[dict[str, Any]]:
        """Return the records of a run."""
        folder = self.checkout / "outputs" / name
        return read_rounds(folder) if (folder / "rounds.jsonl").exists() else []

    def after(self, name: str, count: int) -> None:
        """Wait until a run has so many rounds."""
        self.until(f"round {count} of {name}", lambda: len(self.rounds(name)) >= count)

    def ended(self, run_id: int) -> str:
        """Wait for the end of a run and return its status."""
        found = RunStatus("", "")

        def over() -> bool:
            nonlocal found
            with contextlib.suppress(FlowerError):  # the SuperLink starts again
                found = flower.status(self.connection, run_id)
            return found.finished

        self.until(f"the end of run {run_id}", over)
        return found.state

    def kill(self, service: str) -> None:
        """Kill the processes of a container from outside, as a crash: Docker starts it again."""
        for line in self._top(service, "uid"):
            with contextlib.suppress(ProcessLookupError):  # it ended with one before it
                os.kill(int(line.split()[-1]), signal.SIGKILL)

    def stop(self, service: str, seconds: float) -> None:
        """Let a container stand still for a while."""
        self.compose("pause", service)
        time.sleep(seconds)
        self.compose("unpause", service)

    def cut(self, service: str, seconds: float) -> None:
        """Take a container off the network of the federation for a while."""
        container = self.compose("ps", "--quiet", service).stdout.strip()
        self.run(["docker", "network", "disconnect", NETWORK, container])
        time.sleep(seconds)
        self.run(["docker", "network", "connect", "--alias", service, NETWORK, container])

    def all_online(self) -> None:
        """Wait until every node is online."""
        self.until("all nodes online", lambda: online(self.connection) == NODES)

    def until(self, what: str, found: Callable[[], bool]) -> None:
        """Wait until `found` holds; raises TimeoutError."""

        def logs() -> str:
            return self.compose("logs", "--tail", "30", must=False).stdout

        # a look at Flower is a process
        wait_for(what, found, seconds=DEADLINE_S, every=5.0, details=logs)

    def belong(self, user: int) -> None:
        """Give the checkout to a user, as whom containers run from the next start on."""
        self.run(["chown", "--recursive", f"{user}:{user}", str(self.checkout)])
        self.environment["FL_APP_USER"] = f"{user}:{user}"

    def user(self, service: str) -> str:
        """Return the ids of the users of the processes of a container."""
        return " ".join(sorted({line.split()[0] for line in self._top(service, "uid")}))

    def _top(self, service: str, column: str) -> list[str]:
        container = self.compose("ps", "--quiet", service).stdout.strip()
        return self.run(["docker", "top", container, "-eo", f"{column},pid"]).stdout.splitlines()[
            1:
        ]

    def run(
        self, words: list[str], *, must: bool = True, given: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the checkout, with `given` as its input."""
        done = subprocess.run(
            words,
            cwd=self.checkout,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            input=given,
        )
        if must and done.returncode:
            raise RuntimeError(f"{' '.join(words)} failed:\n{done.stdout}\n{done.stderr}")
        return done
