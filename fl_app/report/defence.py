"""Figures of a run under attack: alpha_cross and splits, loyal accuracy, detection."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl_app.records.history import SPLITS as KINDS
from fl_app.report.run import Run, changes, series
from fl_app.report.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    colours,
    mark_changes,
    new_figure,
    percent,
)
from fl_app.types import Benign

BENIGN: Mapping[Benign, str] = {
    "largest": "the largest community",
    "root": "communities accurate on the server's own data",
}
SPLITS = {True: (GREEN, "split off: only malicious"), False: (RED, "split off: some loyal"),
          None: (GREY, "split")}  # fmt: skip


def splits(run: Run) -> Figure | None:
    """Draw the largest cross similarity of each cluster, and each split with its outcome.

    Sattler et al., ICASSP 2020, figure 2.
    """
    found: dict[str, tuple[list[int], list[float]]] = {}
    for record in run.rounds:
        for row, alpha in ((record.get("notes") or {}).get("alpha_cross") or {}).items():
            rounds, values = found.setdefault(row, ([], []))
            rounds.append(int(record["round"]))
            values.append(float(alpha))
    if not found:
        return None
    figure, (axes,) = new_figure(rows=1, height=3.6)
    for (row, (rounds, values)), colour in zip(found.items(), colours(len(found)), strict=True):
        axes.plot(rounds, values, color=colour, label=f"cluster {row}" if len(found) > 1 else None)
    _events(run, axes, dict(zip(*found["0"], strict=True)) if "0" in found else {})
    mark_changes(axes, changes(run.rounds))
    threshold = (run.config.get("strategy") or {}).get("alpha_threshold")
    if threshold is not None:
        axes.axhline(threshold, color=GREY, linestyle=":", label=f"threshold {threshold:g}")
    axes.set_ylabel("largest cross similarity")
    axes.legend(loc="best", frameon=True)  # its markers must not be taken for points
    return figure


def _events(run: Run, axes: Axes, heights: dict[int, float]) -> None:
    """Mark every split, and show the number of splits of each kind in the legend."""
    places: dict[bool | None, list[int]] = {}
    for record in run.rounds:
        for event in record["events"]:
            if event["kind"] in KINDS and event.get("clients"):
                places.setdefault(event.get("right"), []).append(int(record["round"]))
    for kind, rounds in places.items():
        colour, name = SPLITS[kind]
        label = f"{name} ({len(rounds)})"
        marks = [heights.get(number, 0.0) for number in rounds]
        axes.plot(rounds, marks, "o", color=colour, markersize=7, label=label)


def benign_rule(config: Mapping[str, Any]) -> str:
    """Return in words which communities the server assumes to be loyal."""
    rule = (config.get("graph") or {}).get("benign")
    return BENIGN[rule] if rule else "unknown, since config.yaml does not say it"


def defence(run: Run) -> Figure | None:
    """Draw the accuracy of the loyal clients, and recall and precision of the detection."""
    rounds, loyal = series(run.rounds, "attack", "loyal_accuracy")
    caught = series(run.rounds, "attack", "recall")
    if not caught[0]:
        return None
    figure, panels = new_figure(rows=2, height=5.0)
    panels[0].plot(rounds, loyal, color=BLUE, marker="o", markersize=3, label="loyal clients")
    success = series(run.rounds, "attack", "success")
    if success[0]:
        panels[0].plot(*success, color=RED, linestyle="--", label="success of the attack")
    panels[0].set_ylabel("accuracy")
    panels[1].plot(*caught, color=GREEN, label="recall of malicious clients")
    precision = series(run.rounds, "attack", "precision")
    panels[1].plot(*precision, color=ORANGE, linestyle="--", label="precision")
    panels[1].set_ylabel("detection")
    panels[1].set_title(f"assumed loyal: {benign_rule(run.config)}", loc="left", fontsize="small")
    for axes in panels:
        percent(axes)
        mark_changes(axes, changes(run.rounds))
        axes.legend(loc="lower right")
    return figure
