"""Two liars among twelve clients, every lie against every method; writes docs/results/lies.md.

    .venv/bin/python benchmarks/lies.py [--only fedavg flic] [--workers 2]

Real in-process runs on the embedded digits, with 12 clients in two groups that swap labels. The
methods are those of conf/strategy, some also with `rule=median`. The output folder has one line
per result; existing results are not measured again.
"""

import argparse
import json
import multiprocessing
import shutil
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from lying import INTRODUCE, LIES, TWICE, Asked, LyingApp, Tell, answers_twice
from runs import run
from table import REPO, header, row

from fl_app.client_app import app
from fl_app.config import choices, load, option
from fl_app.records.checkpoint import read
from fl_app.wiring import initial_model

PAGE = REPO / "docs" / "results" / "lies.md"
CLIENTS, LIARS, MOST = 12, (1, 5), 0.05
SETTINGS = (
    "data=digits", "population=label_swap", f"population.clients={CLIENTS}",
    "population.groups=2", "population.train_samples=100", "population.test_samples=28",
    "client.epochs=3", "client.batch_size=20", "client.learning_rate=0.1", "client.momentum=0.8",
    "rounds=10", "records.evaluate_every=2", "records.checkpoint_every=4",
    "graph.look_ahead_every=0", "client.cohort=fused", f"client.cohort_size={CLIENTS}",
)  # fmt: skip
NETWORK = ("network=small_cnn", "network.width=0.5")
BY_MEDIAN = " rule=median"
GIVEN = {"participation": 1.0, "cluster_round": 5, "malicious": 2}
"""Of a method, where it has such a setting."""
CLEAN, SILENT, OPPOSITE = "no lie", "silent", "w and -w"
CHANCY, SEEDS = ("ifca", f"ifca{BY_MEDIAN}"), 4
"""Methods whose results are means over so many seeds: see BY_SEED."""
BY_SEED = """
## IFCA by seed

Accuracy of the ten loyal clients at the end. The first rounds of IFCA decide which clients share a
model, and small differences decide these rounds. The columns of IFCA above are therefore means over
these seeds; the other methods have seed 0. At seed 0 both liars are in one group of six, so that
the mean of its models contains two lies; `strategy.rule=median` bounds their effect.
"""
HEAD = f"""# Two liars among twelve clients, every lie against every method

Written by `benchmarks/lies.py`: the embedded digits, {CLIENTS} clients with 100 samples each in two
groups that swap two labels each, two of them liars in every round, 10 rounds in which all clients
participate. FLIC, late and hierarchical cluster after round 5; Krum, multi-Krum and Bulyan assume
two liars; the other methods have their defaults; federated k-means has `network=centroids`. If a
lie has several values, they are used in turn; `w` is the model that the liars received.

A number is the accuracy that the ten loyal clients lost, compared with the run of the same seed
without a lie; a negative number is a gain. In the row `{SILENT}` the two liars never answer, which
shows the value of their data; a rejected lie has the same cost. The letter before the number shows
what happened to the liars: n, both were recorded in `rounds.jsonl` as rejected or failed; h,
neither was, because their replies were valid. A cell held if the run completed all its rounds, the
loyal clients lost no more than {MOST:g}, no loyal client was recorded, and the checkpoint can be
read and is finite; the other cells are bold, with the reason. Accuracy is measured on 280 images;
one image is 0.004.
"""


def _never(asked: Asked) -> None:
    if asked.kind != INTRODUCE:
        raise RuntimeError("silent")


Results = dict[str, list[list[dict[str, Any]]]]
"""Of each method, by case and seed."""
CASES: dict[str, Tell] = {CLEAN: lambda asked: None, SILENT: _never} | LIES


def overrides(method: str) -> list[str]:
    """Return the configuration of a method."""
    method, _, rule = method.partition(" ")
    target = option(f"strategy={method}")
    words = [*SETTINGS, f"strategy={method}", *([f"strategy.{rule}"] if rule else [])]
    words += ["network=centroids"] if target.resolve().clusters_points else NETWORK
    given = {name: value for name, value in GIVEN.items() if name in target.options}
    return words + [f"strategy.{name}={value}" for name, value in given.items()]


@lru_cache(maxsize=1)
def _trainable(method: str) -> int:
    return int(initial_model(load(overrides(method)))[0].direction.stop)


