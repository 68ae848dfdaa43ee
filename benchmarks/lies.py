"""Two liars among twelve clients, every lie against every method; writes docs/results/lies.md.

    .venv/bin/python benchmarks/lies.py [--only fedavg flic] [--workers 2]

Real in-process runs on the embedded digits, with 12 clients in two groups that swap labels. The
methods are those of conf/strategy, some also with `rule=median`. The output folder has one line
per result; existing results are not measured again.
"""

import json
import multiprocessing
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from lying import LIES, TWICE, Tell, answers_twice, run_among, silent, training_of, words_of
from results import append
from results import read as read_results
from table import REPO, arguments, header, row

from fl_app.composition import choices
from fl_app.config import option
from fl_app.records.checkpoint import read

PAGE = REPO / "docs" / "results" / "lies.md"
CLIENTS, LIARS, MOST = 12, (1, 5), 0.05
ROUNDS = 10
SETTINGS = (
    "data=digits", "population=label_swap", f"population.clients={CLIENTS}",
    "population.groups=2", "population.train_samples=100", "population.test_samples=28",
    f"rounds={ROUNDS}", "records.evaluate_every=2", "records.checkpoint_every=4",
    "graph.look_ahead_every=0",
)  # fmt: skip
TRAINING = (
    "client.epochs=3", "client.batch_size=20", "client.learning_rate=0.1", "client.momentum=0.8",
    "client.cohort=fused", f"client.cohort_size={CLIENTS}",
)  # fmt: skip
BY_MEDIAN = " rule=median"
GIVEN = {"participation": 1.0, "cluster_round": 5, "malicious": 2}
"""Of a method, where it has such a setting."""
CLEAN, SILENT, OPPOSITE = "no lie", "silent", "w and -w"
CHANCY, SEEDS, LONGER = ("ifca", f"ifca{BY_MEDIAN}"), 4, 20
"""Methods that are measured with so many seeds and rounds: see BY_SEED."""
BY_SEED = f"""
## IFCA by seed

Accuracy of the ten loyal clients after {ROUNDS} and after {LONGER} rounds of the same runs. The
first rounds of IFCA decide which clients share a model, and small differences decide these rounds;
after {ROUNDS} rounds IFCA still learns, and a lie that only delays it looks like a loss. IFCA
therefore has {LONGER} rounds and {SEEDS} seeds, and its columns above show the worst seed; the
other methods have seed 0. At seed 0 both liars are in one group of six, so that the mean of its
models contains two lies; `strategy.rule=median` bounds their effect.
"""
HEAD = f"""# Two liars among twelve clients, every lie against every method

Written by `benchmarks/lies.py`: the embedded digits, {CLIENTS} clients with 100 samples each in two
groups that swap two labels each, two of them liars in every round, {ROUNDS} rounds in which all
clients participate. FLIC, late and hierarchical cluster after round 5; Krum, multi-Krum and Bulyan
assume two liars; the other methods have their defaults; federated k-means has `network=centroids`.
IFCA has {LONGER} rounds and {SEEDS} seeds, of which the worst is shown (reasons below the table).
If a lie has several values, they are used in turn; `w` is the model that the liars received.

A number is the accuracy that the ten loyal clients lost, compared with the run of the same seed
without a lie; a negative number is a gain. In the row `{SILENT}` the two liars never answer, which
shows the value of their data; a rejected lie has the same cost. The letter before the number shows
what happened to the liars: n, both were recorded in `rounds.jsonl` as rejected or failed; h,
neither was, because their replies were valid. A cell held if the run completed all its rounds, the
loyal clients lost no more than {MOST:g}, no loyal client was recorded, and the checkpoint can be
read and is finite; the other cells are bold, with the reason. Accuracy is measured on 280 images;
one image is 0.004.
"""


Seeds = list[dict[str, Any]]
"""The results of one method and lie, by seed."""
Results = dict[str, list[Seeds]]
"""Of each method, by case."""
CASES: dict[str, Tell] = {CLEAN: lambda asked: None, SILENT: silent} | LIES


def overrides(method: str) -> list[str]:
    """Return the configuration of a method."""
    training = training_of(method.partition(" ")[0], TRAINING)
    return [*SETTINGS, *training, *words_of(method, GIVEN)]


def measure(method: str, lie: str, out: Path, seed: int = 0) -> dict[str, Any]:
    """Run a method among liars; return what became of it."""
    folder = out / "runs" / f"{method.replace(' ', '-')}-{list(CASES).index(lie)}-{seed}"
    liars = () if lie == CLEAN else LIARS
    length = [f"rounds={LONGER}"] if method in CHANCY else []
    words = [*overrides(method), *length, f"seed={seed}"]
    found: dict[str, Any] = {"method": method, "lie": lie, "error": None}
    found |= {"rounds": 0, "named": [], "accuracy": 0.0, "midway": 0.0, "finite": False}
    with answers_twice(LIARS) if lie == TWICE else nullcontext():
        try:
            records = run_among(words, folder, liars, CASES[lie])
        except Exception as error:
            return found | {"error": f"{type(error).__name__}: {error}"}
    named = {int(who) for r in records for key in ("rejected", "failed") for who in r[key]}
    return found | {
        "rounds": len(records),
        "named": sorted(named),
        "accuracy": _loyal(records[-1]),
        "midway": _loyal(records[min(len(records), ROUNDS) - 1]),
        "finite": _finite(folder),
    }


