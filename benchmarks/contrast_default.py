"""Methods with both graphs by default, beside their own; writes docs/results/contrast_default.md.

    .venv/bin/python benchmarks/contrast_default.py --data <folder with MNIST and Fashion-MNIST>

The cells of the benchmark whose images are not CIFAR-10's. docs/results/contrast_default.jsonl has
one line per result; what is there is not measured again. `--minutes` is the time after which no run
is started, `--measured` writes the page alone.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import mean, stdev

from all_methods import prepare
from method_cells import CHANGES, NIGHT, cell_named, cells, words
from results import Found, by_case, read, write_page
from runs import run
from table import REPO, header, row

from fl_app.client_app import app

PAGE = REPO / "docs" / "results" / "contrast_default.md"
METHODS, HOW = ("flic", "late", "hierarchical"), ("false", "both")
SEEDS, AGAIN = range(3), range(3, 9)
"""Seeds of every cell, and further ones of a cell that has lost accuracy with these."""
CELLS = [cell.name for cell in cells() if cell.data != "cifar10"]
LESS = 0.01
"""A mean accuracy or adjusted Rand index that is lower by more than this is a loss."""
Pairs = list[tuple[Found, Found]]
Known = dict[tuple[object, ...], Found]
HEAD = f"""# Both graphs by default

Written by `benchmarks/contrast_default.py --data <data>`: FLIC, late and hierarchical
clustering in the cells of [the benchmark](benchmark.md) without CIFAR-10, with {NIGHT.clients}
clients, {NIGHT.rounds} rounds and the clustering after a third of them. `own` is
`graph.contrast=false` and `both` is `graph.contrast=both`, which is the default of these methods;
both have the fallback to one model, as by default. Means over the seeds, ± the standard error of
the difference. **Bold**: `both` has lost more than {LESS}.
[All populations of digits](contrast_methods.md) have a page of their own.
"""
AGAIN_HEAD = f"""
## Cells that lost, with other seeds

Of so many cells some lose by luck. Those whose accuracy is lower by more than {LESS} with the
{len(SEEDS)} seeds above were run with {len(AGAIN)} others, which no choice has touched.
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


def cases() -> Iterator[tuple[int, str, str, str]]:
    """Yield what is measured, method by method and seed by seed, and then the cells that lost."""
    for method, seed, cell, how in product(METHODS, SEEDS, CELLS, HOW):
        yield seed, cell, method, how
    known = by_case(read(PAGE.with_suffix(".jsonl")))
    for (method, cell), seed, how in product(lost(known), AGAIN, HOW):
        yield seed, cell, method, how


def lost(known: Known) -> list[tuple[str, str]]:
    """Return the methods and cells that have lost accuracy with the seeds of every cell."""
    every = {(m, c): _pairs(known, c, m, SEEDS) for m, c in product(METHODS, CELLS)}
    return [at for at, each in every.items() if each and _lower(each, "accuracy")]


def page(found: Sequence[Found]) -> list[str]:
    """Return a summary of the changes of clients, and a row for each cell."""
    known = by_case(found)
    pairs = {(m, cell): _pairs(known, cell, m, SEEDS) for m in METHODS for cell in CELLS}
    measured = {at: each for at, each in pairs.items() if each}
    lines = [HEAD, "## In the mean", ""]
    lines += header(
        "method", "clients", "cells", "seeds", "own", "both", "both - own", "cells lost"
    )
    for method, change in product(METHODS, CHANGES):
        of = {at: p for at, p in measured.items() if at[0] == method and at[1].endswith(change)}
        if of:
            lines.append(_summary(method, change, of))
    lines += [AGAIN_HEAD, *header("method", "cell", "first seeds", "others", "own", "both",
                                  "both - own")]  # fmt: skip
    lines += [_again(method, cell, known) for method, cell in lost(known)]
    for method in METHODS:
        of = {at: each for at, each in measured.items() if at[0] == method}
        if of:
            lines += ["", f"## {method}", ""]
            lines += header("cell", "seeds", "own", "both", "both - own", "ARI", "communities")
            lines += [_row(cell, each) for (_, cell), each in of.items()]
    every = [*cases()]
    missing = [case for case in every if case not in known]
    return [*lines, "", f"Not measured yet: {len(missing)} of {len(every)} runs."]


def _pairs(known: Known, cell: str, method: str, seeds: Sequence[int]) -> Pairs:
    both = [[known.get((seed, cell, method, how)) for how in HOW] for seed in seeds]
    return [(own, other) for own, other in both if own and other]


def _means(pairs: Pairs, key: str) -> tuple[float, float] | None:
    """Return the means of both, of the seeds that have a value."""
    known = [(a[key], b[key]) for a, b in pairs if a[key] is not None and b[key] is not None]
    return (mean(a for a, _ in known), mean(b for _, b in known)) if known else None


def _lower(pairs: Pairs, key: str) -> bool:
    means = _means(pairs, key)
    return means is not None and means[1] < means[0] - LESS


def _difference(pairs: Pairs) -> str:
    """Return the mean difference of accuracy, ± its standard error with several seeds."""
    each = [both["accuracy"] - own["accuracy"] for own, both in pairs]
    error = f" ± {stdev(each) / len(each) ** 0.5:.3f}" if len(each) > 1 else ""
    return f"{mean(each):+.3f}{error}"


def _summary(method: str, change: str, of: dict[tuple[str, str], Pairs]) -> str:
    every = [pair for pairs in of.values() for pair in pairs]
    own, both = _means(every, "accuracy") or (0.0, 0.0)
    fewer = sum(_lower(each, "accuracy") or _lower(each, "ari") for each in of.values())
    seeds = min(map(len, of.values()))
    told = (f"{own:.3f}", f"{both:.3f}", _difference(every), str(fewer))
    return row(method, change, str(len(of)), str(seeds), *told)


def _again(method: str, cell: str, known: Known) -> str:
    first, others = (_pairs(known, cell, method, seeds) for seeds in (SEEDS, AGAIN))
    if not others:
        return row(method, cell, _difference(first), "0", "", "", "")
    own, both = _means(others, "accuracy") or (0.0, 0.0)
    told = (f"{own:.3f}", f"{both:.3f}", _difference(others))
    return row(method, cell, _difference(first), str(len(others)), *told)


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
