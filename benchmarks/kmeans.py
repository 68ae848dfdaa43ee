"""Federated k-means, compared with the paper: Holzer et al., 2023.

    .venv/bin/python benchmarks/kmeans.py --data <folder with MNIST> tables
    ... participation      ... speed

Writes docs/results/kmeans_tables.md, kmeans_participation.md with its figures, and
kmeans_speed.md. `tables` and `participation` run the algorithm on arrays
(`fl_app.kmeans.federated`); a test checks that runs on an engine are equal. `speed` is a run on an
engine. The output folder has one line per result; existing results are not measured again.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from results import must_be_there
from table import REPO, arguments, header, machine, row

from fl_app import wiring
from fl_app.config import load, option
from fl_app.kmeans.central import centroids as central_centroids
from fl_app.kmeans.federated import DescentSettings, descend, start
from fl_app.kmeans.scores import agreement, contingency
from fl_app.kmeans.weighting import dynamic, equal
from fl_app.records.history import read_rounds
from fl_app.report.style import BLUE, GREEN, GREY, ORANGE, SETTINGS

RESULTS = REPO / "docs" / "results"
FIGURES = REPO / "docs" / "figures"
POPULATIONS = ("iid", "half_iid", "non_iid")
WEIGHTINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"DWF": dynamic, "EWF": equal}
METHODS = ("DWF", "EWF", "k-FED", "central")
PAPER = {
    ("mnist", "non_iid", "DWF"): (34.79, 0.541),
    ("mnist", "non_iid", "EWF"): (38.60, 0.434),
    ("mnist", "non_iid", "k-FED"): (35.42, 0.530),
    ("mnist", "non_iid", "central"): (34.69, 0.550),
}
"""Score and v-measure of the better half of 100 runs, as far as they are known to us."""
MEASURES = {"distance": "mean squared distance", "accuracy": "accuracy", "v_measure": "v-measure"}
NAMES = {"iid": "iid", "half_iid": "half-iid", "non_iid": "non-iid"}


@dataclass(frozen=True)
class Scale:
    """The scale of a measurement: seeds, points per client, rounds, and tolerance."""

    seeds: int
    samples: int | None
    rounds: int
    tolerance: float

    def words(self, name: str) -> str:
        """Return the scale as a text for the page."""
        points = f"{self.samples} points per client" if self.samples else "all points"
        return (
            f"{name}: {self.seeds} run(s), {points}, until the centroids move by no more than "
            f"{self.tolerance:g} (the paper: 1e-8) or {self.rounds} rounds (the paper: 10,000)"
        )


class Log:
    """Results by what was measured, a line each in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text() if path.exists() else ""
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]

    def find(self, **key: Any) -> list[dict[str, Any]]:
        """Return the results with these values."""
        return [r for r in self.rows if all(r[name] == value for name, value in key.items())]

    def add(self, result: dict[str, Any]) -> None:
        """Keep a result."""
        self.rows.append(result)
        with self.path.open("a") as file:
            file.write(json.dumps(result) + "\n")
        print(result, flush=True)


def overrides(name: str, population: str, seed: int, data: Path, scale: Scale) -> list[str]:
    """Return the configuration of a run as the command line would give it."""
    given = [f"experiment=kmeans_{name}", f"population={population}", "population.clients=100"]
    given += [f"seed={seed}"]
    if name == "mnist":
        given += [f"data.root={data}"]
    if scale.samples:
        given += [f"population.train_samples={scale.samples}"]
    return given


@lru_cache(maxsize=1)
def federation(given: tuple[str, ...]) -> tuple[list[np.ndarray], np.ndarray, int, int]:
    """Return the points (p_i, d) of each client, all labels, and numbers of clusters and classes.

    Points are float32, so are the distances that tell which centroid is nearest.
    """
    config = load(list(given))
    people = wiring.population(config)
    data = [people.client(client) for client in range(people.clients)]
    points = [each.train_images.flatten(1).numpy() for each in data]
    labels = np.concatenate([each.train_labels.numpy() for each in data])
    k = config.network.options["k"]
    return points, labels, k, people.dataset.classes


@lru_cache(maxsize=1)
def whole_start(given: tuple[str, ...], seed: int) -> np.ndarray:
    """Return k-FED's centroids of all clients."""
    points, _, k, _ = federation(given)
    return start(points, k=k, seed=seed, participation=1.0)


