"""Figures of a sweep over numbers: the main measures against each varied number."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product
from textwrap import wrap

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from fl_app.report.compare.aggregate import DEFAULT, label_of, varied
from fl_app.report.compare.figures import LINE_LETTERS, PAD_INCHES
from fl_app.report.compare.jobs import Job
from fl_app.report.compare.measures import MEASURES
from fl_app.report.style import MARKERS, colours, space_numbers

DRAWN = ("accuracy", "ari", "silhouette", "distance", "v_measure")
"""Measures that have a row of panels in the figure, if the runs have values."""


def curves(jobs: Sequence[Job]) -> Figure | None:
    """Draw the main measures against every numeric setting that was varied.

    There is one line per combination of the other settings; each point is a mean over the runs
    with this value. A run without a value, because its method has no such setting, has no point.
    """
    keys = varied(jobs)
    numbers = [key for key in keys if _is_number(jobs, key)]
    names = _telling(jobs, [key for key in keys if key not in numbers])
    rows = [m for m in DRAWN if any(j.measured.get(m) for j in jobs)]
    if not numbers or not rows:
        return None
    size = (3.6 * len(numbers) + 1.6, 2.2 * len(rows) + 0.6)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=PAD_INCHES))
    panels = figure.subplots(len(rows), len(numbers), squeeze=False, sharey="row")
    lines = _grouped(jobs, names)
    # narrow lines on wide ones: a covered line remains visible
    widths = np.geomspace(6, 1.2, len(lines))
    style = zip(lines, colours(len(lines)), MARKERS * len(lines), widths, strict=False)
    for label, colour, marker, width in style:
        look = {"color": colour, "marker": marker, "linewidth": width, "markersize": 4 + width}
        for (i, measure), (j, key) in product(enumerate(rows), enumerate(numbers)):
            x, y = _means(lines[label], key, measure)
            told = "\n".join(wrap(label_of(names, label), LINE_LETTERS))
            panels[i, j].plot(x, y, label=told, **look)
    for i, measure in enumerate(rows):
        panels[i, 0].set_ylabel(MEASURES[measure].label)
    for j, key in enumerate(numbers):
        panels[-1, j].set_xlabel(key)
    if names:
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper")
    space_numbers(figure)
    return figure


def _is_number(jobs: Iterable[Job], key: str) -> bool:
    """Whether the runs have at least two values of a setting, and all are numbers."""
    given = {job.overrides[key] for job in jobs if key in job.overrides}
    try:
        return len(set(map(float, given))) > 1
    except ValueError:
        return False


def _telling(jobs: Sequence[Job], keys: Sequence[str]) -> list[str]:
    """Return a subset of the keys that distinguishes the same groups of runs as all of them."""
    needed = list(keys)
    for key in reversed(keys):
        others = [each for each in needed if each != key]
        if others and len(_grouped(jobs, others)) == len(_grouped(jobs, needed)):
            needed = others
    return needed


def _means(jobs: Iterable[Job], key: str, measure: str) -> tuple[list[float], list[float]]:
    at = defaultdict(list)
    for job in jobs:
        value = job.measured.get(measure)
        if value is not None and key in job.overrides:
            at[float(job.overrides[key])].append(value)
    return sorted(at), [float(np.mean(at[x])) for x in sorted(at)]


def _grouped(jobs: Iterable[Job], keys: Sequence[str]) -> dict[tuple[str, ...], list[Job]]:
    groups = defaultdict(list)
    for job in jobs:
        groups[tuple(job.overrides.get(key, DEFAULT) for key in keys)].append(job)
    return groups
