"""Compares our engines with Flower as its tutorials use it, on the same work.

    .venv/bin/python benchmarks/against_stock.py --data <folder> [overhead] [light] [small]

Stock Flower is `benchmarks/stock/app.py`: FedAvg, a NumPyClient and DataLoaders with Ray. Both
train the same network on a random split of MNIST, from weights of the same distribution.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from table import arguments, header, row, write_section

from fl_app.records.history import read_rounds

CLOSE = 0.05
"""Accuracies that differ by less are equal: batches and first weights are drawn differently.

Stock Flower's batches depend on no seed: runs of the small clients gave 0.684, 0.700 and 0.716.
"""


@dataclass(frozen=True)
class Work:
    """One kind of work for both sides."""

    title: str
    clients: int
    samples: int
    cohort: int
    epochs: int
    batch_size: int
    rounds: int
    learning_rate: float = 0.01
    skipped: int = 2
    """First rounds that are not counted: they fill caches, load data and start workers."""


@dataclass(frozen=True)
class Side:
    """Seconds of each round without its evaluation, and the accuracy after the last.

    `outside`: without the clients' own seconds too, where these are known and not parallel.
    """

    seconds: Sequence[float]
    accuracy: float
    outside: Sequence[float] = ()


WORKS = {
    "overhead": Work(
        "A round in which clients train zero epochs", 100, 600, 10, 0, 50, 50, skipped=25
    ),
    "light": Work("A FLIC light round", 100, 600, 10, 1, 50, 15),
    "small": Work("Many small clients", 1000, 50, 50, 1, 10, 12),
}
OUTSIDE = (
    "Outside the clients: without the seconds in which a client loads and returns its model. These "
    "are known only if one worker calls the clients one after another. The ratio compares whole "
    "rounds."
)
COLUMNS = (
    "side", "median s", "least", "most", "outside the clients", "times faster than {other}",
    "accuracy",
)  # fmt: skip
ALONE = ["engine=inprocess", "engine.workers=1"]
OURS = {
    "overhead": {
        "in-process, FedAvg": [*ALONE, "strategy=fedavg"],
        "in-process, FLIC": ALONE,
        "in-process, FLIC without look-ahead": [*ALONE, "graph.look_ahead_every=0"],
        "Ray, FedAvg": ["engine=simulation", "strategy=fedavg"],
        "Ray, FLIC": ["engine=simulation"],
    },
    "light": {
        "in-process, FLIC, fp32": ["engine=inprocess"],
        "in-process, FLIC, bf16": ["engine=inprocess", "client.precision=bf16"],
    },
}
OURS["small"] = {
    "in-process, FedAvg, fp32": ["engine=inprocess", "strategy=fedavg"],
    "in-process, FLIC without look-ahead, fp32": ["engine=inprocess", "graph.look_ahead_every=0"],
    **OURS["light"],
}


def stock(work: Work, data: Path) -> Side:
    """Run Flower's side in a process of its own."""
    return theirs([sys.executable, str(Path(__file__).parent / "stock" / "app.py")], work, data)


def theirs(command: Sequence[str], work: Work, data: Path) -> Side:
    """Run another side, a program that takes the work as options and writes `--out`."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        options = [f"--data={data}", f"--out={out}", f"--rounds={work.rounds}"]
        for name in ("clients", "samples", "cohort", "epochs", "batch_size", "learning_rate"):
            options.append(f"--{name.replace('_', '-')}={getattr(work, name)}")
        _run([*command, *options])
        found = json.loads(out.read_text())
    return Side(found["seconds"][work.skipped :], found["accuracy"][-1])


def ours(work: Work, data: Path, overrides: list[str]) -> Side:
    """Run our side; FLIC clusters only after the rounds that are measured."""
    late = [f"strategy.cluster_round={work.rounds + 1}"]
    clustering = [] if "strategy=fedavg" in overrides else late
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "fl_app.main", "data=mnist", f"data.root={data}",
            "network=mcmahan_cnn", "population=iid", f"population.clients={work.clients}",
            f"population.train_samples={work.samples}", f"client.epochs={work.epochs}",
            f"client.batch_size={work.batch_size}", f"client.learning_rate={work.learning_rate}",
            f"client.cached={work.clients}", f"rounds={work.rounds + 2}",
            f"records.evaluate_every={work.rounds}", "records.checkpoint_every=1000",
            "records.figures=false", "records.report=false", f"hydra.run.dir={folder}/run",
            *overrides, *clustering,
            f"strategy.participation={work.cohort / work.clients}",
        ]  # fmt: skip
        _run(command)
        records = read_rounds(Path(folder) / "run")[: work.rounds]
    times = [record["time"] for record in records[work.skipped :]]
    seconds = [time["total_s"] - time["evaluation_s"] for time in times]
    alone = "engine.workers=1" in overrides
    own = [time["clients_s"] for time in times] if alone else []
    outside = [both - mine for both, mine in zip(seconds, own, strict=False)]
    return Side(seconds, records[-1]["accuracy"]["mean"], outside)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command} failed:\n{done.stdout}{done.stderr}")


def measure(name: str, data: Path) -> None:
    """Run all sides of one kind of work after each other and write the section."""
    work = WORKS[name]
    sides = {"stock Flower: Ray, FedAvg, fp32": stock(work, data)}
    sides |= {label: ours(work, data, overrides) for label, overrides in OURS[name].items()}
    lines = told(work, sides, "stock")
    write_section(work.title, f"benchmarks/against_stock.py {name}", lines)


def told(work: Work, sides: dict[str, Side], other: str) -> list[str]:
    """Return the lines of a section; the first side is the one that the others are held against."""
    base = next(iter(sides.values()))
    lines = [
        f"{work.cohort} of {work.clients} clients with {work.samples} samples, E = {work.epochs}, "
        f"B = {work.batch_size}, 1,663,370 parameters.",
        f"Median, smallest and largest of {len(base.seconds)} rounds, without evaluation; accuracy "
        f"on the whole test set after {work.rounds} rounds.",
        *([OUTSIDE] if not work.epochs else []),
        "",
        *header(*(name.format(other=other) for name in COLUMNS)),
    ]
    for label, side in sides.items():
        middle = median(side.seconds)
        accuracy = f"{side.accuracy:.3f}" if work.epochs else "untrained"
        outside = f"{median(side.outside):.4f}" if side.outside else ""
        ratio = median(base.seconds) / middle
        times = (f"{second:.4f}" for second in (middle, min(side.seconds), max(side.seconds)))
        lines.append(row(label, *times, outside, f"{ratio:.2f}", accuracy))
    if work.epochs:
        apart = max(abs(side.accuracy - base.accuracy) for side in sides.values())
        verdict = "equal" if apart < CLOSE else "NOT EQUAL"
        lines += ["", f"Accuracies are {verdict}: at most {apart:.3f} apart (limit {CLOSE})."]
    return lines


def main() -> None:
    """Measure what is named, or all."""
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("works", nargs="*", default=list(WORKS))
    options = parser.parse_args()
    for name in options.works:
        measure(name, options.data.resolve())


if __name__ == "__main__":
    main()
