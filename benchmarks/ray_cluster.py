"""Runs simulations on a Ray cluster of two raylets; writes docs/results/ray_cluster.md.

    .venv/bin/python benchmarks/ray_cluster.py [--clients 10000]

Each raylet has one CPU of its own. The runs: on one raylet, on two, and on two of which one is
killed for good in mid-run. The plan is what the measured seconds per client give on paper.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from table import REPO, header, machine, row

PAGE = REPO / "docs" / "results" / "ray_cluster.md"
PORT = 6391
ROUNDS, COHORT, KILLED_AFTER = 12, 50, 4
SKIPPED = 2
"""First rounds that medians exclude: workers import the libraries."""
PLANNED = (8, 64, 512)
"""Workers of the plan."""
LIMIT_S = 1200.0


@dataclass(frozen=True)
class Found:
    """What a run on `raylets` showed; `after_s` are the rounds after the kill, if any."""

    name: str
    raylets: int
    status: str
    start_s: float
    round_s: float
    lost: int
    longest_s: float


def ray(*words: str) -> None:
    """Call Ray's command line."""
    command = [str(Path(sys.executable).with_name("ray")), *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def raylets() -> set[int]:
    """Return the processes of raylets on this machine."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (folder / "cmdline").read_bytes().split(b"\0")[0].endswith(b"raylet/raylet"):
                found.add(int(folder.name))
    return found


@contextmanager
def cluster(size: int) -> Iterator[int]:
    """Start a cluster of raylets with one CPU each; yield the process of the last one."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        ray("start", "--head", f"--port={PORT}", "--num-cpus=1", "--include-dashboard=false",
            f"--temp-dir={folder}", "--disable-usage-stats")  # fmt: skip
        try:
            for _ in range(size - 1):
                before = raylets()
                ray("start", f"--address=127.0.0.1:{PORT}", "--num-cpus=1", "--disable-usage-stats")
            yield next(iter(raylets() - before)) if size > 1 else 0
        finally:
            ray("stop", "--force")


def play(name: str, clients: int, size: int, *, kills: bool) -> Found:
    """Run once on a new cluster of `size` raylets."""
    with ExitStack() as stack:
        last = stack.enter_context(cluster(size))
        top = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fl-app-cluster-")))
        folder = top / "run"
        command = [
            sys.executable, "-m", "fl_app.main", "engine=simulation",
            f"engine.ray_address=127.0.0.1:{PORT}", "strategy=fedavg", "network=mlp",
            f"strategy.participation={COHORT / clients}", f"rounds={ROUNDS}",
            f"population.clients={clients}", "population.draw=replacement",
            "population.train_samples=20", "population.test_samples=10", "client.epochs=1",
            f"records.evaluate_every={ROUNDS}", "records.evaluate_at_most=50",
            "records.checkpoint_every=1000", "records.figures=false", "records.report=false",
            "tracking=none", f"hydra.run.dir={folder}",
        ]  # fmt: skip
        environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
        )
        began, first = time.monotonic(), 0.0
        while process.poll() is None:
            assert time.monotonic() - began < LIMIT_S, "the run does not end"
            done = len(records(folder))
            first = first or (time.monotonic() - began if done else 0.0)
            if kills and done >= KILLED_AFTER:
                os.kill(last, signal.SIGKILL)
                kills = False
            time.sleep(0.2)
        return found(name, size, folder, first)


def records(folder: Path) -> list[dict]:
    """Return the recorded rounds."""
    file = folder / "rounds.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [json.loads(line) for line in lines]


def found(name: str, size: int, folder: Path, start_s: float) -> Found:
    """Return what the folder of a run tells."""
    summary = folder / "summary.json"
    status = json.loads(summary.read_text())["status"] if summary.exists() else "no summary"
    rounds = records(folder)
    seconds = [each["time"]["training_s"] for each in rounds]
    kept = seconds[SKIPPED:-1] or seconds or [float("nan")]
    lost = sum(len(each["failed"]) for each in rounds)
    return Found(
        name, size, f"{status}, {len(rounds)} rounds", start_s, median(kept), lost, max(kept)
    )


def page(clients: int, runs: list[Found]) -> str:
    """Return the whole page."""
    one, two = runs[0], runs[1]
    lines = [
        "# A simulation on a Ray cluster", "",
        f"Written by `benchmarks/ray_cluster.py --clients {clients}`, on {machine()}, where the "
        f"raylets, the server and the SuperLink share these cores: {clients:,} clients of 20 "
        f"samples of the digits, {COHORT} a round, {ROUNDS} rounds, `engine.ray_address`. Each "
        "raylet has one CPU and so one worker. Medians without the first "
        f"{SKIPPED} rounds and the last.", "",
        *header("cluster", "ended as", "s to the first round", "s a round, median", "longest",
                "replies lost"),
    ]  # fmt: skip
    lines += [
        row(each.name, each.status, f"{each.start_s:.0f}", f"{each.round_s:.2f}",
            f"{each.longest_s:.1f}", each.lost)
        for each in runs
    ]  # fmt: skip
    each_s = one.round_s / COHORT
    lines += [
        "", f"One worker takes {each_s * 1000:.0f} ms a client; two give "
        f"{one.round_s / two.round_s:.2f} times its speed here. On paper, if workers of other "
        "machines do not share cores with the server, a round of all clients takes "
        "`clients * s / workers`, and at least what the server needs itself (see the rounds above "
        "and [benchmarks](../benchmarks.md)):", "",
        *header("workers", *(f"{share:,} clients a round, s" for share in (100, 1000, clients))),
    ]  # fmt: skip
    lines += [
        row(number, *(f"{share * each_s / number:.1f}" for share in (100, 1000, clients)))
        for number in PLANNED
    ]
    lines += [
        "", "The first introduction asks every client once, at the same cost a client. The plan is "
        "not measured: we had one machine.", "",
    ]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    """Run all cases and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=10_000)
    options = parser.parse_args()
    runs = []
    cases = (("one raylet", 1, False), ("two raylets", 2, False), ("two, one killed", 2, True))
    for name, size, kills in cases:
        runs.append(play(name, options.clients, size, kills=kills))
        print(runs[-1], flush=True)
    PAGE.write_text(page(options.clients, runs))
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