def scores(
    points: np.ndarray, labels: np.ndarray, centroids: np.ndarray, classes: int
) -> dict[str, float]:
    """Return mean squared distance and agreement with the classes over all points."""
    table, distance = contingency(points, labels, centroids, classes=classes)
    return {"distance": distance, **vars(agreement(table))}


def measure(
    log: Log, name: str, population: str, seed: int, clients: int, data: Path, scale: Scale,
    methods: Sequence[str],
) -> None:  # fmt: skip
    """Run those methods that are not in the log, all from the same k-FED start."""
    key = {"data": name, "population": population, "seed": seed, "clients": clients}
    missing = [method for method in methods if not log.find(**key, method=method)]
    if not missing:
        return
    given = tuple(overrides(name, population, seed, data, scale))
    points, labels, k, classes = federation(given)
    everything = np.concatenate(points)

    def keep(method: str, centroids: np.ndarray, rounds: int, began: float) -> None:
        seconds = perf_counter() - began
        found = scores(everything, labels, centroids, classes)
        log.add(key | {"method": method, "rounds": rounds, "seconds": seconds} | found)

    if "central" in missing:
        began = perf_counter()
        keep("central", central_centroids(everything, k, state=seed, max_iter=10_000), 0, began)
    began = perf_counter()
    if "k-FED" in missing:
        some = start(points, k=k, seed=seed, participation=clients / len(points))
        keep("k-FED", some, 1, began)
    first = whole_start(given, seed)
    options = option("strategy=kmeans").options
    for method in [each for each in missing if each in WEIGHTINGS]:
        began = perf_counter()
        settings = DescentSettings(
            k=k, seed=seed, weigh=WEIGHTINGS[method], rounds=scale.rounds,
            participation=clients / len(points), tolerance=scale.tolerance,
            **{name: options[name] for name in ("steps", "learning_rate", "momentum", "patience")},
        )  # fmt: skip
        rounds, last = 1, first
        for state in descend(points, first, settings):
            rounds, last = rounds + 1, state.current
        keep(method, last, rounds, began)


def spread(values: Sequence[float], digits: int) -> str:
    """Return mean and standard deviation."""
    return f"{np.mean(values):.{digits}f} ± {np.std(values):.{digits}f}"


