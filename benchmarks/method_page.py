"""The pages of the benchmark: Markdown, CSV, and one self-contained HTML page."""

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from jinja2 import Environment, FileSystemLoader
from method_cells import CHANGES, GROUPS, METHODS, PARTICIPATION, UNSEEN, Cell, Scale, cells, sized
from method_guide import (
    ALPHA,
    FEWEST,
    MEASURES,
    Advice,
    Entries,
    Entry,
    Standing,
    advice,
    entries,
    size,
    standing,
)
from method_runs import TUNING_SEED, Found
from table import as_measured, header, machine, row

NAME, SORTABLE = "benchmark", "benchmark_page.html"
"""MkDocs makes a benchmark.html of benchmark.md, so the sortable page has another name."""
HEAD = """# All methods in one benchmark

Written by `benchmarks/all_methods.py --data <data>`, on {machine}. A cell is
`<data>/<shift>/<participation>/<change>`. Each is a federation of {clients} clients with
{train} training samples on average and {rounds} rounds. Seeds: {seeds}.

- **Size**: {size}
- **Shifts**: `label_skew` is Dirichlet(0.3) with {groups} distributions of labels, `label_swap`
  {groups} groups that exchange two labels, `rotation` {groups} groups of rotated images,
  `quantity_skew` Dirichlet(0.5) over the number of samples. The table is synthetic and has no
  rotations.
- **Participation**: all clients in every round, or {partial:.0%} of them. So `fedgwc` has all of
  them in the full cells, although it needs a sample (`docs/methods/fedgwc.md`): its rows of rewards
  hardly differ there.
- **Changes**: in `newcomers` four clients join half-way, in `drift` a fifth of the clients get
  other data half-way. In `quantity_skew`, where there are no groups before, the ARI after the drift
  was measured as if all clients still had alike data: it counts for little there.
- **Unseen clients**: {unseen} further clients that never train. With labels their model is that
  with the least loss on their training samples; without labels that of
  `fl-app assign --without-labels`.
- **Tuning**: {tuning}
- **Seconds** of clients and server are processor time of one run, whose proportion is that of their
  wall-clock time: the runs share the machine.
- **Rounds to 95 %**: the first evaluated round with 95 % of the run's best accuracy. Clients
  evaluate in every second round.

All commands are `fl-app experiment=benchmark` with other settings; the file
`benchmarks/method_cells.py` has them. `local` is the own model of Ditto without its proximal term,
`personal_head` is FedPer or FedRep with one model for all, and `flic_contrast` is FLIC with
`graph.contrast=true`.
The same results [sortable and with figures](benchmark_page.html), and [as CSV](benchmark.csv).
"""


def write_pages(
    found: Sequence[Found], scale: Scale, budget: int, folder: Path, *, new: bool = True
) -> list[Path]:
    """Write the page, the table and the sortable page into `folder`; return their paths.

    Without `new` results they name the machine that the pages named before.
    """
    every, told = entries(found, scale, budget), size(found, scale)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        f"{NAME}.md": "\n".join(markdown(every, scale, budget, told)) + "\n",
        f"{NAME}.csv": table(every, scale),
        SORTABLE: html(every, scale, budget, told),
    }
    for name, text in texts.items():
        whole = text if new else as_measured(text, folder / name)
        (folder / name).write_text(whole, encoding="utf-8")
    return [folder / name for name in texts]


def head(every: Entries, scale: Scale, budget: int, told: str) -> str:
    """Return what was measured and how; `told` is how large it is."""
    seeds = sorted({seed for each in every.values() for seed in each.seeds})
    tuning = (
        f"{budget} settings of each method, of which the one with the best accuracy with seed "
        f"{TUNING_SEED} is used, for each data set and shift, with full participation and without "
        "changes."
        if budget > 1
        else "none, each method has its first setting."
    )
    return HEAD.format(
        machine=machine(), clients=scale.clients, train=scale.train_samples, rounds=scale.rounds,
        seeds=", ".join(map(str, seeds)) or "none", groups=GROUPS, size=told,
        partial=PARTICIPATION["partial"], unseen=UNSEEN, tuning=tuning,
    )  # fmt: skip


def shown(entry: Entry | None, measure: str) -> str:
    """Return mean and deviation over the seeds as text; empty without a value."""
    mean = None if entry is None else entry.mean(measure)
    if entry is None or mean is None:
        return ""
    digits, spread = MEASURES[measure][1], entry.deviation(measure)
    return f"{mean:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


