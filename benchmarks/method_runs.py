"""The runs of the benchmark: what is to be run, one run and its measures, and the file of results.

A result is a line of JSON. Its key has the scale, the cell, the method, the tried setting, the seed
and the purpose: "tuning" for the choice of a setting, "final of n" for the page, with the number of
settings of which one was chosen.
"""

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from method_cells import METHODS, UNSEEN, Cell, Scale, words
from results import Found
from runs import run

from fl_app.client_app import app
from fl_app.evaluation.ranks import rounds_to, worst_decile
from fl_app.use.assign import by_certainty, by_descriptor, by_loss
from fl_app.use.run import load_run
from fl_app.use.scorer import Scorer, config_of

TUNING, FINAL = "tuning", "final"
TUNING_SEED = 1000
"""The seed of the runs that choose a setting; the page has none of it."""


@dataclass(frozen=True)
class Job:
    """One run: a cell, a method by name with one of its tried settings, a seed and a purpose."""

    scale: Scale
    cell: Cell
    method: str
    tried: int
    seed: int
    purpose: str

    @property
    def key(self) -> list[Any]:
        """What names it in the file of results."""
        return [
            self.scale.name, self.cell.name, self.method, self.tried, self.seed, self.purpose
        ]  # fmt: skip


def tuning_cell(cell: Cell) -> Cell:
    """Return the cell in which the settings for this one are chosen: full and static."""
    return Cell(cell.data, cell.shift, "full", "static")


def tuning(cells: Sequence[Cell], methods: Iterable[str], budget: int, scale: Scale) -> list[Job]:
    """Return the runs that choose a setting for each method; none if there is no choice."""
    places = sorted({tuning_cell(cell) for cell in cells}) if budget > 1 else []
    return [
        Job(scale, cell, method, tried, TUNING_SEED, TUNING)
        for cell in places
        for method in methods
        for tried in range(budget)
    ]


def chosen(found: Sequence[Found], job: Job, budget: int) -> int | None:
    """Return the tried setting with the best accuracy; None while its tuning is not complete.

    The first of equals; a run that failed is worse than any other.
    """
    if budget == 1:
        return 0
    cell, known = tuning_cell(job.cell).name, dict[int, float]()
    for each in found:
        scale, place, method, tried, _, purpose = each["key"]
        if (scale, place, method, purpose) == (job.scale.name, cell, job.method, TUNING):
            accuracy = each.get("accuracy")
            known[tried] = -1.0 if accuracy is None else accuracy
    if not set(range(budget)) <= known.keys():
        return None
    return max(range(budget), key=lambda tried: known[tried])


def final(budget: int) -> str:
    """Return the purpose of the runs of the page."""
    return f"{FINAL} of {budget}"


def finals(
    cells: Sequence[Cell],
    methods: Iterable[str],
    seeds: Iterable[int],
    scale: Scale,
    budget: int,
) -> list[Job]:
    """Return the runs of the page, seed by seed, so that each cell soon has a value."""
    named, purpose = list(methods), final(budget)
    return [
        Job(scale, cell, name, 0, seed, purpose)
        for seed in seeds
        for cell in cells
        for name in named
    ]


def short(result: Found) -> Found:
    """Return a result with six decimals: the file stands in the repository."""
    return {k: round(v, 6) if isinstance(v, float) else v for k, v in result.items()}


def measure(job: Job, data: Path, out: Path, folder: Path) -> Found:
    """Run a job in `folder`, which is removed, and return its measures, or its `error`.

    Seconds of clients and server are processor time, in the proportion of their wall-clock time:
    so they hardly depend on what else the machine does.
    """
    began, busy = time.perf_counter(), time.process_time()
    given = words(job.cell, job.method, job.tried, job.seed, scale=job.scale, data=data, out=out)
    try:
        records = run(given, folder, app)
        found = measures(records) | unseen(job, folder)
    except Exception as error:  # the other runs go on, and the page names this one
        found = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]}
    shutil.rmtree(folder, ignore_errors=True)
    wall, cpu = time.perf_counter() - began, time.process_time() - busy
    for name in {"client_s", "server_s"} & found.keys():
        found[name] *= cpu / wall
    return short({"key": job.key, **found, "wall_s": wall, "cpu_s": cpu})


def measures(records: Sequence[Mapping[str, Any]]) -> Found:
    """Return the measures of a run from the records of its rounds."""
    last, scored = records[-1], [each for each in records if each["accuracy"]]
    communities = last["communities"] or {}
    final = scored[-1]["accuracy"]
    return {
        "accuracy": final["mean"],
        "worst": worst_decile(list(final["clients"].values())),
        "ari": communities.get("ari"),
        "communities": communities.get("count"),
        "rounds": rounds_to([(each["round"], each["accuracy"]["mean"]) for each in scored]),
        "megabytes": sum(r["bytes"]["down"] + r["bytes"]["up"] for r in records) / 1e6,
        "client_s": sum(r["time"]["training_s"] for r in records),
        "server_s": sum(r["time"]["server_s"] for r in records),
    }


def unseen(job: Job, folder: Path) -> Found:
    """Return the mean accuracy of clients that never participated, with and without labels.

    With labels the model is chosen on their training samples, without by the inputs alone.
    """
    if not METHODS[job.method].places:
        return {"unseen": None, "unlabelled": None}
    finished = load_run(folder)
    scorer = Scorer(finished, config_of(folder, []))
    clients = int(scorer.config.population.options["clients"])
    without = by_descriptor if finished.serving["descriptors"] else by_certainty
    found: dict[str, list[float]] = {"unseen": [], "unlabelled": []}
    for client in range(clients - UNSEEN, clients):
        own = scorer.client(client).load(job.scale.rounds)
        placed = {
            "unseen": by_loss(scorer, own.train_images, own.train_labels).model,
            "unlabelled": without(scorer, own.train_images).model,
        }
        for way, model in placed.items():
            score = scorer.learner.score(scorer.vector(model), own.test_images, own.test_labels)
            if score.accuracy is not None:
                found[way].append(score.accuracy)
    return {way: float(np.mean(each)) if each else None for way, each in found.items()}


def remaining_s(found: Sequence[Found], jobs: Sequence[Job], workers: int) -> float | None:
    """Return how long `jobs` take, from the runs that are done; None if none is.

    A method without a run takes as long as the mean of all; `workers` run at once.
    """
    if not jobs:
        return 0.0
    times = dict[str, list[float]]()
    for each in found:
        if each["key"][0] in {job.scale.name for job in jobs} and "error" not in each:
            times.setdefault(each["key"][2], []).append(each["wall_s"])
    if not times:
        return None
    usual = float(np.mean([one for each in times.values() for one in each]))
    whole = sum(float(np.mean(times.get(job.method, [usual]))) for job in jobs)
    return whole / workers
