"""Two liars of twelve that keep every rule: what they tell beside models; writes told_lies.md.

    .venv/bin/python benchmarks/told_lies.py [--only pacfl flux] [--workers 2]

Runs as those of `benchmarks/lies.py`. The lies are valid replies, so that nothing rejects them:
false losses on held-out samples, false losses of offered models, false descriptors and weights, and
updates within `engine.largest_update`. Existing results in the output folder are not measured
again.
"""

import multiprocessing
import shutil
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from lies import CLEAN, CLIENTS, LIARS, SETTINGS, SILENT, TRAINING
from lying import NETWORK, TRAIN, Asked, Tell, run_among, silent, training_of
from results import append
from results import read as read_results
from summaries import summary_of
from table import REPO, arguments, header, row

from fl_app.evaluation.agreement import adjusted_rand
from fl_app.learner_reports import HELD_OUT, HELD_OUT_PARTS, LARGEST, OFFERED, PREFIX
from fl_app.params import from_bytes
from fl_app.records.history import FELL_BACK, UNDONE
from fl_app.strategies.flux import FARTHEST
from fl_app.types import Vector

PAGE = REPO / "docs" / "results" / "told_lies.md"
ROUNDS, SEEDS = 16, 2
HEAD = f"""# Two liars among twelve clients that keep every rule

Written by `benchmarks/told_lies.py`: the federation of [every lie](lies.md), with {ROUNDS} rounds
in which all clients participate, and two seeds. What the two liars send breaks no rule at first:
they tell false losses on held-out samples, false losses of models, false
descriptors and false weights, or send updates that are longer or turned around. `judged` is
`strategy.fallback=true`, and `both` is `graph.contrast=both` with it, which three methods have by
default. FLIC, late and hierarchical clustering and FLUX cluster after round 4; PACFL compares
classes.

A number is the accuracy that the ten loyal clients lost, compared with the run of the same seed
without a lie; a negative number is a gain. In the column `silent` the two never answer, which shows
the value of their data. `ARI` is that of the loyal clients' communities where a lie changes it;
`undone` is a split that the fallback undid only with the lie, and `fell back` are loyal clients
that got the common model; `named` are clients whose replies were rejected or failed, such as
updates that grow from round to round in a community of liars alone. One test image is 0.004.
"""
RANGES = {HELD_OUT: LARGEST, OFFERED: LARGEST, "loss_trajectory": LARGEST,
          "latent_moments": FARTHEST, "class_latent_moments": FARTHEST,
          "subspace": 1.0, "class_subspaces": 1.0}  # fmt: skip
"""The largest value of each report; of those that are not here it is 1, and the least is 0."""
JUDGED = "strategy.fallback=true"
BOTH = ("strategy.cluster_round=4", "graph.contrast=both", JUDGED)
METHODS: Mapping[str, tuple[str, ...]] = {
    "flic judged": ("strategy=flic", "strategy.cluster_round=4", JUDGED),
    "flic contrast judged": (
        "strategy=flic", "strategy.cluster_round=4", "graph.contrast=true", JUDGED,
    ),
    "flic both": ("strategy=flic", *BOTH),
    "late both": ("strategy=late", *BOTH),
    "hierarchical both": ("strategy=hierarchical", *BOTH),
    "cfl_clusters judged": ("strategy=cfl_clusters", JUDGED),
    "communities judged": ("strategy=communities", JUDGED),
    "dcfl judged": ("strategy=dcfl", JUDGED),
    "ifca judged": ("strategy=ifca", JUDGED),
    "feddrift": ("strategy=feddrift", "strategy.start=own", "strategy.delta=0.5"),
    "feddrift judged": ("strategy=feddrift", "strategy.start=own", "strategy.delta=0.5", JUDGED),
    "fedem": ("strategy=fedem", "network=mixture", "client.cohort=auto"),
    "fedrc": ("strategy=fedrc", "network=mixture", "client.cohort=auto"),
    "flux": ("strategy=flux", "strategy.cluster_round=4"),
    "flux judged": ("strategy=flux", "strategy.cluster_round=4", JUDGED),
    "pacfl": ("strategy=pacfl", "strategy.signature=classes", "strategy.threshold=20"),
    "kmeans": ("strategy=kmeans", "network=centroids"),
    "kfed": ("strategy=kfed", "network=centroids"),
}  # fmt: skip


def _vectors(asked: Asked, make: Any, *only: str) -> None:
    """Replace the vectors of the reports, or of those in `only`, by `make(name, values)`."""
    fields = asked.content["fitres.metrics"] if asked.kind == TRAIN else {}
    for field, told in dict(fields).items():
        name = field.removeprefix(PREFIX)
        if name != field and isinstance(told, bytes) and (not only or name in only):
            fields[field] = make(name, np.frombuffer(told, "<f4")).astype("<f4").tobytes()


def _compares(own: float, common: float) -> Tell:
    """Return the lie that the two models have these losses on held-out samples."""
    told = np.repeat([own, common], HELD_OUT_PARTS)
    return lambda asked: _vectors(asked, lambda name, values: told, HELD_OUT)


def _largest(asked: Asked) -> None:
    """Tell the largest value that each report may have, with signs in turn where there are any."""

    def make(name: str, values: Vector) -> Vector:
        signs = 1 - 2 * (np.arange(len(values)) % 2) if name in RANGES else np.ones(len(values))
        return 0.99 * RANGES.get(name, 1.0) * signs

    _vectors(asked, make)


