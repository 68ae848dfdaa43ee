"""IFCA with and without secure aggregation; writes docs/results/secure_aggregation.md.

    .venv/bin/python benchmarks/secure.py

Runs of `experiment=secure_ifca` on the digits. docs/results/secure_aggregation.jsonl has one line
per result; what is there is not measured again. `--measured` writes the page alone.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from flwr.app import Context, Message
from results import Found, by_case, write_page
from runs import run
from table import REPO, header, machine, row

from fl_app.client_app import app
from fl_app.masking.stages import RECORD, STAGE, VECTOR
from fl_app.records.history import read_rounds

PAGE = REPO / "docs" / "results" / "secure_aggregation.md"
CLIENTS, ROUNDS, LOST = 20, 15, 3
FEW, SHORT, COSTED = 6, 2, 3
WORDS = (
    "experiment=secure_ifca", f"population.clients={CLIENTS}", "population.groups=2",
    "population.train_samples=60", f"rounds={ROUNDS}", "records.evaluate_every=5",
)  # fmt: skip
OF_ENGINES = (
    "experiment=secure_ifca", f"population.clients={FEW}", "population.groups=2",
    "population.train_samples=60", f"rounds={SHORT}", "records.evaluate_every=1", "seed=4",
    "tracking=none", "records.figures=false", "records.report=false",
)  # fmt: skip
ANY_SIZE = "masking.smallest=1"
"""With six clients a model may have few."""
PLAIN = "without masks"
WAYS = {
    PLAIN: ("masking=none",),
    "secagg": (),
    "secagg, `smallest=1`": ("masking.smallest=1",),
    "secagg, `neighbours=8`": ("masking.neighbours=8",),
    f"secagg, {LOST} clients lost": (),
}
HEAD = f"""# Secure aggregation

Written by `benchmarks/secure.py`, on {{machine}}, which
other work shared. IFCA with two models on the digits, {CLIENTS} clients in two groups that swap
labels, 60 samples each, {ROUNDS} rounds, a CNN. `smallest=1` forms the sum of every model at once,
the default counts the choices first and trains no model that fewer than three clients chose. With
`neighbours=8` each client shares masks with 8 others instead of 19. In the last row {LOST} clients
fail in each round when their masked vector is due, after their shares were sent. Bytes are those
of models, vectors, keys and shares, per client and round of training. Seed 0.
"""
COSTS = f"""
## Processor time

Of all clients and the server together, in one process, for a round of training and an evaluation:
the mean of {COSTED} rounds with one epoch each. Beside it how many clients chose each model in the
first of them.
"""


def cells() -> list[tuple[str, str, int]]:
    """Return the engine, the way and the seed of what is measured."""
    found = [(engine, way, 0) for engine in ("inprocess", "costs") for way in WAYS]
    engines = ("inprocess", "simulation", "deployment")
    return found + [(f"{engine}, small", way, 4) for engine in engines for way in (PLAIN, "secagg")]


def losing(message: Message, context: Context) -> Message:
    """Answer as a client, but fail in place of a masked vector of training if it is one's turn."""
    record = message.content.config_records.get(RECORD)
    due = record is not None and record[STAGE] == VECTOR
    turn = int(context.node_config["partition-id"]) + int(message.metadata.group_id or 0) * LOST
    if due and message.metadata.message_type == "train" and turn % CLIENTS < LOST:
        raise RuntimeError("lost on purpose")
    return app(message, context)


def measure(engine: str, way: str, seed: int, out: Path) -> Found:
    """Run one federation; return its accuracy, seconds and bytes."""
    folder = out / "run"
    shutil.rmtree(folder, ignore_errors=True)
    began = process_time()
    if engine in ("inprocess", "costs"):
        words, clients = [*WORDS, *WAYS[way], f"seed={seed}"], CLIENTS
        if engine == "costs":
            words += ["client.epochs=1", f"rounds={COSTED}", "records.evaluate_every=1"]
        records = run(words, folder, losing if "lost" in way else app)
    else:
        name = engine.partition(",")[0]
        command = [sys.executable, "-m", "fl_app", *OF_ENGINES, *WAYS[way], f"engine={name}"]
        command += [ANY_SIZE] if way != PLAIN else []
        subprocess.run([*command, f"hydra.run.dir={folder}"], cwd=REPO, check=True)
        records, clients = read_rounds(folder), FEW
    scored = [each["accuracy"]["mean"] for each in records if each["accuracy"]]
    return {
        "accuracy": scored[-1],
        "loss": records[-1]["train_loss"],
        "cpu": (process_time() - began) / len(records),
        "seconds": median(r["time"]["training_s"] + r["time"]["server_s"] for r in records),
        "choices": records[0]["notes"].get("clients_by_model"),
        "up": median(r["bytes"]["up"] for r in records) / clients,
        "down": median(r["bytes"]["down"] for r in records) / clients,
        "skipped": sum(e["kind"] == "skipped" for r in records for e in r["events"]),
    }


def page(found: list[Found]) -> list[str]:
    """Return the tables of what is measured."""
    known = by_case(found)
    lines = [HEAD.format(machine=machine())]
    lines += header("IFCA", "accuracy", "training loss", "kB down", "kB up", "skipped rounds")
    for way, each in _of("inprocess", known):
        scores = f"{each['accuracy']:.4f}", f"{each['loss']:.4f}"
        lines.append(row(way, *scores, *_bytes(each), each["skipped"]))
    lines += [COSTS, *header("IFCA", "processor s a round", "clients by model, first round")]
    for way, each in _of("costs", known):
        lines.append(row(way, f"{each['cpu']:.2f}", each["choices"] or ""))
    lines += [
        "",
        "## On three engines",
        "",
        f"{FEW} clients, {SHORT} rounds, seed 4, with `{ANY_SIZE}`. Seconds are the median of a",
        "round without its evaluation, on cores that other work shared.",
        "",
    ]
    lines += header("engine", "IFCA", "accuracy", "training loss", "s a round", "kB down", "kB up")
    for engine in ("inprocess", "simulation", "deployment"):
        for way, each in _of(f"{engine}, small", known, seed=4):
            scores = f"{each['accuracy']:.6f}", f"{each['loss']:.6f}", f"{each['seconds']:.2f}"
            lines.append(row(engine, way, *scores, *_bytes(each)))
    missing = [
        f"{engine}, {way}" for engine, way, seed in cells() if (engine, way, seed) not in known
    ]
    return [*lines, *(["", f"Not measured yet: {'; '.join(missing)}."] if missing else [])]


def _of(engine: str, known: dict[tuple[Any, ...], Found], seed: int = 0) -> list[tuple[str, Found]]:
    """Return what is measured of an engine, by way."""
    return [(w, known[engine, w, seed]) for w in WAYS if (engine, w, seed) in known]


def _bytes(each: Found) -> tuple[str, str]:
    return f"{each['down'] / 1000:.1f}", f"{each['up'] / 1000:.1f}"


if __name__ == "__main__":
    write_page(__doc__, PAGE, cells, measure, page)
