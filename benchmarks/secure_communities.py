"""Communities under secure aggregation, from noisy sketches.

    .venv/bin/python benchmarks/secure_communities.py

Writes docs/results/secure_communities.md: runs of `experiment=secure_flic` on the digits, beside
FLIC and FedAvg without masks. docs/results/secure_communities.jsonl has one line per result; what
is there is not measured again. `--measured` writes the page alone.
"""

import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import NormalDist, mean, median

import numpy as np
from results import Found, by_case, write_page
from runs import run
from sklearn.metrics import adjusted_rand_score
from summaries import summary_of
from table import REPO, header, machine, row

from fl_app.client.accountant import update_noise
from fl_app.client_app import app
from fl_app.graph.communities import louvain
from fl_app.graph.noisy_sketches import sketch_communities, without_small
from fl_app.masking.sketch import noisy_direction, projected
from fl_app.records.history import read_rounds
from fl_app.rng import generator

PAGE = REPO / "docs" / "results" / "secure_communities.md"
CLIENTS, GROUPS, ROUNDS, AT, SEEDS, DRAWS = 20, 3, 18, 9, (0, 1, 2), 30
DELTA, SMALLEST = 1e-5, 5
EPSILONS = (1.0, 3.0, 10.0, 30.0, 100.0, float("inf"))
DIMENSIONS = (4, 8, 16, 64)
FEW, SHORT = 8, 4
COMMON = (f"population.clients={CLIENTS}", f"rounds={ROUNDS}", "records.evaluate_every=9",
          "strategy.participation=1")  # fmt: skip
SECURE = ("experiment=secure_flic", "masking.neighbours=8", f"strategy.cluster_round={AT}",
          "strategy.randomness=seed", "strategy.dimension=64")  # fmt: skip
PLAIN = "FLIC without masks"
WAYS = {
    "FedAvg without masks": ("strategy=fedavg",),
    PLAIN: ("strategy=flic", "graph.contrast=true", f"strategy.cluster_round={AT}"),
    **{
        f"secure_flic, epsilon {epsilon:g}": (*SECURE, f"strategy.epsilon={epsilon:g}")
        for epsilon in (float("inf"), 100.0)
    },
}
WHOLE = next(way for way in WAYS if way.endswith("inf"))
LIKE = (f"secure_flic, no groups, {AT} rounds", (
    *SECURE, "strategy.epsilon=inf", "population=iid", f"rounds={AT + 1}"))  # fmt: skip
OF_ENGINES = (
    f"population.clients={FEW}", "population.groups=2", f"rounds={SHORT}", "network=mlp",
    "records.evaluate_every=2", "tracking=none", "records.figures=false", "records.report=false",
    "strategy.participation=1", "strategy.cluster_round=3",
)  # fmt: skip
ON_ENGINES = {
    PLAIN: ("strategy=flic", "graph.contrast=true"),
    "secure_flic": ("experiment=secure_flic", "strategy.epsilon=inf", "strategy.smallest=3"),
}
ENGINES = ("inprocess", "simulation", "deployment")
HEAD = f"""# Communities under secure aggregation

Written by `benchmarks/secure_communities.py`, on {{machine}}, which
other work shared. The digits, {CLIENTS} clients in {GROUPS} groups that swap labels, a CNN, all
clients in every round. `secure_flic` asks for sketches in round {AT}; FLIC, with `graph.contrast`,
clusters after it. {ROUNDS} rounds, mean of the measured ones of the seeds
{", ".join(map(str, SEEDS))}; sketches of 64
numbers. With secure sums each client shares masks with 8 others. Bytes are those of models,
vectors, keys, shares and sketches, per client and round.
"""
OF_SKETCHES = f"""
## Which epsilon finds communities

From the cumulated updates of these clients after {AT - 1} rounds, without the last one: ARI of the
communities with the planted groups, the mean of {DRAWS} draws of the noise and {{seeds}} seeds.
Delta {DELTA:g}. The last two columns tell why small epsilons fail, whatever finds the communities:
the standard deviation of the noise on every number beside a direction of length 1, and the share
of clients that the best rule assigns to the wrong one of two opposite directions that it knows.
"""
OF_NONE = """
## Without groups

The share of draws in which clients of one distribution (`population=iid`) are split all the same.
"""
ON_THREE = f"""
## On three engines

{FEW} clients, {SHORT} rounds, an MLP, no noise, sketches in round 3, communities of 3 clients or
more. Seconds are the median of a round without its evaluation, on cores that other work shared.
"""


