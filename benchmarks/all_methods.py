"""All methods in one benchmark; writes docs/results/benchmark.md, .csv and .html.

    .venv/bin/python benchmarks/all_methods.py --data <folder> [--cells 'mnist/*/full/static']
        [--methods flux flic] [--seeds 0 1 2] [--budget 3] [--workers 2]
        [--minutes 60] [--quick] [--measured] [--commands]

`--data` contains MNIST, Fashion-MNIST, and CIFAR-10 as torchvision stores it or as
`cifar10-imagefolder.tar.gz` (see benchmarks/problems.py). A cell is <data>/<shift>/<participation>/
<change>. `--budget` settings are tried for each method on a seed of their own, the same number for
all. docs/results/benchmark.jsonl has one line per run; what is there is not run again, so that a
benchmark of many hours continues where it was interrupted, also on another machine. `--minutes`
is the time after which no run is started. `--measured` runs nothing and writes the pages of what
is there; `--commands` prints the command of each run, to repeat one by hand;
with `--data` it has the folder in it.
`--quick` uses small federations of few rounds to try the command; its results and its pages go to
the output folder.
"""

import argparse
import math
import os
import shlex
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from method_cells import BUDGET, IMAGES, METHODS, NIGHT, QUICK, TABLE, Cell, Scale, cells, words
from method_page import NAME, write_pages
from method_runs import Job, chosen, finals, measure, remaining_s, tuning
from problems import ARCHIVE, unpack
from results import Found, append, read
from table import REPO, arguments

PAGES = REPO / "docs" / "results"


def prepare(chosen_cells: Sequence[Cell], data: Path, out: Path) -> None:
    """Write the synthetic table, and the images of CIFAR-10's archive, if cells need them."""
    if any(cell.data == "table" for cell in chosen_cells) and not (out / TABLE).exists():
        write_table(out / TABLE)
    archive = data / ARCHIVE
    wanted = any(cell.data == "cifar10" for cell in chosen_cells) and archive.exists()
    if wanted and not (out / IMAGES).exists():
        unpack(archive, out / IMAGES)


def write_table(folder: Path) -> None:
    """Write a table of 12,000 rows with 20 columns and ten classes, by scikit-learn."""
    from pandas import DataFrame
    from sklearn.datasets import make_classification

    points, labels = make_classification(
        12_000, 20, n_informative=12, n_redundant=4, n_classes=10, n_clusters_per_class=1,
        class_sep=1.5, random_state=0,
    )  # fmt: skip
    folder.mkdir(parents=True)
    table = DataFrame(points, columns=[f"x{column}" for column in range(points.shape[1])])
    table.assign(**{"class": labels}).to_csv(folder / "points.csv", index=False)


def commands(
    jobs: Sequence[Job], found: Sequence[Found], budget: int, out: Path, data: Path | None = None
) -> list[str]:
    """Return the command of each run, with its first setting if none is chosen yet.

    Without the folder `data` the commands have `<data>` in its place.
    """
    told, folder = [], Path("<data>") if data is None else data.resolve()
    for job in jobs:
        tried = chosen(found, job, budget) or 0
        given = words(job.cell, job.method, tried, job.seed, scale=job.scale, data=folder, out=out)
        plain = [each.replace("'<data>'", "<data>") for each in given]
        command = shlex.join(["fl-app", *plain])
        told.append(command.replace("'data.root=<data>'", "data.root=<data>"))
    return told


def play(
    jobs: Sequence[Job], log: Path, out: Path, data: Path, workers: int, until: float = math.inf
) -> None:
    """Run jobs at once in `workers` processes; append each result as soon as it is there.

    None is started later than `until`, a time of the monotonic clock.
    """
    waiting, done = list(jobs), 0
    context = get_context("spawn")  # threads of torch do not survive a fork
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        under_way: dict[Future[Found], Job] = {}
        while waiting or under_way:
            if time.monotonic() > until:
                waiting.clear()
            while waiting and len(under_way) < workers:
                job = waiting.pop(0)
                under_way[pool.submit(_measured, job, data, out)] = job
            finished, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for each in finished:
                del under_way[each]
                append(log, each.result())
                done += 1
                _tell(done, jobs, each.result(), read(log), workers)


