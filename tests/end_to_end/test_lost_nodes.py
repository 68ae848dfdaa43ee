"""SuperNodes are lost in every phase of a real run: it goes on without them and names them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fl_app.engines import deployment, flower
from fl_app.engines.deployment import Federation, Member

NODES, ROUNDS = 4, 5
DEADLINE_S = 300.0
"""For one step, on a busy machine."""
OVERRIDES = [
    "population=label_swap", "population.groups=2", "population.train_samples=100",
    "population.test_samples=50", f"population.clients={NODES}", f"rounds={ROUNDS}",
    "strategy=fedavg", "strategy.participation=1.0", "client.epochs=1",
    "records.evaluate_every=3", "records.figures=false", "records.report=false",
    "engine=deployment", f"engine.connection={deployment.NAME}",
]  # fmt: skip


class Run:
    """A run on a federation whose nodes this test ends; nobody starts them again."""

    def __init__(self, federation: Federation, folder: Path) -> None:
        self.federation, self.folder = federation, folder
        words = [sys.executable, "-m", "fl_app.main", *OVERRIDES, f"hydra.run.dir={folder}"]
        words += [f"engine.folder='{federation.folder}'"]
        folder.mkdir()
        with (folder / "terminal.txt").open("wb") as output:
            self.process = subprocess.Popen(words, cwd=folder, stdout=output, stderr=output)

    def node(self, number: int) -> Member:
        return next(m for m in self.federation.members if m.name == f"supernode-{number}")

    def rounds(self) -> list[dict[str, Any]]:
        path = self.folder / "rounds.jsonl"
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]]

    def until(self, what: str, found: Callable[[], object]) -> None:
        """Wait until `found` holds; fails with `what` was waited for."""
        deadline = time.monotonic() + DEADLINE_S
        while not found():
            log = self.folder / "flower.log"
            told = log.read_text()[-3000:] if log.exists() else ""
            assert self.process.poll() is None, f"the run ended before {what}: {told}"
            assert time.monotonic() < deadline, f"waited in vain for {what}: {told}"
            time.sleep(0.1)

    def sees(self, number: int, kind: str) -> None:
        """Wait until a node has received a message of a kind."""
        output = self.node(number).process
        what = f"a {kind} message at node {number}"
        self.until(what, lambda: f"Receiving: {kind}" in output.output)

    def stop(self, number: int) -> None:
        """Stop a SuperNode, which tells the SuperLink."""
        process = self.node(number).process.popen
        process.terminate()
        self.until(f"the end of node {number}", lambda: process.poll() is not None)

    def kill(self, number: int) -> None:
        """Kill a SuperNode and all that it started; the operator says that it is gone.

        Without that, the SuperLink would notice after a minute without heartbeats.
        """
        process = self.node(number).process
        node_id = re.findall(r"SuperNode ID: (\d+)", process.output)[-1]
        os.killpg(process.popen.pid, signal.SIGKILL)
        process.popen.wait()
        connection = self.federation.connection
        flower.command(connection, "supernode", "unregister", node_id, connection.name)

    def start(self, number: int) -> None:
        """Start a SuperNode again, with the key that it had."""
        member = self.node(number)
        federation = self.federation
        member.process = federation._launch(member.name, member.command, member.home)


def test_a_run_goes_on_without_the_nodes_lost_in_any_phase(tmp_path: Path) -> None:
    with Federation(tmp_path / "federation", nodes=NODES) as federation:
        run = Run(federation, tmp_path / "run")
        try:
            run.sees(1, "get_properties")
            run.stop(1)  # in the introduction; it comes back
            run.sees(2, "train")
            run.kill(2)  # in a fit
            run.start(1)
            run.sees(3, "evaluate")
            run.stop(3)  # in an evaluation
            run.until("client 1 to train", lambda: 1 in run.rounds()[-1]["sampled"])
            run.stop(1)  # between rounds
            assert run.process.wait(DEADLINE_S) == 0
        finally:
            run.process.terminate()
            run.process.wait()
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
