"""SuperNodes are lost in every phase of a real run: it goes on without them and names them."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fl_app.engines import flower, warm_clients
from fl_app.engines.federation import Federation
from fl_app.engines.member import Member

pytestmark = pytest.mark.waits

APP = Path(__file__).parent / "small_app"
NODES, ROUNDS = 4, 7
DEADLINE_S = 300.0
"""For one step, on a busy machine."""


class Run:
    """A run on a federation whose nodes this test ends; nobody starts them again."""

    def __init__(self, federation: Federation, folder: Path) -> None:
        self.federation, self.folder = federation, folder
        given = folder.parent / "run.toml"
        given.write_text(f'folder = "{folder}"\nclients = {NODES}\nrounds = {ROUNDS}\n')
        connection = federation.connection
        words = ["run", str(APP), connection.name, "--run-config", str(given)]
        self.run_id = int(str(flower.command(connection, *words)["run-id"]))

    def node(self, number: int) -> Member:
        return next(m for m in self.federation.members if m.name == f"supernode-{number}")

    def rounds(self) -> list[dict[str, Any]]:
        path = self.folder / "rounds.jsonl"
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]]

    def until(self, what: str, found: Callable[[], object]) -> None:
        """Wait until `found` holds; fails with `what` was waited for."""
        deadline = time.monotonic() + DEADLINE_S
        while not found():
            log = self.federation.folder / "logs" / "superexec.log"
            assert time.monotonic() < deadline, f"waited for {what}: {log.read_text()[-3000:]}"
            time.sleep(0.1)

    def sees(self, number: int, kind: str) -> None:
        """Wait until a node has received a message of a kind."""
        process = self.node(number).process
        self.until(f"{kind} at node {number}", lambda: f"Receiving: {kind}" in process.output)

    def stop(self, number: int) -> None:
        """Stop a SuperNode, which tells the SuperLink."""
        process = self.node(number).process.popen
        process.terminate()
        self.until(f"the end of node {number}", lambda: process.poll() is not None)

    def kill(self, number: int) -> None:
        """Kill a SuperNode and all that it started, for good."""
        process = self.node(number).process.popen
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def kill_warm(self) -> None:
        """Kill the process that clients are forks of: then they start as Flower starts them."""
        process = next(m for m in self.federation.members if m.name == warm_clients.NAME).process
        process.popen.kill()
        process.popen.wait()

    def give_up(self, number: int) -> None:
        """Say, as an operator, that a node is gone: Flower itself waits for a minute first."""
        node_id = _node_ids(self.node(number).process.output)[-1]
        connection = self.federation.connection
        flower.command(connection, "supernode", "unregister", node_id, connection.name)

    def start(self, number: int) -> None:
        """Start a SuperNode again, with the key that it had, and wait until it is online."""
        member = self.node(number)
        member.process = self.federation._launch(member.name, member.command, member.home)
        self.until(f"node {number} online", lambda: _node_ids(member.process.output))

    def status(self) -> str:
        """Return how the run ended."""
        summary = self.folder / "summary.json"
        self.until("the end of the run", summary.exists)
        found = flower.RunStatus("", "")

        def over() -> bool:
            nonlocal found
            found = flower.status(self.federation.connection, self.run_id)
            return found.finished

        self.until("the end of its process", over)
        return found.state


def _node_ids(output: str) -> list[str]:
    return re.findall(r"SuperNode ID: (\d+)", output)


def test_a_run_goes_on_without_the_nodes_lost_in_any_phase(tmp_path: Path) -> None:
    with Federation(tmp_path / "federation", nodes=NODES, warm=True) as federation:
        run = Run(federation, tmp_path / "run")
        run.sees(1, "get_properties")
        run.stop(1)  # in the introduction; it comes back
        run.sees(2, "train")
        run.kill(2)  # in a fit
        run.start(1)
        run.give_up(2)
        run.sees(3, "evaluate")
        run.stop(3)  # in an evaluation
        run.until("client 1 to train", lambda: 1 in run.rounds()[-1]["sampled"])
        run.stop(1)  # between rounds
        run.kill_warm()
        assert run.status() == flower.COMPLETED
        logs = [run.node(number).process.log.read_text() for number in range(NODES)]
    if federation.warm:
        assert "no warm process starts this client" in "".join(logs)
    rounds = run.rounds()
    assert len(rounds) == ROUNDS
    first, last = rounds[0], rounds[-1]
    assert first["sampled"] == [0, 2, 3]
    assert (list(first["failed"]), first["lost"]) == (["2"], [1, 2])
    assert "3" in rounds[2]["failed"]
    assert 1 in {client for record in rounds for client in record["sampled"]}
    assert (last["sampled"], last["lost"]) == ([0], [1, 2, 3])
    summary = json.loads((run.folder / "summary.json").read_text())
    assert summary["status"] == "completed"
    assert summary["clients"]["failed"] >= 2
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(tmp_path) not in listed.stdout