def _measured(job: Job, data: Path, out: Path) -> Found:
    return measure(job, data, out, out / f"run-{os.getpid()}")


def _tell(
    done: int, jobs: Sequence[Job], result: Found, found: Sequence[Found], workers: int
) -> None:
    """Print a line on a finished run, and how long the rest takes."""
    names = {tuple(each["key"]) for each in found}
    rest = [job for job in jobs if tuple(job.key) not in names]
    told = result.get("error") or f"accuracy {result['accuracy']:.3f}"
    print(
        f"{done} of {len(jobs)}: {' '.join(map(str, result['key'][1:]))}: {told}; "
        f"{result['wall_s']:.0f} s; {_long(remaining_s(found, rest, workers))} left",
        flush=True,
    )


def _long(seconds: float | None) -> str:
    """Return a time in words, unknown before the first run."""
    if seconds is None:
        return "an unknown time"
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.0f} minutes"


def _parser() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, help="folder with the data sets")
    parser.add_argument("--cells", nargs="+", default=["*"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--budget", type=int, default=BUDGET, choices=range(1, BUDGET + 1))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--out", type=Path, default=REPO / "outputs" / "methods")
    for name in ("quick", "measured", "commands"):
        parser.add_argument(f"--{name}", action="store_true")
    return parser


def main() -> None:
    """Run what is missing and write the pages."""
    parser = _parser()
    given = parser.parse_args()
    try:
        wanted = cells(given.cells)
    except ValueError as error:
        parser.error(str(error))
    if given.data is None and not (given.measured or given.commands):
        parser.error("--data must be a folder with the data sets; give it, or --measured")
    scale, out = QUICK if given.quick else NIGHT, given.out.resolve()
    log = (out / "results.jsonl") if given.quick else PAGES / f"{NAME}.jsonl"
    if given.commands:
        jobs = finals(wanted, given.methods, given.seeds, scale, given.budget)
        print("\n".join(commands(jobs, read(log), given.budget, out, given.data)))
        return
    former = len(read(log))
    if not given.measured:
        _run_all(given, wanted, scale, log)
    found, folder = read(log), out if given.quick else PAGES
    for path in write_pages(found, scale, given.budget, folder, new=len(found) > former):
        print(path)


def _run_all(given: argparse.Namespace, wanted: Sequence[Cell], scale: Scale, log: Path) -> None:
    """Run the tuning and then the final runs, of what is missing."""
    data = given.data.resolve()
    out, until = given.out.resolve(), time.monotonic() + 60 * given.minutes
    prepare(wanted, data, out)
    first = tuning(wanted, given.methods, given.budget, scale)
    last = finals(wanted, given.methods, given.seeds, scale, given.budget)
    found = read(log)
    known = {tuple(each["key"][:3] + each["key"][4:]) for each in found}
    keys = {tuple(each["key"]) for each in found}
    tunes = [job for job in first if tuple(job.key) not in keys]
    left = [job for job in last if tuple(job.key[:3] + job.key[4:]) not in known]
    print(
        f"{len(first) + len(last)} runs: {len(first)} to choose settings and {len(last)} final; "
        f"{len(tunes)} and {len(left)} are left, "
        f"{_long(remaining_s(found, [*tunes, *left], given.workers))} with {given.workers} workers",
        flush=True,
    )
    start = partial(play, log=log, out=out, data=data, workers=given.workers, until=until)
    if tunes:
        start(tunes)
    found = read(log)
    settled = [
        replace(job, tried=tried)
        for job in left
        if (tried := chosen(found, job, given.budget)) is not None
    ]
    if settled:
        start(settled)


if __name__ == "__main__":
    main()
