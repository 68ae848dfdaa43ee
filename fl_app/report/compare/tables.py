"""A comparison as Markdown, CSV and LaTeX."""

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping
from textwrap import wrap

from fl_app.report.compare.aggregate import ABSENT, DEFAULT, Comparison, Row, Spread
from fl_app.report.compare.measures import MEASURES

Columns = Mapping[str, Mapping[str, Mapping[str, str]] | None]
"""Further columns by title: the text of a row, by an override and its value; None: no column."""
RULE = (
    "Bold: the best value of its setting, if its range mean ± standard deviation overlaps no other."
)
MOST_DIGITS = 6
"""Decimals of a column; smaller numbers are written with an exponent."""
SPECIAL = {letter: rf"\{letter}" for letter in "_%&#${}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
"""Characters that are commands in LaTeX."""


def heads(comparison: Comparison) -> list[str]:
    """Return the names of the columns."""
    return [*texts(comparison), *(MEASURES[m].label for m in comparison.measures)]


def texts(comparison: Comparison) -> list[str]:
    """Return the names of the columns before the measures: also the seeds, if rows have others."""
    return [*settings_heads(comparison), *(["seeds"] if comparison.mixed else [])]


def settings_heads(comparison: Comparison) -> list[str]:
    """Return the keys; of many, those of the method's name and one column for all others."""
    if not comparison.many:
        return [*comparison.keys]
    return [*_alone(comparison), "settings"]


def settings_cells(comparison: Comparison, row: Row) -> list[str]:
    """Return the values of a row under `settings_heads`."""
    given = dict(zip(comparison.keys, row.values, strict=True))
    if not comparison.many:
        return [ABSENT if key in row.absent else value for key, value in given.items()]
    alone = _alone(comparison)
    rest = [f"{k}={value}" for k, value in given.items() if k not in alone and value != DEFAULT]
    return [*comparison.part(row, alone), " ".join(rest) or DEFAULT]


def _alone(comparison: Comparison) -> list[str]:
    return [key for key in comparison.keys if key == "strategy"]


def body(comparison: Comparison, bold: Callable[[str], str]) -> list[list[str]]:
    """Return the cells as text, row by row; `bold` marks the best."""
    best = {m: comparison.best(m) for m in comparison.measures}

    def written(row: Row, measure: str) -> str:
        return spread(row.cells[measure], form=_form(comparison, measure))

    def cell(row: Row, measure: str) -> str:
        if measure not in row.cells:
            return ""
        text = written(row, measure)
        if row not in best[measure]:
            return text
        beside = next(rows for rows in comparison.settings().values() if row in rows)
        others = [each for each in beside if each is not row and measure in each.cells]
        # two numbers that read the same are no difference to a reader
        return text if text in (written(each, measure) for each in others) else bold(text)

    return [
        [
            *settings_cells(comparison, row),
            *([", ".join(row.seeds)] if comparison.mixed else []),
            *(cell(row, m) for m in comparison.measures),
        ]
        for row in comparison.rows
    ]


def has_bold(rows: Iterable[Iterable[str]], mark: str) -> bool:
    """Return whether a cell is bold: best values that read like others are not."""
    return any(mark in cell for row in rows for cell in row)


def _form(comparison: Comparison, measure: str) -> str:
    """Return the format of a column; with `scales`, the smallest mean has two digits or more."""
    found = MEASURES[measure]
    means = [abs(row.cells[measure].mean) for row in comparison.rows if measure in row.cells]
    least = min((mean for mean in means if mean and math.isfinite(mean)), default=1.0)
    needed = 1 - math.floor(math.log10(least)) if found.scales else 0
    return ".1e" if needed > MOST_DIGITS else f".{max(found.digits, needed)}f"


def spread(cell: Spread, *, form: str) -> str:
    """Return mean and deviation, and the number of runs with a value if some have none."""
    text = f"{cell.mean:{form}}" if math.isfinite(cell.mean) else "infinite"
    if cell.known > 1 and math.isfinite(cell.std):
        text += f" ± {cell.std:{form}}"
    return text if cell.known == cell.runs else f"{text} ({cell.known} of {cell.runs})"


def markdown(
    comparison: Comparison,
    command: str,
    *,
    title: str = "A sweep",
    text: str = "",
    columns: Columns | None = None,
) -> list[str]:
    """Return the lines of a page with the table; `command` is the command that wrote it.

    `title` and `text` stand above the table; `columns` are further columns on its right.
    """
    beside = {
        name: rules
        for name, rules in (columns or {}).items()
        if rules and any(_note(rules, row.jobs[0].overrides) for row in comparison.rows)
    }
    titles = [*heads(comparison), *beside]
    common = ", ".join(f"`{k}={v}`" for k, v in comparison.common.items())
    lines = [
        f"# {title}",
        "",
        *([*wrap(text, 100), ""] if text else []),
        f"Written by `{command}`.",
        f"{over_seeds(comparison)}; settings common to all: {common or 'the defaults'}.",
    ]
    rows = body(comparison, lambda text: f"**{text}**")
    if has_bold(rows, "**"):
        lines.append(RULE)
    for cells, row in zip(rows, comparison.rows, strict=True):
        cells += [_note(rules, row.jobs[0].overrides) for rules in beside.values()]
    return [*lines, "", _row(titles), _row(["---"] * len(titles)), *map(_row, rows)]


def over_seeds(comparison: Comparison) -> str:
    """Return what the numbers are: a mean and a deviation if there are several seeds."""
    if comparison.mixed:
        return "Mean and standard deviation over the seeds of each row, which are not the same"
    if len(comparison.seeds) == 1:
        return f"Seed {comparison.seeds[0]} alone"
    return f"Mean and standard deviation over seeds {', '.join(comparison.seeds)}"


def _note(rules: Mapping[str, Mapping[str, str]], overrides: Mapping[str, str]) -> str:
    """Return the text of a further column for a run with these overrides."""
    notes = [str(texts.get(overrides.get(key, ""), "")) for key, texts in rules.items()]
    return "; ".join(each for each in notes if each)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(each.replace("|", r"\|") for each in cells) + " |"


def to_csv(comparison: Comparison) -> str:
    """Return a row per combination: its keys, runs, and mean and deviation of every measure."""
    file = io.StringIO()
    names = [f"{m}_{part}" for m in comparison.measures for part in ("mean", "std", "runs")]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*comparison.keys, "seeds", *names])
    for row in comparison.rows:
        cells = [row.cells.get(m) for m in comparison.measures]
        numbers = [number for cell in cells for number in _numbers(cell)]
        writer.writerow(
            [*_csv_values(comparison, row), " ".join(job.seed for job in row.jobs), *numbers]
        )
    return file.getvalue()