def better_half(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the half with the least distance, as the paper's authors choose it."""
    return sorted(results, key=lambda r: float(r["distance"]))[: -(-len(results) // 2)]


def table_of(log: Log, name: str) -> list[str]:
    """Return the table of one data set."""
    digits = 2 if name == "mnist" else 4
    lines = header(
        "population", "method", "runs", "distance, all", "best", "better half", "accuracy, all",
        "better half", "v-measure, all", "better half", "rounds", "seconds",
        "paper: distance", "v-measure",
    )  # fmt: skip
    for population in POPULATIONS:
        for method in METHODS:
            found = log.find(data=name, population=population, method=method, clients=100)
            if not found:
                continue
            half = better_half(found)
            paper = PAPER.get((name, population, method), ("", ""))
            cells = [NAMES[population], method, len(found)]
            cells += [spread([r["distance"] for r in found], digits)]
            cells += [f"{half[0]['distance']:.{digits}f}"]
            cells += [spread([r["distance"] for r in half], digits)]
            for measured in ("accuracy", "v_measure"):
                cells += [spread([r[measured] for r in each], 3) for each in (found, half)]
            rounds = [r["rounds"] for r in found]
            cells += [f"{np.mean(rounds):.0f}" if method in WEIGHTINGS else ""]
            cells += [f"{np.mean([r['seconds'] for r in found]):.1f}", *paper]
            lines.append(row(*cells))
    return lines


def write_tables(log: Log, scales: dict[str, Scale]) -> None:
    """Write the page of Tables 1 and 2."""
    lines = [
        "# Federated k-means: tables",
        "",
        f"Written by `benchmarks/kmeans.py tables`, on {machine()}.",
        "100 clients, all in every round; 5 local steps, learning rate 0.01, momentum 0.8, one",
        "start by k-FED. Mean and standard deviation over runs that differ in the split, in the",
        "start and in the order. Better half: the half of the runs with the least distance; the",
        "paper reports 50 of 100. Its numbers are given where we know them; it also has all of",
        "FEMNIST, which cannot be downloaded here. Seconds are of one core on a shared machine,",
        "without the start, and no measure of speed.",
        "",
        *(f"- {scale.words(name)}." for name, scale in scales.items()),
        "- Points and the choice of the nearest centroid are in float32, sums in float64.",
        "- k-FED merges the clients' centroids by k-means, as the paper's authors run it.",
        "- blobs: one draw of centres and points for all runs (`data.draw=0`), as in the",
        "  paper, but not that of the paper; outliers are a separate class.",
        "- mnist: 20 clusters, pixels in [0, 1], training images. Runs stopped after 200 rounds:",
        "  EWF on the non-iid population had not converged; its distance grew from k-FED's start.",
    ]
    for name in scales:
        lines += ["", f"## {name}", "", *table_of(log, name)]
    _write(RESULTS / "kmeans_tables.md", lines)


def write_participation(log: Log, scales: dict[str, Scale], clients: Sequence[int]) -> None:
    """Write the page of Figures 4 to 6, and the figures."""
    lines = [
        "# Federated k-means: participation",
        "",
        f"Written by `benchmarks/kmeans.py participation`, on {machine()}.",
        f"{', '.join(map(str, clients))} of 100 clients per round, drawn in each round, otherwise",
        "as in [the tables](kmeans_tables.md); means over all runs. k-FED asks the same number of",
        "clients once; central k-means has all points and also one start.",
        "",
        *(f"- {scale.words(name)}." for name, scale in scales.items()),
    ]
    for name in [each for each in scales if log.find(data=each, method="central")]:
        picture = f"kmeans_participation_{name}.png"
        curves(log, name, clients).savefig(FIGURES / picture, dpi=160)
        lines += ["", f"## {name}", "", f"![metrics against participation](../figures/{picture})"]
        lines += ["", *header("population", "method", "measure", *map(str, clients))]
        for population in POPULATIONS:
            for method in ("DWF", "EWF", "k-FED"):
                for measured, words in MEASURES.items():
                    means = _means(log, name, population, method, clients, measured)
                    digits = 2 if measured == "distance" and name == "mnist" else 4
                    cells = [f"{value:.{digits}f}" for value in means]
                    lines.append(row(NAMES[population], method, words, *cells))
    _write(RESULTS / "kmeans_participation.md", lines)


def _means(
    log: Log, name: str, population: str, method: str, clients: Iterable[int], measured: str
) -> list[float]:
    """Return the mean over the seeds at each number of clients."""
    where = {"data": name, "population": population, "method": method}
    return [
        float(np.mean([r[measured] for r in log.find(**where, clients=count)])) for count in clients
    ]


def curves(log: Log, name: str, clients: Sequence[int]) -> Figure:
    """Draw each metric against the clients of a round, a column a population."""
    style = {"DWF": (BLUE, "o"), "EWF": (ORANGE, "s"), "k-FED": (GREEN, "^")}
    with mpl.rc_context(SETTINGS):  # type: ignore[arg-type]
        figure = Figure(figsize=(9.6, 6.6), layout="constrained")
        panels = figure.subplots(3, 3, sharex=True, squeeze=False)
        for column, population in enumerate(POPULATIONS):
            panels[0, column].set_title(NAMES[population])
            panels[-1, column].set_xlabel("clients a round, of 100")
            for line, (measured, words) in enumerate(MEASURES.items()):
                axes = panels[line, column]
                for method, (colour, marker) in style.items():
                    means = _means(log, name, population, method, clients, measured)
                    axes.plot(clients, means, color=colour, marker=marker, label=method)
                central = log.find(data=name, population=population, method="central")
                level = float(np.mean([r[measured] for r in central]))
                axes.axhline(level, color=GREY, linestyle="--", label="central")
                if column == 0:
                    axes.set_ylabel(words)
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=4)
    return figure


def speed(data: Path, out: Path, tolerance: float) -> None:
    """Run DWF on all of MNIST through the in-process engine; write seconds and rounds."""
    lines = [
        "# Federated k-means: speed",
        "",
        f"Written by `benchmarks/kmeans.py speed`, on {machine()}.",
        "DWF with 20 clusters on the 60,000 training images of MNIST, 100 clients, all in every",
        "round, on the in-process engine with one worker, float64. Converged: the centroids move",
        f"by no more than {tolerance:g} (the paper: 1e-8). If the points of a client are assigned",
        "as in its last round and every centroid has points, it computes nothing again: later",
        "rounds are shorter if clients have points of all clusters. Seconds of the first ten",
        "rounds after the start, and of the last ten, are wall seconds on a shared machine;",
        "processor seconds of the whole command, including loading and evaluation, are the better",
        "measure.",
        "",
        *header(
            "population", "rounds", "seconds to convergence", "start by k-FED", "a round, median",
            "first ten", "last ten", "outside the clients", "processor seconds, all",
            "distance", "v-measure",
        ),
    ]  # fmt: skip
    for population in ("iid", "non_iid"):
        folder = out / f"speed-{population}"
        if not (folder / "summary.json").exists():
            given = overrides("mnist", population, 0, data, Scale(1, None, 0, tolerance))
            given += [f"strategy.tolerance={tolerance}", "engine.workers=1", "rounds=3000"]
            given += ["records.evaluate_every=10000", "records.checkpoint_every=10000"]
            command = [sys.executable, "-m", "fl_app.main", *given, f"hydra.run.dir={folder}"]
            before = _processor_s()
            with (out / f"speed-{population}.log").open("w") as log:
                subprocess.run(command, check=True, stdout=log, stderr=log)
            (folder / "processor_s").write_text(str(_processor_s() - before))
        records = read_rounds(folder)
        lines.append(_speed_row(population, records, float((folder / "processor_s").read_text())))
        _write(RESULTS / "kmeans_speed.md", lines)


def _processor_s() -> float:
    """Return the processor seconds of all commands run so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _speed_row(population: str, records: list[dict[str, Any]], processor_s: float) -> str:
    total = [record["time"]["total_s"] - record["time"]["evaluation_s"] for record in records]
    outside = [
        record["time"]["total_s"] - record["time"]["evaluation_s"] - record["time"]["clients_s"]
        for record in records[1:]
    ]
    notes = records[-1]["notes"]
    return row(
        NAMES[population], len(records), f"{sum(total):.1f}", f"{total[0]:.1f}",
        f"{np.median(total[1:]):.3f}", f"{np.median(total[1:11]):.3f}",
        f"{np.median(total[-10:]):.3f}", f"{np.median(outside):.3f}", f"{processor_s:.1f}",
        f"{notes['distance']:.2f}", f"{notes['v_measure']:.3f}",
    )  # fmt: skip


def _write(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    print(f"written: {path}")


def main() -> None:
    """Measure what is missing, then write the page."""
    parser = arguments(__doc__)
    parser.add_argument("what", choices=["tables", "participation", "speed"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=REPO / "outputs" / "kmeans")
    parser.add_argument("--only", choices=["blobs", "mnist"], help="measure this one alone")
    parser.add_argument("--write", action="store_true", help="write what is measured already")
    options = parser.parse_args()
    data = options.data.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.what == "speed":
        speed(data, options.out, SPEED_TOLERANCE)
        return
    scales = TABLES if options.what == "tables" else PARTICIPATION
    clients = [100] if options.what == "tables" else list(PARTICIPANTS)
    path = options.out / f"{options.what}.jsonl"
    if options.write:
        must_be_there(path, "--write")
    log = Log(path)
    for name in [each for each in scales if options.only in (None, each) and not options.write]:
        for seed, population, count in product(range(scales[name].seeds), POPULATIONS, clients):
            methods = METHODS if count == 100 else METHODS[:3]
            measure(log, name, population, seed, count, data, scales[name], methods)
    log = Log(path)  # with what another process measured meanwhile
    if options.what == "tables":
        write_tables(log, scales)
    else:
        write_participation(log, scales, clients)


TABLES = {"blobs": Scale(10, None, 2000, 1e-6), "mnist": Scale(10, 100, 200, 1e-2)}
PARTICIPATION = {"blobs": Scale(3, None, 300, 1e-6), "mnist": Scale(1, 100, 60, 1e-2)}
PARTICIPANTS = (5, 10, 25, 50, 75, 100)
SPEED_TOLERANCE = 1e-2

if __name__ == "__main__":
    main()
