"""Methods with both graphs by default, beside their own; writes docs/results/contrast_default.md.

    .venv/bin/python benchmarks/contrast_default.py --data <folder with MNIST and Fashion-MNIST>

The cells of the benchmark whose images are not CIFAR-10's. docs/results/contrast_default.jsonl has
one line per result; what is there is not measured again. `--minutes` is the time after which no run
is started, `--measured` writes the page alone.
"""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import mean, stdev

from all_methods import prepare
from method_cells import CHANGES, NIGHT, cell_named, cells, words
from results import Found, by_case, write_page
from runs import run
from table import REPO, header, row

from fl_app.client_app import app

PAGE = REPO / "docs" / "results" / "contrast_default.md"
METHODS, SEEDS, HOW = ("flic", "late", "hierarchical"), 3, ("false", "both")
CELLS = [cell.name for cell in cells() if cell.data != "cifar10"]
LESS = 0.01
"""A mean accuracy or adjusted Rand index that is lower by more than this is a loss."""
Pairs = list[tuple[Found, Found]]
HEAD = f"""# Both graphs by default

Written by `benchmarks/contrast_default.py --data <data>`: FLIC, late and hierarchical
clustering in the cells of [the benchmark](benchmark.md) without CIFAR-10, with {NIGHT.clients}
clients, {NIGHT.rounds} rounds and the clustering after a third of them. `own` is
`graph.contrast=false` and `both` is `graph.contrast=both`, which is the default of these methods;
both have the fallback to one model, as by default. Means over the seeds, ± the standard error of
the difference. **Bold**: `both` has lost more than {LESS}.
[All populations of digits](contrast_methods.md) have a page of their own.
"""


def measure(seed: int, cell: str, method: str, how: str, *, data: Path, out: Path) -> Found:
    """Run one federation and return its communities and accuracy."""
    place, folder = cell_named(cell), out / "run"
    prepare([place], data, out)
    given = words(place, method, 0, seed, scale=NIGHT, data=data, out=out)
    records = run([*given, f"graph.contrast={how}", "fallback=auto"], folder, app)
    groups = records[-1]["communities"] or {"count": 1, "ari": None}
    return {
        "accuracy": round(records[-1]["accuracy"]["mean"], 6),
        "count": groups["count"],
        "ari": groups["ari"],
        "verdicts": [e["kind"] for each in records for e in each["events"] if "kind" in e],
    }


def cases() -> list[tuple[int, str, str, str]]:
    """Return what is measured, method by method and seed by seed."""
    every = product(METHODS, range(SEEDS), CELLS, HOW)
    return [(seed, cell, method, how) for method, seed, cell, how in every]


def page(found: Sequence[Found]) -> list[str]:
    """Return a summary of the changes of clients, and a row for each cell."""
    known = by_case(found)
    pairs = {(method, cell): _pairs(known, cell, method) for method in METHODS for cell in CELLS}
    measured = {at: each for at, each in pairs.items() if each}
    lines = [HEAD, "## In the mean", ""]
    lines += header(
        "method", "clients", "cells", "seeds", "own", "both", "both - own", "cells lost"
    )
    for method, change in product(METHODS, CHANGES):
        of = {at: p for at, p in measured.items() if at[0] == method and at[1].endswith(change)}
        if of:
            lines.append(_summary(method, change, of))
    for method in METHODS:
        of = {at: each for at, each in measured.items() if at[0] == method}
        if of:
            lines += ["", f"## {method}", ""]
            lines += header("cell", "seeds", "own", "both", "both - own", "ARI", "communities")
            lines += [_row(cell, each) for (_, cell), each in of.items()]
    missing = [case for case in cases() if case not in known]
    return [*lines, "", f"Not measured yet: {len(missing)} of {len(cases())} runs."]


def _pairs(known: dict[tuple[object, ...], Found], cell: str, method: str) -> Pairs:
    both = [[known.get((seed, cell, method, how)) for how in HOW] for seed in range(SEEDS)]
    return [(own, other) for own, other in both if own and other]


def _means(pairs: Pairs, key: str) -> tuple[float, float] | None:
    """Return the means of both, of the seeds that have a value."""
    known = [(a[key], b[key]) for a, b in pairs if a[key] is not None and b[key] is not None]
    return (mean(a for a, _ in known), mean(b for _, b in known)) if known else None


def _lost(pairs: Pairs) -> bool:
    found = [means for key in ("accuracy", "ari") if (means := _means(pairs, key))]
    return any(both < own - LESS for own, both in found)


def _difference(pairs: Pairs) -> str:
    """Return the mean difference of accuracy, ± its standard error with several seeds."""
    each = [both["accuracy"] - own["accuracy"] for own, both in pairs]
    error = f" ± {stdev(each) / len(each) ** 0.5:.3f}" if len(each) > 1 else ""
    return f"{mean(each):+.3f}{error}"


def _summary(method: str, change: str, of: dict[tuple[str, str], Pairs]) -> str:
    every = [pair for pairs in of.values() for pair in pairs]
    own, both = _means(every, "accuracy") or (0.0, 0.0)
    lost = sum(map(_lost, of.values()))
    seeds = min(map(len, of.values()))
    told = (f"{own:.3f}", f"{both:.3f}", _difference(every), str(lost))
    return row(method, change, str(len(of)), str(seeds), *told)


def _row(cell: str, pairs: Pairs) -> str:
    own, both = _means(pairs, "accuracy") or (0.0, 0.0)
    ari, count = _means(pairs, "ari"), _means(pairs, "count")
    change = f"**{_difference(pairs)}**" if both < own - LESS else _difference(pairs)
    groups = f"{ari[0]:.2f} -> {ari[1]:.2f}" if ari else ""
    groups = f"**{groups}**" if ari and ari[1] < ari[0] - LESS else groups
    counts = f"{count[0]:.1f} -> {count[1]:.1f}" if count else ""
    return row(cell, str(len(pairs)), f"{own:.3f}", f"{both:.3f}", change, groups, counts)


if __name__ == "__main__":
    write_page(__doc__, PAGE, cases, measure, page, data=True)
