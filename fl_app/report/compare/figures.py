"""Methods on the same axes: over the rounds, and at the end with every seed."""

import math
from collections.abc import Sequence
from textwrap import wrap

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from fl_app.report.compare.aggregate import Comparison, Row
from fl_app.report.compare.measures import MEASURES, METRIC
from fl_app.report.style import MARKERS, colours, space_numbers

MOST_PANELS = 12
COLUMNS = 3
LINE_LETTERS = 32
"""Letters of a line in a title or label."""
LETTER_INCHES = 0.085
LINE_INCHES = 0.17
PAD_INCHES = 0.1
"""On each side of a panel, so that the last number below it is apart from the next one's first."""
DASHES = ("-", "--", "-.", ":")
"""Different styles keep overlapping lines visible."""
SHARES = ("accuracy", "ari")
"""Measures whose panels all have the same scale, 0 to 1."""


def drawn(comparison: Comparison) -> list[list[Row]]:
    """Return the rows of each setting that has a panel."""
    return list(comparison.settings().values())[:MOST_PANELS]


def courses(comparison: Comparison, measure: str) -> Figure | None:
    """Draw a measure over the rounds: a panel per setting, a line with deviation per method."""
    shown = [job for rows in drawn(comparison) for row in rows for job in row.jobs]
    if not any(len(job.courses.get(measure, ())) > 1 for job in shown):
        return None
    figure, panels = _panels(comparison, height=2.6)
    for axes, rows in panels:
        for row, (colour, marker, dashes) in _styled(comparison, rows):
            rounds, mean, std = _course(row, measure)
            if not rounds:
                continue
            few = marker if len(rounds) < 20 else ""
            label = _wrapped(comparison.name(row, comparison.method))
            axes.plot(rounds, mean, dashes, color=colour, marker=few, markersize=3.5, label=label)
            axes.fill_between(rounds, mean - std, mean + std, color=colour, alpha=0.15, linewidth=0)
        axes.set_xlabel("round")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _set_scale([axes for axes, _ in panels], measure)
    panels[0][0].set_ylabel(MEASURES[measure].label)
    lines = [axes.get_legend_handles_labels() for axes, _ in panels]
    named = {label: line for each in lines for line, label in zip(*each, strict=True)}
    labels = list(named)
    longest = max(len(each) for label in labels for each in label.splitlines() or [""])
    across = int(figure.get_figwidth() / (LETTER_INCHES * longest + 0.5))
    columns = max(1, min(4, len(labels), across))
    figure.legend(list(named.values()), labels, loc="outside lower center", ncols=columns)
    return figure


def _set_scale(panels: Sequence[Axes], measure: str) -> None:
    """Give panels with one y axis a range that has the lines of all of them."""
    first = panels[0]
    if measure in SHARES:
        lowest = [axes.dataLim.ymin for axes in panels if axes.has_data()]  # one can have no line
        first.set_ylim(top=1.04, bottom=min([-0.02, *lowest]))
    elif not measure.startswith(METRIC):
        first.set_ylim(bottom=0)
        first.yaxis.set_major_locator(MaxNLocator(integer=True))


def endings(comparison: Comparison, measure: str = "accuracy") -> Figure | None:
    """Draw the last value of a measure: a dot per seed, a bar at the mean of each method."""
    if measure not in comparison.measures:
        return None
    named = {comparison.part(row, comparison.method): comparison.name(row, comparison.method)
             for row in comparison.rows}  # fmt: skip
    places = {method: place for place, method in enumerate(named)}  # the same in all panels
    labels = [_wrapped(name) for name in named.values()]
    lines = 1 + max(label.count("\n") for label in labels)
    each = 0.15 + LINE_INCHES * lines
    figure, panels = _panels(comparison, height=0.9 + each * len(places))
    for axes, rows in panels:
        for row, (colour, marker, _) in _styled(comparison, rows):
            place = places[comparison.part(row, comparison.method)]
            known = [v for job in row.jobs if (v := job.measured.get(measure)) is not None]
            axes.plot(
                known, [place] * len(known), marker, color=colour, markersize=6, alpha=0.75,
            )  # fmt: skip
            if known:
                axes.plot([np.mean(known)], [place], "|", color=colour, markersize=18)
        axes.set_yticks(range(len(places)), labels)
        axes.set_ylim(len(places) - 0.5, -0.5)
        axes.set_xlabel(MEASURES[measure].label)
    space_numbers(figure)
    return figure


def _panels(
    comparison: Comparison, *, height: float
) -> tuple[Figure, list[tuple[Axes, list[Row]]]]:
    """Return axes of the same scale, one per setting, with the rows of that setting."""
    settings = drawn(comparison)
    titles = [_wrapped(comparison.name(rows[0], comparison.setting)) for rows in settings]
    columns = min(COLUMNS, len(settings))
    lines = math.ceil(len(settings) / columns)
    width = 6.4 if columns == 1 else 3.1 * columns + 0.6
    above = 0.3 + LINE_INCHES * max(title.count("\n") for title in titles)
    layout = ConstrainedLayoutEngine(w_pad=PAD_INCHES)
    figure = Figure(figsize=(width, (height + above) * lines + 0.4), layout=layout)
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for axes in grid[len(settings) :]:
        axes.set_axis_off()
    for axes, title in zip(grid, titles, strict=False):
        if comparison.setting:
            axes.set_title(title)
    return figure, list(zip(grid.tolist(), settings, strict=False))


def _wrapped(name: str) -> str:
    """Return a name in lines that fit above a panel and beside another one in a legend."""
    return "\n".join(wrap(name, LINE_LETTERS, break_long_words=False))


def _styled(comparison: Comparison, rows: list[Row]) -> list[tuple[Row, tuple[str, str, str]]]:
    """Return each row with the colour, marker and dashes of its method, equal in all panels."""
    methods = list(dict.fromkeys(comparison.part(r, comparison.method) for r in comparison.rows))
    shades = colours(len(methods))
    places = [methods.index(comparison.part(row, comparison.method)) for row in rows]
    return [
        (row, (shades[i], MARKERS[i % len(MARKERS)], DASHES[i % len(DASHES)]))
        for row, i in zip(rows, places, strict=True)
    ]


def _course(row: Row, measure: str) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Return the rounds that all runs of a row have, and mean and deviation (r,) over the runs."""
    known = [found for job in row.jobs if (found := job.courses.get(measure))]
    rounds = sorted(set.intersection(*(set(each) for each in known))) if known else []
    values = np.array([[each[number] for number in rounds] for each in known])
    if not values.size:
        return [], np.empty(0), np.empty(0)
    return rounds, values.mean(axis=0), values.std(axis=0)