def _loyal(record: dict[str, Any]) -> float:
    """Return the accuracy of the loyal clients in an evaluated round."""
    clients = record["accuracy"]["clients"]
    return float(np.mean([clients.get(str(c)) or 0.0 for c in range(CLIENTS) if c not in LIARS]))


def _finite(folder: Path) -> bool:
    arrays = read(folder / "checkpoint").arrays.values()
    return all(np.isfinite(array).all() for array in arrays if array.dtype.kind == "f")


def measure_all(method: str, out: Path) -> list[Seeds]:
    """Return the results of a method by case and seed; those in the output folder are taken."""
    log = out / f"{method.replace(' ', '-')}.jsonl"
    found = {(each["lie"], each.get("seed", 0)): each for each in read_results(log)}
    seeds = range(SEEDS if method in CHANCY else 1)
    for lie, seed in product(CASES, seeds):
        if (lie, seed) not in found:
            found[lie, seed] = measure(method, lie, out, seed) | {"seed": seed}
            append(log, found[lie, seed])
            print(json.dumps(found[lie, seed]), flush=True)
    return [[found[lie, seed] for seed in seeds] for lie in CASES]


def by_seed(results: Results) -> list[str]:
    """Return a table of the methods with several seeds."""
    columns = list(product(CHANCY, (CLEAN, SILENT, OPPOSITE), (ROUNDS, LONGER)))
    names = (f"{method}, {lie}, {rounds}" for method, lie, rounds in columns)
    lines = [BY_SEED, *header("seed", *names)]
    for seed in range(SEEDS):
        found = [
            results[method][list(CASES).index(lie)][seed][
                "midway" if rounds == ROUNDS else "accuracy"
            ]
            for method, lie, rounds in columns
        ]
        lines.append(row(seed, *(f"{each:.3f}" for each in found)))
    return lines


def cell(found: Seeds, without: Seeds) -> tuple[str, float, bool]:
    """Return what a table says of the runs with a lie, what the loyal lost, and whether it held."""
    error = next((each["error"] for each in found if each["error"]), None)
    if error:
        return f"**{error[:60]}**", 1.0, False
    losses = [
        clean["accuracy"] - each["accuracy"] for clean, each in zip(without, found, strict=True)
    ]
    loss, named = max(losses), {client for each in found for client in each["named"]}
    who = "n" if named >= set(LIARS) else "h" if not named else f"n{sorted(named)}"
    text = f"{who} {loss:+.3f}".replace("+0.000", "0").replace("-0.000", "0")
    rounds = min(each["rounds"] for each in found)
    faults = [f"{rounds} rounds"] if rounds != without[0]["rounds"] else []
    faults += [] if all(each["finite"] for each in found) else ["checkpoint not finite"]
    held = loss <= MOST and not faults and named <= set(LIARS)
    return (text if held else f"**{' '.join([text, *faults])}**"), loss, held


def page(results: Results) -> list[str]:
    """Return the table: a row for every lie, a column for every method."""
    lines = [HEAD, *header("lie", *results)]
    clean = (np.mean([each["accuracy"] for each in found[0]]) for found in results.values())
    lines.append(row("accuracy without a lie", *(f"{each:.3f}" for each in clean)))
    largest, held, cells = dict.fromkeys(results, -1.0), 0, 0
    for place, lie in enumerate(CASES):
        if lie == CLEAN:
            continue
        texts = []
        for method, found in results.items():
            text, loss, sound = cell(found[place], found[0])
            texts.append(text)
            largest[method] = max(largest[method], loss)
            held, cells = held + sound, cells + 1
        lines.append(row(lie, *texts))
    lines.append(row("largest loss", *(f"{each:+.3f}" for each in largest.values())))
    return [*lines, "", f"{held} of {cells} cells held."]


def methods() -> list[str]:
    """Return the methods of conf/strategy, and those with a mean that can be a median."""
    every = choices("strategy")
    named = [name for name in every if not option(f"strategy={name}").resolve().needs_masks]
    rules = {name: option(f"strategy={name}").options.get("rule") for name in named}
    return [*named, *(f"{name}{BY_MEDIAN}" for name, rule in rules.items() if rule == "mean")]


def gather(names: Iterable[str], out: Path, workers: int) -> Results:
    """Measure methods, some at a time, each in a process of its own."""
    names = list(names)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        found = list(pool.map(measure_all, names, [out] * len(names)))
    return dict(zip(names, found, strict=True))


def main() -> None:
    """Run what is missing and write the page."""
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="+", default=methods())
    parser.add_argument("--out", type=Path, default=REPO / "outputs" / "lies")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    results = gather(options.only, options.out, options.workers)
    lines = page(results)
    if set(CHANCY) <= set(results):
        lines += by_seed(results)
    if options.only == methods():
        PAGE.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