def _random(asked: Asked) -> None:
    """Tell random values of the usual size, with signs where there are any."""
    draw = np.random.default_rng((asked.server_round, asked.place))

    def make(name: str, values: Vector) -> Vector:
        return np.abs(values).max() * draw.uniform(-1 if name in RANGES else 0, 1, len(values))

    _vectors(asked, make)


def _one_weight(asked: Asked) -> None:
    """Tell all weight or loss at one place, another one in each round."""

    def make(name: str, values: Vector) -> Vector:
        found = np.zeros(len(values))
        found[asked.server_round % len(values)] = RANGES.get(name, 1.0)
        return found

    _vectors(asked, make)


def _times(factor: float) -> Tell:
    """Return the lie of an update of so many times its length."""

    def tell(asked: Asked) -> None:
        if asked.kind == TRAIN:
            honest = from_bytes(asked.content["fitres.parameters"]["0"].data)[: asked.trainable]
            asked.send(lambda start: start + np.float32(factor) * (honest - start))

    return tell


LIES: dict[str, Tell] = {
    CLEAN: lambda asked: None,
    SILENT: silent,
    "own model is perfect": _compares(0.0, 1.0),
    "one model is perfect": _compares(1.0, 0.0),
    "largest reports": _largest,
    "zero reports": lambda asked: _vectors(asked, lambda name, values: np.zeros(len(values))),
    "random reports": _random,
    "one place in turn": _one_weight,
    "update x 100": _times(100.0),
    "update x -2": _times(-2.0),
}


Results = dict[tuple[str, int], dict[str, Any]]
"""What became of a method, by lie and seed."""


def overrides(method: str) -> list[str]:
    """Return the configuration of a method."""
    given = METHODS[method]
    training = training_of(given[0].removeprefix("strategy="), TRAINING)
    words = [*(each for each in SETTINGS if not each.startswith("rounds=")), *training]
    network = () if any(each.startswith("network=") for each in given) else NETWORK
    return [*words, f"rounds={ROUNDS}", "strategy.participation=1.0", *network, *given]


def measure(method: str, lie: str, out: Path, seed: int) -> dict[str, Any]:
    """Run a method among liars; return what became of the loyal clients."""
    folder = out / "runs" / f"{method.replace(' ', '-')}-{list(LIES).index(lie)}-{seed}"
    words, liars = [*overrides(method), f"seed={seed}"], () if lie == CLEAN else LIARS
    records = run_among(words, folder, liars, LIES[lie])
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    return {"method": method, "lie": lie, "seed": seed} | _found(records, folder)


def _found(records: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    loyal = [client for client in range(CLIENTS) if client not in LIARS]
    scores = records[-1]["accuracy"]["clients"]
    rows = summary_of(folder)["communities"]["assignment"] or {}
    placed = [client for client in loyal if str(client) in rows]
    events = [e for r in records for e in r["events"]]
    return {
        "rounds": len(records),
        "accuracy": float(np.mean([scores.get(str(client)) or 0.0 for client in loyal])),
        "ari": adjusted_rand(
            np.array([rows[str(client)] for client in placed]), np.array(placed) % 2
        ) if placed else None,
        "undone": any(e["kind"] == UNDONE for e in events),
        "fell": sorted(
            {c for e in events if e["kind"] == FELL_BACK for c in e["clients"]} & {*loyal}
        ),
        "named": sorted({int(c) for r in records for k in ("rejected", "failed") for c in r[k]}),
    }  # fmt: skip


def measure_all(method: str, out: Path) -> Results:
    """Return the results of a method by lie and seed; those in the output folder are taken."""
    log = out / f"{method.replace(' ', '-')}.jsonl"
    found = {(each["lie"], each["seed"]): each for each in read_results(log)}
    for lie, seed in product(LIES, range(SEEDS)):
        if (lie, seed) not in found:
            found[lie, seed] = measure(method, lie, out, seed)
            append(log, found[lie, seed])
    return found


def cell(lied: dict[str, Any], clean: dict[str, Any]) -> str:
    """Return what the loyal clients lost, and what became of their communities."""
    words = [f"{clean['accuracy'] - lied['accuracy']:+.3f}"]
    if lied["ari"] != clean["ari"] and lied["ari"] is not None:
        words.append(f"ARI {lied['ari']:.2f}")
    words += ["undone"] if lied["undone"] and not clean["undone"] else []
    words += [f"{len(lied['fell'])} fell back"] if len(lied["fell"]) > len(clean["fell"]) else []
    words += [f"{lied['rounds']} rounds"] if lied["rounds"] < clean["rounds"] else []
    words += [f"named {lied['named']}"] if lied["named"] else []
    return ", ".join(words)


def page(results: Mapping[str, Results]) -> list[str]:
    """Return the table: a row for every method and seed, a column for every lie."""
    lines = [HEAD, *header("method", "seed", "accuracy, ARI without a lie", *[*LIES][1:])]
    for (method, found), seed in product(results.items(), range(SEEDS)):
        clean = found[CLEAN, seed]
        ari = "" if clean["ari"] is None else f", {clean['ari']:.2f}"
        cells = (cell(found[lie, seed], clean) for lie in [*LIES][1:])
        lines.append(row(method, seed, f"{clean['accuracy']:.3f}{ari}", *cells))
    return lines


def main() -> None:
    """Run what is missing and write the page."""
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="+", default=[*METHODS])
    parser.add_argument("--out", type=Path, default=REPO / "outputs" / "told_lies")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        every = pool.map(measure_all, options.only, [options.out] * len(options.only))
        results = dict(zip(options.only, every, strict=True))
    lines = page(results)
    if options.only == [*METHODS]:
        PAGE.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
