"""What a sweep over numbers shows: the main measures against each of them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np
from matplotlib.figure import Figure

from fl_app.report.compare.aggregate import varied
from fl_app.report.compare.jobs import Job
from fl_app.report.compare.measures import MEASURES
from fl_app.report.style import MARKERS, colours

DRAWN = ("accuracy", "ari", "silhouette", "distance", "v_measure")
"""Measures that have a row of the figure, where they were taken."""


def curves(jobs: Sequence[Job]) -> Figure | None:
    """Draw what was measured against every number that was varied.

    A line per combination of what is no number; each point is the mean over all the rest. A run
    that was not given a number, as where its method has no such setting, has no point there.
    """
    keys = varied(jobs)
    numbers = [key for key in keys if _is_number(jobs, key)]
    names = _telling(jobs, [key for key in keys if key not in numbers])
    rows = [m for m in DRAWN if any(j.measured[m] for j in jobs)]
    if not numbers or not rows:
        return None
    size = (3.6 * len(numbers) + 1.6, 2.2 * len(rows) + 0.6)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(rows), len(numbers), squeeze=False, sharey="row")
    lines = _grouped(jobs, names)
    # wider below narrower: a line that another one covers still shows
    widths = np.geomspace(6, 1.2, len(lines))
    style = zip(lines, colours(len(lines)), MARKERS * len(lines), widths, strict=False)
    for label, colour, marker, width in style:
        look = {"color": colour, "marker": marker, "linewidth": width, "markersize": 4 + width}
        for (i, measure), (j, key) in product(enumerate(rows), enumerate(numbers)):
            x, y = _means(lines[label], key, measure)
            panels[i, j].plot(x, y, label=" ".join(label), **look)
    for i, measure in enumerate(rows):
        panels[i, 0].set_ylabel(MEASURES[measure].label)
    for j, key in enumerate(numbers):
        panels[-1, j].set_xlabel(key)
    if names:
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper")
    return figure


def _is_number(jobs: Iterable[Job], key: str) -> bool:
    """Whether runs were given at least two values of a setting, and all are numbers."""
    given = {job.overrides[key] for job in jobs if key in job.overrides}
    try:
        return len(set(map(float, given))) > 1
    except ValueError:
        return False


def _telling(jobs: Sequence[Job], keys: Sequence[str]) -> list[str]:
    """Return the keys without those that part no runs which the others leave together."""
    kept = list(keys)
    for key in reversed(keys):
        others = [each for each in kept if each != key]
        if others and len(_grouped(jobs, others)) == len(_grouped(jobs, kept)):
            kept = others
    return kept


def _means(jobs: Iterable[Job], key: str, measure: str) -> tuple[list[float], list[float]]:
    at = defaultdict(list)
    for job in jobs:
        value = job.measured[measure]
        if value is not None and key in job.overrides:
            at[float(job.overrides[key])].append(value)
    return sorted(at), [float(np.mean(at[x])) for x in sorted(at)]


def _grouped(jobs: Iterable[Job], keys: Sequence[str]) -> dict[tuple[str, ...], list[Job]]:
    groups = defaultdict(list)
    for job in jobs:
        groups[tuple(job.overrides.get(key, "default") for key in keys)].append(job)
    return groups
