"""Figures of federated k-means: convergence, paths of the centroids, centroids as images."""

import math
from collections import defaultdict

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from fl_app.report.run import Run, series
from fl_app.report.style import BLUE, GREEN, ORANGE, PINK, colours, new_figure, percent

AGREEMENT = (
    ("accuracy", "accuracy of all points, majority class per cluster", BLUE, "-"),
    ("v_measure", "v-measure", GREEN, "--"),
    ("homogeneity", "homogeneity", ORANGE, "-."),
    ("completeness", "completeness", PINK, ":"),
)
GRID = 400
"""Points per axis at which the regions are computed."""
MARGIN = 0.05
MOST_PICTURES = 100


def clustering(run: Run) -> Figure | None:
    """Draw the movement of the centroids, the distance of the points, agreement with classes."""
    movement = series(run.rounds, "notes", "movement")
    # clients report the distance to the received centroids, so the first round has none
    distance = series([r for r in run.rounds if r["round"] in movement[0]], "train_loss")
    if not movement[0] or run.clustered is None:
        return None
    known = [each for each in AGREEMENT if series(run.rounds, "notes", each[0])[0]]
    figure, panels = new_figure(rows=3 if known else 2, height=6.2 if known else 4.4)
    moves = [(n, value) for n, value in zip(*movement, strict=True) if value > 0]
    panels[0].plot(*zip(*moves, strict=True) if moves else ([], []), color=BLUE)
    panels[0].set_yscale("log")
    panels[0].set_ylabel("movement")
    panels[1].plot(*distance, color=BLUE)
    panels[1].set_ylabel("mean squared distance")
    panels[1].ticklabel_format(axis="y", useOffset=False)
    for name, label, colour, line in known:
        panels[2].plot(
            *series(run.rounds, "notes", name),
            color=colour, linestyle=line, marker="o", markersize=3, label=label,
        )  # fmt: skip
    if known:
        percent(panels[2])
        panels[2].set_ylabel("agreement")
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def paths(run: Run) -> Figure | None:
    """Draw points in the plane, the path of each centroid and its region at the end."""
    found = run.clustered
    if found is None or found.final.shape[1] != 2:
        return None
    ways = _ways(run, found.final)
    shown = [found.final, *ways] + ([] if found.points is None else [found.points])
    every = np.concatenate([each.reshape(-1, 2) for each in shown])
    low, high = every.min(axis=0), every.max(axis=0)
    edge = MARGIN * (high - low) + 1e-9
    figure = Figure(figsize=(5.6, 5.4), layout="constrained")
    axes = figure.subplots()
    axes.grid(visible=False)
    hues = colours(len(found.final))
    _regions(axes, found.final, low - edge, high + edge, hues)
    if found.points is not None:
        own = _nearest(found.points, found.final)
        shades = [hues[label] for label in own]
        axes.scatter(
            found.points[:, 0], found.points[:, 1], s=4, c=shades, alpha=0.45, linewidths=0
        )
    for way in np.stack(ways, axis=1) if ways else []:
        axes.plot(*way.T, color="black", linewidth=1.2)
        axes.plot(*way[0], marker="o", color="black", markerfacecolor="white", markersize=6)
    axes.plot(*found.final.T, "X", color="black", markeredgecolor="white", markersize=11)
    axes.set_aspect("equal")
    axes.set_title("points, regions, and centroids from start (o) to end (x)")
    return figure


def _ways(run: Run, final: np.ndarray) -> list[np.ndarray]:
    """Return the centroids (k, 2) of each round of the start that gave the final ones."""
    starts: dict[int, list[np.ndarray]] = defaultdict(list)
    for record in run.rounds:
        notes = record["notes"] or {}
        if "centroids" in notes:
            starts[notes["start"]].append(np.array(notes["centroids"]))
    return min(starts.values(), key=lambda s: float(np.abs(s[-1] - final).max()), default=[])


def _regions(
    axes: Axes, final: np.ndarray, low: np.ndarray, high: np.ndarray, hues: list[str]
) -> None:
    x, y = (np.linspace(low[i], high[i], GRID) for i in (0, 1))
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    own = _nearest(grid, final).reshape(GRID, GRID)
    axes.imshow(
        own, origin="lower", extent=(low[0], high[0], low[1], high[1]), aspect="auto", alpha=0.18,
        cmap=ListedColormap(hues), vmin=-0.5, vmax=len(final) - 0.5, interpolation="nearest",
    )  # fmt: skip


def _nearest(points: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    squares = ((points[:, None] - centroids[None]) ** 2).sum(axis=2)
    labels: np.ndarray = squares.argmin(axis=1)
    return labels


def centroids(run: Run) -> Figure | None:
    """Draw each centroid as an image, if the points are images."""
    found = run.clustered
    if found is None or len(found.shape) != 3 or min(found.shape[1:]) < 2:
        return None
    shown = found.final[:MOST_PICTURES].reshape(-1, *found.shape).transpose(0, 2, 3, 1)
    low, high = shown.min(), shown.max()
    columns = math.ceil(math.sqrt(2 * len(shown)))
    rows = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(columns * 0.85, rows * 0.95 + 0.1), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in panels:
        axes.set_axis_off()
    for number, (axes, picture) in enumerate(zip(panels, shown, strict=False)):
        scaled = (picture - low) / max(float(high - low), 1e-9)
        axes.imshow(scaled.squeeze(), cmap="gray", vmin=0, vmax=1)
        axes.set_title(str(number), fontsize=8, loc="center", pad=2)
    return figure
