"""A node of another release of Flower that takes the place of one of ours in a run."""

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from disturbed import DEADLINE_S, Disturbed, Run, short
from strangers import node_command, registered
from waiting import wait_for

from fl_app.engines import flower
from fl_app.engines.federation import NAME
from fl_app.engines.nodes import nodes_online

CLIENT = 1
"""Its client id, which is that of `Disturbed.pids("SuperNode")`."""
_RAISED = re.compile(r"[A-Z]\w*(Error|Exception): ")


def release_of(python: Path) -> str:
    """Return the version of Flower of another environment."""
    words = [python, "-c", "from importlib.metadata import version; print(version('flwr'))"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def other_release(federation: Disturbed, name: str, *, python: Path) -> dict[str, Any]:
    """Run the demo with a node of another release as one of the clients; return its line."""
    connection = flower.Connection(NAME, federation.folder / "home")

    def wait(what: str, count: int) -> None:
        def found() -> bool:
            return nodes_online(connection) == count

        wait_for(what, found, seconds=DEADLINE_S, every=5.0)  # a look is a process

    nodes = nodes_online(connection)
    with _stopped(federation):
        wait("the stopped node to be missed", nodes - 1)
        with _supernode(federation, python) as log:
            wait(f"the node of another release to be online; see {log}", nodes)
            run = federation.start(name)
            ended = run.outcome()
            told = [*_warnings(run.folder / "flower.log"), *_recorded(run), *_error(log)]
    wait("the stopped node to be back", nodes)
    plain = [each.replace(str(python.parents[1]), "") for each in told]
    return {**ended, "told": "; ".join(short(each, federation.top) for each in plain)}


def _recorded(run: Run) -> list[str]:
    """Return the rounds in which the records name a failure or a lost client."""
    found = {name: [r["round"] for r in run.rounds() if r[name]] for name in ("failed", "lost")}
    return [f"`{name}` in rounds {rounds}" for name, rounds in found.items() if rounds]


def _warnings(log: Path) -> list[str]:
    """Return what the ServerApp of a run warned of."""
    lines = log.read_text().splitlines()
    said = [each for each in lines if each.startswith(("client ", "nodes ", "the run "))]
    return [f"the log of the run: {'; '.join(said)}"] if said else []


def _error(log: Path) -> list[str]:
    """Return the last exception in the words of a SuperNode."""
    raised = [each for each in log.read_text().splitlines() if _RAISED.match(each)]
    return [f"its SuperNode: {raised[-1]}"] if raised else []


@contextmanager
def _stopped(federation: Disturbed) -> Iterator[None]:
    """Stop the SuperNode of the client: the keeper starts one that was killed again."""
    pids = federation.pids("SuperNode")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def _supernode(federation: Disturbed, python: Path) -> Iterator[Path]:
    """Run a SuperNode of the other release; yield the file of its words."""
    connection = flower.Connection(NAME, federation.folder / "home")
    home = Path(tempfile.mkdtemp(dir=federation.top))
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    environment = {**connection.environment(), "FLWR_HOME": str(home), "PATH": path}
    with registered(federation) as keys, (home / "log").open("wb") as log:
        words = node_command(federation, keys, node=CLIENT)
        words[0] = str(python.parent / "flower-supernode")
        if "--clientappio-api-address" in _help(words[0]):  # its name before --host and --port
            at = words.index("--host")
            address = f"{words[at + 1]}:{words[at + 3]}"
            words[at : at + 4] = ["--clientappio-api-address", address]
        process = subprocess.Popen(
            words, env=environment, cwd=home, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield home / "log"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _help(command: str) -> str:
    shown = subprocess.run([command, "--help"], capture_output=True, text=True, check=True)
    return shown.stdout
