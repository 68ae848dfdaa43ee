"""The ServerApp of a deployment is killed: the run goes on by itself and ends as if it was not."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.waits

RUN = ["experiment=kmeans_demo", "rounds=5", "population.clients=2", "strategy.init=random"]
RUN += ["records.checkpoint_every=1", "records.figures=false", "records.report=false"]
DEADLINE_S = 300.0


def started(engine: str, folder: Path) -> "subprocess.Popen[bytes]":
    words = [sys.executable, "-m", "fl_app.main", *RUN, f"engine={engine}"]
    with folder.with_suffix(".txt").open("wb") as log:
        return subprocess.Popen(
            [*words, f"hydra.run.dir={folder}"], cwd=folder.parent, stdout=log, stderr=log
        )


def serverapps(folder: Path) -> list[int]:
    """Return the ServerApp processes of the federation in `folder`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            named = b"flwr-serverapp" in (entry / "cmdline").read_bytes()
            if named and os.fsencode(folder) in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:  # it has ended
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes by /proc")
def test_a_killed_serverapp_is_replaced_and_the_models_have_the_same_bytes(tmp_path: Path) -> None:
    folder, undisturbed = tmp_path / "deployed", tmp_path / "inprocess"
    command = started("deployment", folder)
    deadline = time.monotonic() + DEADLINE_S
    rounds = folder / "rounds.jsonl"
    while not rounds.exists() or rounds.read_text().count("\n") < 2:
        assert command.poll() is None, folder.with_suffix(".txt").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (pid,) = serverapps(folder)
    os.kill(pid, signal.SIGKILL)
    assert started("inprocess", undisturbed).wait(DEADLINE_S) == 0
    assert command.wait(DEADLINE_S) == 0, folder.with_suffix(".txt").read_text()
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["status"], summary["rounds"], summary["restarts"]) == ("completed", 5, 1)
    events = [event["kind"] for line in rounds.read_text().splitlines() for event in _events(line)]
    assert events.count("restarted") == 1
    ours, theirs = ((each / "models.safetensors").read_bytes() for each in (folder, undisturbed))
    assert ours == theirs


def _events(line: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(line)["events"]
    return found