def cells() -> list[tuple[str, str, int]]:
    """Return the engine, the way and the seed of what is measured."""
    found: list[tuple[str, str, int]]
    found = [(engine, way, 0) for engine in ENGINES for way in ON_ENGINES]
    found += [("run", way, SEEDS[0]) for way in WAYS]
    found += [("run", LIKE[0], SEEDS[0])]
    return found + [("run", way, seed) for seed in SEEDS[1:] for way in (*WAYS, LIKE[0])]


def measure(kind: str, way: str, seed: int, out: Path) -> Found:
    """Run one federation; return its accuracy, communities, seconds and bytes."""
    folder = out / "run"
    shutil.rmtree(folder, ignore_errors=True)
    if kind == "run":
        words = (*COMMON, *(LIKE[1] if way == LIKE[0] else WAYS[way]), f"seed={seed}")
        records, clients = run(words, folder, app), CLIENTS
    else:
        words = (*ON_ENGINES[way], *OF_ENGINES, f"engine={kind}")
        command = [sys.executable, "-m", "fl_app", *words, f"hydra.run.dir={folder}"]
        subprocess.run(command, cwd=REPO, check=True)
        records, clients = read_rounds(folder), FEW
    scored = {r["round"]: r["accuracy"]["mean"] for r in records if r["accuracy"]}
    last = next((r["communities"] for r in reversed(records) if r["communities"]), None)
    spent = next((r["privacy"] for r in reversed(records) if r["privacy"]), None)
    found = {
        "accuracy": [scored.get(AT), scored[max(scored)]],
        "ari": _ari(folder) if last and kind == "run" else None,
        "communities": last["sizes"] if last else [CLIENTS],
        "spent": spent["epsilon"]["max"] if spent else None,
        "seconds": median(r["time"]["training_s"] + r["time"]["server_s"] for r in records),
        "up": mean(r["bytes"]["up"] for r in records) / clients,
        "down": mean(r["bytes"]["down"] for r in records) / clients,
        "skipped": sum("skipped" in e["kind"] for r in records for e in r["events"]),
    }
    if way in (WHOLE, LIKE[0]):
        found |= {"sketches": sketched(folder, seed, groups=way == WHOLE)}
    return found


def _ari(folder: Path) -> float | None:
    """Return the ARI of the clients' communities with their groups, which masks hide."""
    found = summary_of(folder)["communities"]["assignment"]
    planted = [int(client) % GROUPS for client in found]
    return float(adjusted_rand_score(planted, [*found.values()])) if found else None


def sketched(folder: Path, seed: int, *, groups: bool) -> dict[str, list[float]]:
    """Return ARI, or whether there is a split, for each draw by epsilon and dimension."""
    totals = [_total(folder / "clients" / str(each) / "own updates") for each in range(CLIENTS)]
    planted = [each % GROUPS for each in range(CLIENTS)]
    found = defaultdict(list)
    for epsilon in EPSILONS:
        noise = update_noise(epsilon, DELTA, rounds=1)
        for dimension in DIMENSIONS:
            for number in range(DRAWS):
                draw = generator(seed, purpose=f"sketch {epsilon} {dimension}", round=number)
                labels = _labels(totals, dimension, noise, draw, DRAWS * seed + number)
                score = adjusted_rand_score(planted, labels) if groups else float(labels.any())
                found[f"{epsilon:g} {dimension}"].append(score)
    return dict(found)


