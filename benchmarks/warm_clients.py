"""A federation whose clients are forks of a warm process, beside one whose clients all import.

    .venv/bin/python benchmarks/warm_clients.py [--rounds 4] [--runs 2] [overrides]

Each runs with evaluations that the next training carries and with evaluations of their own. Both
federations are up all the time, and runs alternate, so that other work on the machine slows all.
Linux only: memory is read from /proc.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from table import REPO, arguments, header, row, write_section

from fl_app.engines import watchdog
from fl_app.engines.federation import Federation
from fl_app.records.history import read_rounds

NODES, LOOK_S, POLL_S = 3, 3.0, 1.0
"""An idle SuperNode of Flower looks for messages every `LOOK_S`."""
SIDES = {"a fork of the warm process": True, "a process that imports": False}
WAYS = {"carried by the next training": True, "an exchange of its own": False}
OTHERS = "flower-superlink", "--superexec-auth-secret", "flwr-serverapp", "watchdog.py"
"""In the command lines of processes that belong to no node."""


def _by_way() -> dict[bool, list[float]]:
    return {carried: [] for carried in WAYS.values()}


@dataclass
class Side:
    """What runs on one federation showed: seconds of each round, and megabytes at each look.

    `training` and `evaluation` are by whether the next training carries the evaluation.
    """

    federation: Federation
    training: dict[bool, list[float]] = field(default_factory=_by_way)
    evaluation: dict[bool, list[float]] = field(default_factory=_by_way)
    memory: list[float] = field(default_factory=list)
    clients: list[int] = field(default_factory=list)

    def whole(self, carried: bool) -> list[float]:
        """Return the seconds of each round with its evaluation."""
        both = self.training[carried], self.evaluation[carried]
        return [sum(each) for each in zip(*both, strict=True)]

    def look(self) -> None:
        """Note the memory of the nodes, where shared pages are shared out, and their clients."""
        found, clients = 0.0, 0
        for pid in watchdog.marked(self.federation.supervisor.token):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except OSError:  # it has ended
                continue
            server = any(word in line for word in OTHERS)
            share = next(each for each in rollup.splitlines() if each.startswith("Pss:"))
            found += 0.0 if server else int(share.split()[1]) / 1024
            clients += "flwr-clientapp" in line
        self.memory.append(found)
        self.clients.append(clients)


def play(side: Side, carried: bool, folder: Path, overrides: Sequence[str]) -> None:
    """Run once on a federation that is up; add what it showed."""
    federation = side.federation
    words = [sys.executable, "-m", "fl_app.main", "engine=deployment", *overrides]
    words += [f"engine.evaluate_with_training={str(carried).lower()}"]
    words += [f"engine.connection={federation.connection.name}", f"hydra.run.dir={folder}"]
    environment = {**federation.connection.environment(), "PYTHONPATH": str(REPO)}
    process = subprocess.Popen(words, env=environment, cwd=REPO, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        side.look()
        time.sleep(POLL_S)
    if process.returncode:
        raise RuntimeError(f"the run ended with {process.returncode}; see its log above")
    for record in read_rounds(folder):
        seconds = record["time"]
        side.training[carried].append(seconds["training_s"])
        side.evaluation[carried].append(seconds["evaluation_s"])


def main() -> None:
    """Run both sides in turn and write the section."""
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--runs", type=int, default=2, help="runs on each side")
    parser.add_argument("overrides", nargs="*", default=["experiment=federation_demo"])
    given = parser.parse_args()
    more = [f"rounds={given.rounds}", "records.evaluate_every=1", "records.report=false"]
    more += ["records.figures=false", "strategy.cluster_round=1", f"population.clients={NODES}"]
    with ExitStack() as stack:
        top = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fl-warm-")))
        sides = {
            name: Side(stack.enter_context(Federation(top / str(warm), nodes=NODES, warm=warm)))
            for name, warm in SIDES.items()
        }
        for number in range(given.runs):
            order = [(name, carried) for carried in WAYS.values() for name in sides]
            for name, carried in order if number % 2 == 0 else reversed(order):
                side, run = sides[name], f"run-{number}-{SIDES[name]}-{carried}"
                play(side, carried, top / run, [*given.overrides, *more])
                print(name, carried, side.whole(carried), max(side.memory), flush=True)
    command = f"benchmarks/warm_clients.py --rounds {given.rounds} --runs {given.runs}"
    write_section("Warm clients", f"{command} {' '.join(given.overrides)}", told(sides))


def told(sides: dict[str, Side]) -> list[str]:
    """Return the lines of the section."""
    forks, imports = sides.values()
    rounds, load = len(forks.training[True]), os.getloadavg()[2]
    lines = [
        f"Medians of {rounds} rounds each, in runs that alternated. All {NODES} clients evaluated",
        "each round: in messages of its own, or when they trained the next round; the last round",
        "of a run has none. The training alone includes the scores that it carries. Memory is that",
        "of all processes of the nodes, with shared pages shared out (PSS). The machine did other",
        f"work: at the end its load over 15 minutes was {load:.0f}. So only the ratios count.",
        "",
        *header("a client is", "an evaluation is", "round, s", "training alone, s",
                "least round, s", "memory at most, MB", "most clients at a time"),
    ]  # fmt: skip
    for name, side in sides.items():
        for way, carried in WAYS.items():
            whole, training = side.whole(carried), side.training[carried]
            seconds = (f"{each:.1f}" for each in (median(whole), median(training), min(whole)))
            lines.append(row(name, way, *seconds, f"{max(side.memory):,.0f}", max(side.clients)))
    memory = max(imports.memory) / max(forks.memory)
    for way, carried in WAYS.items():
        ratios = (
            median(imports.whole(carried)) / median(forks.whole(carried)),
            median(imports.training[carried]) / median(forks.training[carried]),
            min(imports.whole(carried)) / min(forks.whole(carried)),
            memory,
        )
        lines.append(row("ratio", way, *(f"{each:.1f}" for each in ratios), ""))
    looks = median(forks.whole(True)) / LOOK_S
    both = median(imports.whole(False)) / median(forks.whole(True))
    saved = median(forks.whole(False)) / median(forks.whole(True))
    return [
        *lines,
        "",
        f"Flower's idle SuperNodes look for messages every {LOOK_S:g} s. The median round with the",
        f"warm process and a carried evaluation is {looks:.1f} of these looks. It is",
        f"{saved:.1f} times as fast as one with messages for its evaluation, and",
        f"{both:.1f} times as fast as that without the warm process.",
    ]


def median(numbers: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(numbers)


if __name__ == "__main__":
    main()
