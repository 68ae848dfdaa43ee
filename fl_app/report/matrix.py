"""The similarity matrix of the clients, ordered by community, at each snapshot."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from fl_app.records.rounding import counted
from fl_app.records.snapshot import Snapshot
from fl_app.report.run import Run, clustering_rounds, removed_until
from fl_app.report.style import colours, legend_dots

MOST_PANELS = 6
COLUMNS = 3
PANEL_INCHES = 2.6
LONGEST_LEGEND = 10


def similarity(run: Run) -> Figure | None:
    """Draw the matrices side by side on one scale, each with a strip of the planted groups."""
    shown = _spread([s for s in _meant(run) if len(s.ids) > 1])
    if not shown:
        return None
    # Four panels fill a square of two by two.
    columns = 2 if len(shown) == COLUMNS + 1 else min(COLUMNS, len(shown))
    rows = math.ceil(len(shown) / columns)
    size = (columns * PANEL_INCHES + 1.2, rows * (PANEL_INCHES + 0.3) + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    groups = np.unique(np.concatenate([s.groups[s.groups >= 0] for s in shown]))
    limits = _limits(shown)
    for axes, snapshot in zip(panels, shown, strict=False):
        removed = removed_until(run.rounds, snapshot.round)
        image = _panel(axes, snapshot, limits, groups)
        axes.set_title(_title(snapshot, removed), size=9)
    for axes in panels[len(shown) :]:
        axes.set_axis_off()
    figure.colorbar(image, ax=list(panels), label="similarity", shrink=0.8, aspect=30)
    count = len(groups)
    if 0 < count <= LONGEST_LEGEND:
        names = [f"group {group}" for group in groups.tolist()]
        dots = legend_dots(colours(count), names, "s" * count)
        figure.legend(handles=dots, loc="outside lower center", ncols=min(count, 5))
    return figure


def _meant(run: Run) -> list[Snapshot]:
    """Return the snapshots at the clustering and at the configured rounds, else all."""
    named = (run.config.get("records") or {}).get("snapshot_rounds") or []
    chosen = {*named, *clustering_rounds(run.rounds)}
    return [s for s in run.snapshots if s.round in chosen] or run.snapshots


def _spread(snapshots: list[Snapshot]) -> list[Snapshot]:
    """Return at most MOST_PANELS of the snapshots, including the first and the last."""
    if len(snapshots) <= MOST_PANELS:
        return snapshots
    chosen = np.linspace(0, len(snapshots) - 1, MOST_PANELS).round().astype(int)
    return [snapshots[i] for i in chosen]


def _limits(snapshots: list[Snapshot]) -> tuple[float, float]:
    """Return one scale for all: the middle 98 % of the off-diagonal values."""
    off = [s.similarity[~np.eye(len(s.ids), dtype=bool)] for s in snapshots]
    low, high = np.percentile(np.concatenate(off), [1, 99])
    return float(low), float(high)


def _panel(
    axes: Axes, snapshot: Snapshot, limits: tuple[float, float], groups: np.ndarray
) -> AxesImage:
    """Draw one matrix, its clients sorted by community, then by group."""
    order = np.lexsort((snapshot.ids, snapshot.groups, snapshot.labels))
    matrix = snapshot.similarity[np.ix_(order, order)].astype(float)
    np.fill_diagonal(matrix, np.nan)  # a client has no similarity to itself
    image = axes.imshow(
        matrix, cmap="viridis", vmin=limits[0], vmax=limits[1], interpolation="nearest"
    )
    labels = snapshot.labels[order]
    edges = np.flatnonzero(np.diff(labels)) + 0.5
    axes.hlines(edges, -0.5, len(labels) - 0.5, color="white", linewidth=0.8)
    axes.vlines(edges, -0.5, len(labels) - 0.5, color="white", linewidth=0.8)
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    if len(groups):
        planted = snapshot.groups[order]
        # clients name their groups, by any number
        ranks = np.where(planted < 0, -1, np.searchsorted(groups, planted))
        _strip(axes, ranks, len(groups))
    return image


def _title(snapshot: Snapshot, removed: list[int]) -> str:
    out = np.isin(snapshot.ids, removed)
    communities = counted(len(np.unique(snapshot.labels[~out])), "community", "communities")
    text = f"round {snapshot.round}: {communities}, {len(out)} clients"
    return f"{text},\n{out.sum()} of them removed" if out.any() else text


def _strip(axes: Axes, groups: np.ndarray, count: int) -> None:
    """Draw the planted group of each row to the left of the matrix; unknown is white."""
    strip = axes.inset_axes((-0.06, 0.0, 0.04, 1.0))
    shown = np.ma.masked_less(groups, 0)[:, None]
    strip.imshow(
        shown,
        cmap=ListedColormap(colours(count)),
        vmin=-0.5,
        vmax=count - 0.5,
        aspect="auto",
        interpolation="nearest",
    )
    strip.set_axis_off()
