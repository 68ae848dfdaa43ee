"""The methods of other papers beside their figures; writes docs/results/papers.md.

.venv/bin/python benchmarks/papers.py

`benchmarks/papers.json` has what was found of each paper, with its source. Our figures are those of
docs/results/benchmark.jsonl; methods that are not in it are measured here, which takes minutes.
With `--measured` nothing is run.
"""

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
from method_cells import BUDGET, NIGHT
from method_guide import Entries, entries
from results import Found, read, write_page
from runs import run
from table import REPO, header, machine, row

from fl_app.client_app import app

PAGE = REPO / "docs" / "results" / "papers.md"
BENCHMARK = REPO / "docs" / "results" / "benchmark.jsonl"
PAPERS = Path(__file__).with_name("papers.json")
SEEDS = (0, 1, 2)
FEW_CLASSES = (
    "data=digits", "population=dirichlet", "population.alpha=0.1", "population.clients=20",
    "population.train_samples=50", "population.test_samples=15", "network=mlp",
    "network.hidden=[64]", "rounds=20", "client.epochs=5", "strategy=fedavg",
)  # fmt: skip
"""A federation whose clients have few classes each."""
PERSONAL = {
    "fedavg": (), "local": ("personal=ditto", "personal.proximal=0.0"),
    "ditto": ("personal=ditto",), "fedper": ("personal=fedper",), "fedrep": ("personal=fedrep",),
}  # fmt: skip
HEAD = """# Methods beside their papers

Written by `benchmarks/papers.py`, on {machine}, from `benchmarks/papers.json`, which has the
figures of the papers and where they were found, and from the results of the
[benchmark](benchmark.md): 20 clients with 100 training samples and 20 rounds, three seeds. `local`
is training without any exchange.

No row is a replication: data, models and lengths differ by an order of magnitude, and so do
accuracies. What can be compared is the order of the methods, and on which side of FedAvg a method
is: *pairs* counts the pairs of methods that have the same order in the paper and here. Accuracies
and gains are in percent; a gain is that over FedAvg, or over IFCA where the paper's figures have
no FedAvg.
"""
MISSING = """## No figure of their own paper

Of these papers neither a table nor its numbers could be had: repositories have none, and of the
papers themselves only the abstract could be read. Beside what the abstract says is what we
measured. They are to be filled in by whoever has the paper, in `benchmarks/papers.json`.
"""
Figures = Mapping[str, float]


def measure(name: str, seed: int, *, out: Path) -> Found:
    """Return the accuracy of a method in the federation of few classes."""
    words = [*FEW_CLASSES, *PERSONAL[name], f"seed={seed}"]
    records = run(words, out / f"{name}_{seed}", app)
    return {"accuracy": [each["accuracy"]["mean"] for each in records if each["accuracy"]][-1]}


def few_classes(found: Sequence[Found]) -> Figures:
    """Return the mean accuracy of each measured method in percent."""
    accuracies: dict[str, list[float]] = {}
    for each in found:
        accuracies.setdefault(each["case"][0], []).append(each["accuracy"])
    return {name: 100 * float(np.mean(each)) for name, each in accuracies.items()}


def in_cells(every: Entries, pattern: str, measure: str) -> Figures:
    """Return the mean of a measure of each method over the cells of a pattern, in percent.

    A cell counts if each of the methods has a value in it.
    """
    names = {name for _, name in every}
    cells = {cell for cell, _ in every if fnmatch(cell.name, pattern)}
    found: dict[str, list[float]] = {name: [] for name in names}
    for cell, name in product(cells, names):
        entry = every.get((cell, name))
        value = None if entry is None else entry.mean(measure)
        if value is not None:
            found[name].append(value)
    whole = len(cells)
    return {name: 100 * float(np.mean(v)) for name, v in found.items() if v and len(v) == whole}


def same_order(theirs: Figures, ours: Figures) -> tuple[int, int]:
    """Return how many pairs of the methods have the same order, and the number of pairs."""
    pairs = [pair for pair in combinations(theirs, 2) if {*pair} <= ours.keys()]
    same = sum((theirs[a] > theirs[b]) == (ours[a] > ours[b]) for a, b in pairs)
    return same, len(pairs)


def baseline(names: Sequence[str]) -> str:
    """Return the method over which a gain is given."""
    return "fedavg" if "fedavg" in names else "ifca"


def gain(method: str, figures: Figures) -> str:
    """Return by how much a method is above the baseline."""
    return f"{figures[method] - figures[baseline([*figures])]:+.1f}"


def shown(figures: Figures) -> str:
    """Return figures by method as text."""
    return ", ".join(f"`{name}` {value:.1f}" for name, value in figures.items())


def lines(measured: Sequence[Found]) -> list[str]:
    """Return the lines of the page."""
    papers: list[dict[str, Any]] = json.loads(PAPERS.read_text(encoding="utf-8"))
    every, own = entries(read(BENCHMARK), NIGHT, BUDGET), few_classes(measured)

    def ours(paper: Mapping[str, Any], names: Sequence[str]) -> Figures:
        cells = paper["cells"]
        found = own if cells is None else in_cells(every, cells, paper.get("measure", "accuracy"))
        return {name: found[name] for name in names if name in found}

    with_figures = [each for each in papers if each["figures"]]
    without = [each for each in papers if not each["figures"]]
    return [
        HEAD.format(machine=machine()),
        *_beside([(each, ours(each, [*each["figures"]])) for each in with_figures]),
        "", MISSING,
        *_alone([(each, ours(each, [each["method"], *each["against"]])) for each in without]),
        "", "## What differs", "",
        *(f"- `{each['method']}`, {each['setting']}: {each['differs']}" for each in papers),
        "", "## Few classes a client", "",
        f"`{' '.join(FEW_CLASSES)}`, seeds {', '.join(map(str, SEEDS))}, with:", "",
        *(f"- `{name}`: `{' '.join(each) or 'personal=none'}`" for name, each in PERSONAL.items()),
    ]  # fmt: skip


def _where(paper: Mapping[str, Any]) -> str:
    if paper["cells"] is None:
        return "few classes a client, see below"
    unlabelled = ", new clients without labels" if paper.get("measure") == "unlabelled" else ""
    return f"`{paper['cells']}`{unlabelled}"


def _beside(rows: Sequence[tuple[Mapping[str, Any], Figures]]) -> list[str]:
    found = header(
        "method", "paper and setting", "paper", "gain", "ours in", "ours", "gain", "pairs"
    )
    for paper, ours in rows:
        theirs, method = paper["figures"], paper["method"]
        same, pairs = same_order(theirs, ours)
        found.append(row(
            f"`{method}`", f"{paper['paper']}; {paper['setting']} ({paper['source']})",
            shown(theirs), gain(method, theirs), _where(paper), shown(ours), gain(method, ours),
            f"{same} of {pairs}",
        ))  # fmt: skip
    return found


def _alone(rows: Sequence[tuple[Mapping[str, Any], Figures]]) -> list[str]:
    found = header("method", "paper and setting", "found", "ours in", "ours", "gain")
    for paper, ours in rows:
        about = f"{paper['paper']}; {paper['setting']}"
        method = paper["method"]
        found.append(row(
            f"`{method}`", about, paper["source"], _where(paper), shown(ours), gain(method, ours)
        ))  # fmt: skip
    return found


if __name__ == "__main__":
    write_page(str(__doc__), PAGE, lambda: [*product(PERSONAL, SEEDS)], measure, lines)