def _csv_values(comparison: Comparison, row: Row) -> list[str]:
    """Return the value of every key; an empty text is a setting that the method lacks."""
    given = zip(comparison.keys, row.values, strict=True)
    return ["" if key in row.absent else value for key, value in given]


def _numbers(cell: Spread | None) -> tuple[float | str, float | str, int]:
    """Return mean, deviation and number of runs; an empty text is an unknown number."""
    if cell is None:
        return "", "", 0
    return cell.mean, cell.std if math.isfinite(cell.std) else "", cell.known


def to_latex(comparison: Comparison) -> str:
    """Return a tabular for the package booktabs."""
    before = len(texts(comparison))
    columns = "l" * before + "r" * len(comparison.measures)
    rows = [
        [_escaped(cell) if i < before else cell for i, cell in enumerate(row)]
        for row in body(comparison, lambda text: rf"\textbf{{{text}}}")
    ]
    lines = [
        f"% {over_seeds(comparison)}",
        *([f"% {RULE.replace('±', '+-')}"] if has_bold(rows, r"\textbf") else []),
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(map(_escaped, heads(comparison))) + r" \\",
        r"\midrule",
        *(" & ".join(row).replace("±", r"$\pm$") + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return "".join(SPECIAL.get(letter, letter) for letter in text)
