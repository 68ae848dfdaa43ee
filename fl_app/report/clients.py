"""The accuracy of every client over the rounds, and the validity of the communities."""

from collections import defaultdict

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fl_app.report.run import Run, changes, series
from fl_app.report.style import BLUE, GREY, ORANGE, RED, mark, mark_changes, new_figure, percent

FOUND_ANEW = ("clustered", "reclustered")
FEW = 4
"""Evaluations below which each is marked: a line through one cannot be seen."""


def clients(run: Run) -> Figure | None:
    """Draw each client's accuracy in grey and their mean in black: Augello et al., 2023, figure 4.

    A client's line begins where it joins and ends where it leaves.
    """
    rounds, mean = series(run.rounds, "accuracy", "mean")
    lines = _lines(run)
    if not lines:
        return None
    figure, (axes,) = new_figure(rows=1, height=3.6)
    dot = "o" if len(rounds) < FEW else None
    for number, (xs, ys) in enumerate(lines.values()):
        label = "a client" if number == 0 else None
        axes.plot(xs, ys, color=GREY, alpha=0.35, linewidth=0.8, marker=dot, label=label)
    axes.plot(rounds, mean, color="black", linewidth=2.2, marker=dot, label="mean over clients")
    percent(axes)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_ylabel("accuracy on the clients' test data")
    mark_changes(axes, changes(run.rounds))
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def _lines(run: Run) -> dict[str, tuple[list[int], list[float]]]:
    """Return rounds and accuracies of each client."""
    lines: dict[str, tuple[list[int], list[float]]] = defaultdict(lambda: ([], []))
    for record in run.rounds:
        for client, value in ((record["accuracy"] or {}).get("clients") or {}).items():
            lines[client][0].append(int(record["round"]))
            lines[client][1].append(float(value))
    return lines


def validity(run: Run) -> Figure | None:
    """Draw the number of communities and the Dunn index that triggers a new clustering."""
    rounds, dunn = series(run.rounds, "notes", "dunn")
    if not rounds:
        return None
    figure, panels = new_figure(rows=2, height=4.6)
    counted = series(run.rounds, "communities", "count")
    panels[0].step(*counted, where="mid", color=BLUE)
    panels[0].set_ylim(bottom=0)
    panels[0].yaxis.set_major_locator(MaxNLocator(integer=True))
    panels[0].set_ylabel("communities")
    panels[1].plot(rounds, dunn, color=ORANGE, marker="o", markersize=3)
    panels[1].axhline(1, color=RED, linestyle=":", label="below 1: cluster again")
    panels[1].set_ylim(0, 1.5 * max(*dunn, 1.0))  # room for the legend
    panels[1].set_ylabel("Dunn index")
    for axes in panels:
        _mark_found_anew(run, axes)
        mark_changes(axes, changes(run.rounds))
    panels[1].legend(loc="upper right", ncols=3)
    return figure


def _mark_found_anew(run: Run, axes: Axes) -> None:
    found = [
        int(record["round"])
        for record in run.rounds
        if any(event["kind"] in FOUND_ANEW for event in record["events"])
    ]
    mark(axes, found if len(found) < len(run.rounds) / 2 else [], "")