def measure(method: str, lie: str, out: Path, seed: int = 0) -> dict[str, Any]:
    """Run a method among liars; return what became of it."""
    folder = out / "runs" / f"{method.replace(' ', '-')}-{list(CASES).index(lie)}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    liars = () if lie == CLEAN else LIARS
    lying = LyingApp(app, liars, CASES[lie], _trainable(method))
    found: dict[str, Any] = {"method": method, "lie": lie, "error": None}
    with warnings.catch_warnings(), answers_twice(LIARS) if lie == TWICE else nullcontext():
        warnings.simplefilter("ignore")
        try:
            records = run([*overrides(method), f"seed={seed}"], folder, lying)
        except Exception as error:
            return found | {"error": f"{type(error).__name__}: {error}"}
    named = {int(who) for r in records for key in ("rejected", "failed") for who in r[key]}
    scores = [record["accuracy"] for record in records if record["accuracy"]]
    loyal = [scores[-1]["clients"].get(str(c)) for c in range(CLIENTS) if c not in LIARS]
    return found | {
        "rounds": len(records),
        "named": sorted(named),
        "accuracy": float(np.mean([each or 0.0 for each in loyal])),
        "finite": _finite(folder),
    }


def _finite(folder: Path) -> bool:
    arrays = read(folder / "checkpoint").arrays.values()
    return all(np.isfinite(array).all() for array in arrays if array.dtype.kind == "f")


def measure_all(method: str, out: Path) -> list[list[dict[str, Any]]]:
    """Return the results of a method by case and seed; those in the output folder are taken."""
    log = out / f"{method.replace(' ', '-')}.jsonl"
    log.parent.mkdir(parents=True, exist_ok=True)
    lines = log.read_text().splitlines() if log.exists() else []
    found = {(each["lie"], each.get("seed", 0)): each for each in map(json.loads, lines)}
    seeds = range(SEEDS if method in CHANCY else 1)
    for lie, seed in product(CASES, seeds):
        if (lie, seed) not in found:
            found[lie, seed] = measure(method, lie, out, seed) | {"seed": seed}
            with log.open("a") as file:
                file.write(json.dumps(found[lie, seed]) + "\n")
            print(json.dumps(found[lie, seed]), flush=True)
    return [[found[lie, seed] for seed in seeds] for lie in CASES]


def together(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the runs of all seeds as one: the mean accuracy, and the worst of all else."""
    return found[0] | {
        "error": next((each["error"] for each in found if each["error"]), None),
        "accuracy": float(np.mean([each.get("accuracy", 0.0) for each in found])),
        "rounds": min(each.get("rounds", 0) for each in found),
        "finite": all(each.get("finite", False) for each in found),
        "named": sorted({client for each in found for client in each.get("named", ())}),
    }


def by_seed(results: Results) -> list[str]:
    """Return a table of the methods with several seeds."""
    columns = [(method, lie) for method in CHANCY for lie in (CLEAN, SILENT, OPPOSITE)]
    lines = [BY_SEED, *header("seed", *(f"{method}, {lie}" for method, lie in columns))]
    for seed in range(SEEDS):
        found = [results[method][list(CASES).index(lie)][seed] for method, lie in columns]
        lines.append(row(seed, *(f"{each['accuracy']:.3f}" for each in found)))
    runs, above = single_runs(results)
    return [*lines, "", f"Of the {runs} single runs behind these means {len(above)} lost more than "
            f"{MOST:g}{': ' if above else ''}{'; '.join(above)}."]  # fmt: skip


def single_runs(results: Results) -> tuple[int, list[str]]:
    """Return how many runs with a lie the means are of, and those that lost too much alone."""
    runs = [
        (f"{method}, {lie}, seed {seed}", clean["accuracy"] - found["accuracy"])
        for method in CHANCY
        for lie, all_seeds in zip(CASES, results[method], strict=True)
        for seed, (clean, found) in enumerate(zip(results[method][0], all_seeds, strict=True))
        if lie != CLEAN
    ]
    return len(runs), [f"{name} {loss:+.3f}" for name, loss in runs if loss > MOST]


def cell(found: dict[str, Any], without: dict[str, Any]) -> tuple[str, float, bool]:
    """Return what a table says of a run, what the loyal lost, and whether it held."""
    if found["error"]:
        return f"**{found['error'][:60]}**", 1.0, False
    loss = without["accuracy"] - found["accuracy"]
    named = set(found["named"])
    who = "n" if named >= set(LIARS) else "h" if not named else f"n{sorted(named)}"
    text = f"{who} {loss:+.3f}".replace("+0.000", "0").replace("-0.000", "0")
    faults = [f"{found['rounds']} rounds"] if found["rounds"] != without["rounds"] else []
    faults += [] if found["finite"] else ["checkpoint not finite"]
    held = loss <= MOST and not faults and named <= set(LIARS)
    return (text if held else f"**{' '.join([text, *faults])}**"), loss, held


def page(measured: Results) -> list[str]:
    """Return the table: a row for every lie, a column for every method."""
    results = {name: [together(each) for each in found] for name, found in measured.items()}
    lines = [HEAD, *header("lie", *results)]
    clean = {method: found[0]["accuracy"] for method, found in results.items()}
    lines.append(row("accuracy without a lie", *(f"{each:.3f}" for each in clean.values())))
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
    named = choices("strategy")
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
    parser = argparse.ArgumentParser(description=__doc__)
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
