"""A federation whose clients are forks of a warm process, beside one whose clients all import.

    .venv/bin/python benchmarks/warm_clients.py [overrides]

Each run is a process tree of its own, one after another. Linux only: processes that lose their
parent are passed to this one, so that their processor seconds are counted too.
"""

import argparse
import contextlib
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from table import REPO, header, row, write_section

SIDES = {"a fork of the warm process": "true", "a process that imports": "false"}
PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Let this process be the parent of all descendants whose own parent has ended."""
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("Linux 3.4 or newer must let this process adopt orphans")


def processor_seconds() -> float:
    """Return the processor seconds of all descendants that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(overrides: list[str], folder: Path) -> tuple[list[dict[str, Any]], float, float]:
    """Return the times of the rounds of a run, its seconds, and its processor seconds."""
    words = [sys.executable, "-m", "fl_app.main", "engine=deployment", *overrides]
    began, used = time.monotonic(), processor_seconds()
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    subprocess.run([*words, f"hydra.run.dir={folder}"], env=environment, check=True)
    seconds = time.monotonic() - began
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    return [json.loads(line)["time"] for line in lines], seconds, processor_seconds() - used


def main() -> None:
    """Run both sides and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("overrides", nargs="*", default=["experiment=federation_demo"])
    overrides = parser.parse_args().overrides
    adopt_orphans()
    lines = [
        "Training of a round: median, smallest and largest; evaluation of a round: median. The",
        "whole run includes the start and the end of the federation; processor seconds are those",
        "of all its processes. Other work on the machine slows both sides.",
        "",
        *header(
            "a client is", "training s", "least", "most", "evaluation s", "run s", "processor s"
        ),
    ]
    with tempfile.TemporaryDirectory() as top:
        for side, warm in SIDES.items():
            given = [*overrides, f"engine.warm={warm}"]
            times, seconds, used = measure(given, Path(top) / warm)
            training = [each["training_s"] for each in times]
            evaluation = [each["evaluation_s"] for each in times if each["evaluation_s"]]
            told = [statistics.median(training), min(training), max(training)]
            told += [statistics.median(evaluation or [0.0])]
            lines.append(row(side, *(f"{s:.1f}" for s in told), f"{seconds:.0f}", f"{used:.0f}"))
    command = f"benchmarks/warm_clients.py {' '.join(overrides)}"
    write_section("Warm clients", command, lines)


if __name__ == "__main__":
    main()
