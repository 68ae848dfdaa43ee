"""The metrics of the task over the rounds, one panel for each."""

from typing import Any

from fl_app.report.page.curves import over_clients, rounded, rounds_axis
from fl_app.report.page.events import lines, strip
from fl_app.report.page.look import INK, Figure, Trace, axis, figure, line
from fl_app.report.page.run_records import RunRecords
from fl_app.report.run import series

PANEL, KIND, GAP = 260, 26, 30
"""Heights of a panel, of a kind of events and between panels, in pixels."""


def metrics(records: RunRecords) -> Figure | None:
    """Draw every client, the communities and the mean of each metric of the task.

    Without accuracies, which have them, the events are below.
    """
    names, played = [*records.metrics], records.run.rounds
    if not names:
        return None
    last = len(names) + 1
    marks, kinds = strip(played, axis=f"y{last}")
    if series(played, "accuracy", "mean")[0]:
        marks, kinds = [], []
    height = PANEL * len(names) + KIND * len(kinds) + GAP * bool(kinds) + 90
    foot = KIND * len(kinds) / height
    lowest = last if kinds else last - 1
    across = rounds_axis(records, anchor=f"y{lowest}" if lowest > 1 else "y")
    layout: dict[str, Any] = {"xaxis": across}
    if kinds:
        layout[f"yaxis{last}"] = axis(
            type="category", domain=[0, foot], categoryarray=kinds[::-1], fixedrange=True
        )
        foot += GAP / height
    traces: list[Trace] = []
    for place, name in enumerate(names):
        number = "" if place == 0 else str(place + 1)
        top = 1 - (1 - foot) * place / len(names)
        low = top - (1 - foot) / len(names) + (GAP / height if place + 1 < len(names) else 0.0)
        layout[f"yaxis{number}"] = axis(name, domain=[max(low, foot), top])
        repeated = {"showlegend": False} if place else {}  # the legend is that of the first panel
        traces += [each | repeated for each in _curves(records, name, yaxis=f"y{number}")]
    return figure([*traces, *marks], height=height, shapes=lines(played), **layout)


def _curves(records: RunRecords, name: str, **more: str) -> list[Trace]:
    scores = {number: found for number, found in records.metrics[name].items() if found}
    rounds, means = series(records.run.rounds, "metrics", name, "mean")
    mean = line(rounds, [*map(rounded, means)], "mean over clients", INK, mode="lines+markers")
    mean["line"]["width"] = 3
    return [*over_clients(records, scores, **more), mean | more]
