"""Figures over the rounds: accuracy, communities, stabilisation."""

from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fl_app.records.rounding import share
from fl_app.report.run import (
    Run,
    changes,
    clustering_rounds,
    first_right_round,
    planted_count,
    series,
)
from fl_app.report.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    broken,
    dot,
    mark,
    mark_changes,
    new_figure,
    percent,
)

AGREEMENT = (
    ("pure_share", "pure share (FLIC)", BLUE, "-"),
    ("majority_purity", "majority purity", ORANGE, "--"),
    ("ari", "adjusted Rand index", GREEN, "-."),
)


def accuracy(run: Run) -> Figure | None:
    """Draw mean accuracy over the clients, plus and minus their standard deviation."""
    rounds, mean = series(run.rounds, "accuracy", "mean")
    if not rounds:
        return None
    _, std = series(run.rounds, "accuracy", "std")
    figure, (axes,) = new_figure(rows=1, height=3.6)
    low, high = np.subtract(mean, std), np.add(mean, std)
    axes.fill_between(
        rounds,
        np.clip(low, 0, 1),
        np.clip(high, 0, 1),
        color=BLUE,
        alpha=0.18,
        linewidth=0,
        label="standard deviation over clients",
    )
    axes.plot(rounds, mean, color=BLUE, marker="o", markersize=3, label="mean over clients")
    overall = series(run.rounds, "global_accuracy")
    if overall[0]:
        axes.plot(*overall, color=ORANGE, linestyle="--", label="the global model")
    percent(axes)
    axes.set_ylabel("accuracy on the clients' test data")
    _annotate(axes, rounds, mean, clustering_rounds(run.rounds))
    mark_changes(axes, changes(run.rounds))
    axes.legend(loc=_free_corner(rounds, mean))
    return figure


def _free_corner(rounds: list[int], shares: list[float]) -> Literal["upper right", "lower right"]:
    """Return the corner on the right in which a legend does not cover a curve of shares."""
    late = [y for x, y in zip(rounds, shares, strict=True) if 2 * x >= rounds[0] + rounds[-1]]
    return "upper right" if min(late) < 0.3 and max(late) < 0.7 else "lower right"


def _annotate(axes: Axes, rounds: list[int], mean: list[float], clustered: list[int]) -> None:
    """Label the points at the clustering round and at the end with their accuracy."""
    mark(axes, clustered, "clustering")
    points = [(rounds[-1], mean[-1], "end", (9, -4), "left")]
    before = [i for i, number in enumerate(rounds) if clustered and number <= clustered[0]]
    if before and before[-1] != len(rounds) - 1:
        i = before[-1]
        late = 2 * rounds[i] > rounds[0] + rounds[-1]  # the label goes to the side with room
        offset, side = ((-7, 8), "right") if late else ((7, -18), "left")
        points.append((rounds[i], mean[i], "before", offset, side))
    for x, y, name, offset, side in points:
        axes.plot([x], [y], marker="o", markersize=7, color=BLUE, markeredgecolor="white")
        axes.annotate(
            f"{name} {share(y, 1)}",
            (x, y),
            xytext=offset,
            textcoords="offset points",
            ha=side,
            color=BLUE,
            fontweight="bold",
        )


def communities(run: Run) -> Figure | None:
    """Draw the number of communities, and with several planted groups the agreement with them."""
    rounds, count = series(run.rounds, "communities", "count")
    if not rounds:
        return None
    known = [item for item in AGREEMENT if series(run.rounds, "communities", item[0])[0]]
    if planted_count(run) == 1:
        known = []  # with one group there is nothing to agree with
    figure, panels = new_figure(rows=2 if known else 1, height=5.0 if known else 3.0)
    if known:
        top = panels[0]
        for name, label, colour, line in known:
            xs, ys = series(run.rounds, "communities", name)
            top.plot(xs, ys, color=colour, linestyle=line, marker=dot(xs), label=label)
        percent(top)
        top.set_ylim(min(-0.02, *top.dataLim.intervaly), 1.04)
        top.set_ylabel("agreement with groups")
        top.legend(loc="lower right")
    for axes in panels:
        mark_changes(axes, changes(run.rounds))
    _count_panel(run, panels[-1], rounds, count)
    _mark_communities(run, panels)
    return figure


def _count_panel(run: Run, axes: Axes, rounds: list[int], count: list[float]) -> None:
    found = "communities found"
    axes.step(rounds, count, where="mid", color=BLUE, marker=dot(rounds), label=found)
    planted = planted_count(run)
    if planted is not None and planted > 1:
        axes.axhline(planted, color=RED, linestyle=":", label=f"planted groups: {planted}")
    axes.set_ylim(0, max([*count, planted or 0]) * 1.15 + 0.5)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("communities")
    axes.legend(loc="lower right")


def _mark_communities(run: Run, panels: list[Axes]) -> None:
    """Mark the clustering and the round from which the communities are always right."""
    clustered, right = clustering_rounds(run.rounds), first_right_round(run.rounds)
    span = max(len(run.rounds), 1)
    # Two texts closer than this would overlap, so they are joined into one.
    close = right is not None and bool(clustered) and abs(right - clustered[0]) < 0.3 * span
    for number, axes in enumerate(panels):
        first = number == 0
        joint = f"right from round {right}, clustering after {clustered[0]}" if close else ""
        mark(axes, clustered, "clustering" if first and not close else "")
        if right is not None:
            text = joint or f"right from round {right}"
            mark(axes, [right], text if first else "", colour=GREEN)


def stabilisation(run: Run) -> Figure | None:
    """Draw the training loss and the stability criterion."""
    rounds, loss = series(run.rounds, "train_loss")
    steps, criterion = series(run.rounds, "stability")
    if not rounds:
        return None
    figure, panels = new_figure(rows=2 if steps else 1, height=4.6 if steps else 3.0)
    broken(panels[0], rounds, loss, color=BLUE)
    panels[0].set_ylim(bottom=0)
    panels[0].set_ylabel("training loss")
    marks = changes(run.rounds)
    for number, axes in enumerate(panels):
        mark(axes, clustering_rounds(run.rounds), "clustering" if number == 0 else "")
        mark_changes(axes, marks)
    if marks:
        panels[0].legend(loc="upper right")
    if steps:
        broken(panels[1], steps, criterion, color=ORANGE, label="fall of the loss / first loss")
        strategy = run.config.get("strategy") or {}
        if strategy.get("cluster_round") == "auto":  # else the tolerance has no effect
            tolerance = strategy["stability_tolerance"]
            text = f"tolerance {tolerance:g}"
            panels[1].axhline(tolerance, color=RED, linestyle=":", label=text)
        panels[1].axhline(0, color=GREY, linewidth=0.8)
        panels[1].set_ylabel("stability criterion")
        panels[1].legend(loc="upper right")
    return figure