def _total(folder: Path) -> np.ndarray:
    """Return what a client had cumulated before it released its sketch."""
    saved = (np.load(folder / f"{number}.npz") for number in range(AT - 1, 0, -1))
    return next(each["total"] for each in saved)


def _labels(
    totals: Sequence[np.ndarray], dimension: int, noise: float, draw: np.random.Generator, seed: int
) -> np.ndarray:
    """Return the communities of one draw of projection and noise."""
    rows = [
        noisy_direction(projected(each, dimension=dimension, seed=seed), deviation=noise, draw=draw)
        for each in totals
    ]
    partition = partial(louvain, resolution=1.0, seed=0, backend="python-louvain")
    found = sketch_communities(np.stack(rows), deviation=noise, partition=partition)
    return without_small(np.stack(rows), found, smallest=SMALLEST)


def page(found: Sequence[Found]) -> list[str]:
    """Return the tables of what is measured."""
    known = by_case(found)
    lines = [HEAD.format(machine=machine())]
    lines += header("method", "accuracy before", "accuracy", "ARI", "communities, by seed",
                    "epsilon spent", "kB down", "kB up", "s a round")  # fmt: skip
    for way in WAYS:
        some = [known["run", way, seed] for seed in SEEDS if ("run", way, seed) in known]
        if some:
            lines.append(_row(way, some))
    whole = [each["sketches"] for each in found if each["case"][1] == WHOLE]
    lines += [OF_SKETCHES.format(seeds=len(whole)), *_sketches(whole, bound=True)]
    none = [each["sketches"] for each in found if each["case"][1] == LIKE[0]]
    lines += [OF_NONE, *_sketches(none, bound=False), ON_THREE]
    lines += header("engine", "method", "accuracy", "communities", "s a round", "kB down", "kB up")
    for kind, way, seed in cells():
        each = known.get((kind, way, seed))
        if kind != "run" and each:
            cells_of = f"{each['accuracy'][1]:.4f}", each["communities"], f"{each['seconds']:.2f}"
            lines.append(row(kind, way, *cells_of, _kb([each], "down"), _kb([each], "up")))
    missing = [", ".join(map(str, each)) for each in cells() if each not in known]
    return [*lines, *(["", f"Not measured yet: {'; '.join(missing)}."] if missing else [])]


def _row(way: str, some: Sequence[Found]) -> str:
    """Return the line of a method, the means over its seeds."""
    scores = [
        f"{mean(values):.3f}" if None not in values else ""
        for values in ([e["accuracy"][0] for e in some], [e["accuracy"][1] for e in some],
                       [e["ari"] for e in some])
    ]  # fmt: skip
    sizes = "; ".join(", ".join(map(str, each["communities"])) for each in some)
    spent = some[0]["spent"]
    more = _kb(some, "down"), _kb(some, "up"), f"{median(e['seconds'] for e in some):.2f}"
    return row(way, *scores, sizes, "" if spent is None else f"{float(spent):.4g}", *more)


def _sketches(found: Sequence[dict[str, list[float]]], *, bound: bool) -> list[str]:
    """Return the table of epsilons and dimensions."""
    more = ("noise", "wrong at best") if bound else ()
    lines = header("epsilon", *(f"{q} numbers" for q in DIMENSIONS), *more)
    for epsilon in EPSILONS if found else ():
        every = [[x for each in found for x in each[f"{epsilon:g} {q}"]] for q in DIMENSIONS]
        noise = update_noise(epsilon, DELTA, rounds=1)
        wrong = NormalDist().cdf(-1 / noise) if noise else 0.0
        why = (f"{noise:.2f}", f"{wrong:.1%}") if bound else ()
        lines.append(row(f"{epsilon:g}", *(f"{mean(scores):.2f}" for scores in every), *why))
    return lines


def _kb(some: Sequence[Found], name: str) -> str:
    return f"{mean(each[name] for each in some) / 1000:.1f}"


if __name__ == "__main__":
    write_page(__doc__, PAGE, cells, measure, page)