def markdown(every: Entries, scale: Scale, budget: int, told: str) -> list[str]:
    """Return the lines of the page."""
    lines = [head(every, scale, budget, told)]
    now = standing(every, lambda cell: True)
    lines += ["## Ranks", "", *_ranked(now), "", "## Which method for which situation", ""]
    lines += [*_guided(advice(every)), "", "## Means", ""]
    lines += [*_means(every), "", "## Accuracy", "", *_accuracies(every)]
    lines += ["", "## Settings that are tried", "", *_tried(scale, budget)]
    failed = [f"- `{cell.name}` {m}: {e.error}" for (cell, m), e in every.items() if e.error]
    lines += ["", "## Failed", "", *(failed or ["No run failed."])]
    return [*lines, "", "## Not measured", "", *_unmeasured(every)]


def _ranked(now: Standing | None) -> list[str]:
    if now is None:
        return ["No cell has a result of every measured method yet."]
    lines = [
        f"Mean ranks of the accuracy over the {len(now.cells)} cells in which every method has a "
        "result, the mean over the seeds in each; 1 is the best.",
        _tests(now),
        "",
        *header("method", "mean rank", "mean accuracy", "p beside the best (Wilcoxon, Holm)"),
    ]
    means = now.scores.mean(axis=0)
    for column in np.argsort(now.mean_ranks, kind="stable").tolist():
        p = "" if column == now.best else f"{now.p[column]:.3f}"
        rank, mean = f"{now.mean_ranks[column]:.2f}", f"{means[column]:.3f}"
        lines.append(row(f"`{now.methods[column]}`", rank, mean, p))
    return lines


def _tests(now: Standing) -> str:
    if now.friedman is None or now.critical is None:
        return "The Friedman test needs three methods and two cells."
    verdict = "differ" if now.differ else "do not differ"
    return (
        f"Friedman: the methods {verdict} (p {now.friedman.p:.2g}, limit {ALPHA}). Nemenyi: two "
        f"mean ranks differ from {now.critical:.2f} on."
    )


def _guided(found: Iterable[Advice]) -> list[str]:
    """Return the guide as a table, which is derived from the results alone."""
    lines = [
        "The best method has the best mean rank over the cells of the situation. A method that "
        "does not differ from it is as good by these results: its mean rank is within Nemenyi's "
        "critical difference, or the Friedman test finds no difference at all (last column, "
        f"limit {ALPHA}). The cheapest of them sends the fewest bytes. The gain is in mean "
        f"accuracy over one model (`fedavg`). With fewer than {FEWEST} cells nothing is said. "
        "Cells of one data set are not independent, so the limits are optimistic.",
        "",
        *header("situation", "cells", "best", "does not differ from it", "cheapest", "gain", "p"),
    ]
    for each in found:
        if each.best is None:
            lines.append(row(each.situation, each.cells, "too few cells", "", "", "", ""))
            continue
        gain = "" if each.gain is None else f"{each.gain:+.3f}"
        p = "" if each.p is None else f"{each.p:.2g}"
        others = ", ".join(each.equals) or "none"
        lines.append(row(each.situation, each.cells, each.best, others, each.cheapest, gain, p))
    return lines


def in_common(every: Entries) -> Entries:
    """Return the entries of the cells in which every measured method has an accuracy."""
    now = standing(every, lambda cell: True)
    cells = set() if now is None else set(now.cells)
    return {key: entry for key, entry in every.items() if key[0] in cells}


def _means(every: Entries) -> list[str]:
    """Return the means of each method, over cells that all methods have in common."""
    shared = in_common(every)
    told = "No cell has a result of every measured method yet, so each row is of other cells."
    lines = ["Over the cells in which every method has a result." if shared else told, ""]
    lines += header("method", "cells", *(label for label, _ in MEASURES.values()))
    for method in _methods(every):
        mine = [entry for (_, name), entry in (shared or every).items() if name == method]
        values = []
        for measure, (_, digits) in MEASURES.items():
            found = [m for entry in mine if (m := entry.mean(measure)) is not None]
            values.append(f"{np.mean(found):.{digits}f}" if found else "")
        lines.append(row(f"`{method}`", sum(bool(e.seeds) for e in mine), *values))
    return lines


def _accuracies(every: Entries) -> list[str]:
    methods = _methods(every)
    lines = header("cell", *methods)
    for cell in sorted({cell for cell, _ in every}):
        values = [shown(every.get((cell, method)), "accuracy") for method in methods]
        lines.append(row(f"`{cell.name}`", *values))
    return lines


def _tried(scale: Scale, budget: int) -> list[str]:
    """Return the settings of each method; the CSV has the one that was used in each cell."""
    lines = header("method", "common", "tried", "from")
    for name, method in METHODS.items():
        common = " ".join(sized(method.words, scale))
        tried = [" ".join(sized(each, scale)) for each in method.tried[:budget]]
        lines.append(
            row(f"`{name}`", f"`{common}`", "; ".join(f"`{each}`" for each in tried), method.origin)
        )
    return lines


def _unmeasured(every: Entries) -> list[str]:
    """Return the cells without any result, and the methods that are missing in others."""
    lines = []
    for cell in cells():
        missing = [m for m in METHODS if not ((e := every.get((cell, m))) and (e.seeds or e.error))]
        if len(missing) == len(METHODS):
            lines.append(f"- `{cell.name}`")
        elif missing:
            lines.append(f"- `{cell.name}`: {', '.join(missing)}")
    return lines or ["Everything is measured."]


def _methods(every: Entries) -> list[str]:
    found = {name for _, name in every}
    return [name for name in METHODS if name in found]


def table(every: Entries, scale: Scale) -> str:
    """Return the CSV: a row for each cell and method, mean and deviation of each measure."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    names = [part for each in MEASURES for part in (each, f"{each}_deviation")]
    writer.writerow(["data", "shift", "participation", "change", "method", "setting", "seeds",
                     *names, "error"])  # fmt: skip
    for (cell, method), entry in sorted(every.items()):
        values = [v for name in MEASURES for v in (entry.mean(name), entry.deviation(name))]
        writer.writerow([
            cell.data, cell.shift, cell.participation, cell.change, method,
            _setting(method, entry, scale),
            len(entry.seeds), *("" if v is None else repr(v) for v in values), entry.error or "",
        ])  # fmt: skip
    return stream.getvalue()


def _setting(method: str, entry: Entry, scale: Scale) -> str:
    tried = () if entry.tried is None else METHODS[method].tried[entry.tried]
    return " ".join(sized(tried, scale))


def html(every: Entries, scale: Scale, budget: int, told: str) -> str:
    """Return the page without external references: sortable, filterable, with figures."""
    folder = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(folder), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    now = standing(every, lambda cell: True)
    return environment.get_template("method_page.html").render(
        head=_paragraphs(head(every, scale, budget, told)),
        labels=[label for label, _ in MEASURES.values()],
        rows=[_record(cell, m, entry, scale) for (cell, m), entry in sorted(every.items())],
        parts={"data": _all(every, "data"), "shift": _all(every, "shift"),
               "participation": _all(every, "participation"), "change": list(CHANGES),
               "method": _methods(every)},
        bars=_bars(now), dots=_dots(every), tests=None if now is None else _tests(now),
        critical=None if now is None else now.critical, cells=0 if now is None else len(now.cells),
        guide=advice(every), unmeasured=[line[2:].replace("`", "") for line in _unmeasured(every)],
    )  # fmt: skip


def _paragraphs(text: str) -> list[str]:
    """Return paragraphs without their heading and links, each point of a list on its own line."""
    plain = re.sub(r"\nThe same results .*", "", text.split("\n\n", 1)[1])
    joined = re.sub(r"\n(?!- |\n)\s*", " ", plain.strip().replace("\n\n", "\0"))
    return joined.split("\0")


def _all(every: Entries, part: str) -> list[str]:
    return sorted({getattr(cell, part) for cell, _ in every})


def _record(cell: Cell, method: str, entry: Entry, scale: Scale) -> dict[str, object]:
    values = [(shown(entry, name), entry.mean(name)) for name in MEASURES]
    return {
        "cell": [cell.data, cell.shift, cell.participation, cell.change, method],
        "setting": _setting(method, entry, scale), "seeds": len(entry.seeds), "error": entry.error,
        "values": [(text, "" if mean is None else json.dumps(mean)) for text, mean in values],
    }  # fmt: skip


def _bars(now: Standing | None) -> list[tuple[str, float]]:
    """Return methods with their mean rank, the best first."""
    if now is None:
        return []
    order = np.argsort(now.mean_ranks, kind="stable").tolist()
    return [(now.methods[each], float(now.mean_ranks[each])) for each in order]


def _dots(every: Entries) -> list[tuple[str, float, float]]:
    """Return methods with their mean megabytes and accuracy, over cells in common.

    They are in the order of their accuracy, so that the labels of neighbours can be kept apart.
    """
    found, shown_of = [], in_common(every) or every
    for method in _methods(every):
        mine = [entry for (_, name), entry in shown_of.items() if name == method and entry.seeds]
        sent = [m for entry in mine if (m := entry.mean("megabytes")) is not None]
        right = [m for entry in mine if (m := entry.mean("accuracy")) is not None]
        if sent and right:
            found.append((method, float(np.mean(sent)), float(np.mean(right))))
    return sorted(found, key=lambda each: -each[2])
