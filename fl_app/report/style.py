"""The common style of all figures: suitable for colour-blind readers and for print."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter
from matplotlib.transforms import blended_transform_factory

BLUE, ORANGE, GREEN, RED, PINK, SKY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
)
GREY = "#666666"
PALETTE = (BLUE, ORANGE, GREEN, PINK, SKY, RED, "#F0E442", "#000000")
"""The colours of Okabe and Ito, ordered so that similar colours are far apart."""
MARKERS = "osD^vP*X<>"
CHANGE_MARKERS = {"joined": "^", "left": "v", "drifted": "D", "skipped": "x"}
CHANGE_NAMES = {"skipped": "round skipped"}
"""Names in a legend that are not `clients <kind>`."""
SETTINGS = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
    "legend.frameon": True,  # lines of events cross panels, and would cross its words
    "legend.edgecolor": "none",
    "legend.framealpha": 0.8,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,
}

PLAIN_TEXT = {"text.parse_math": False}
"""For figures whose texts are settings of the user: dollars in them are no mathematics."""


TICK_INCHES = 0.7
"""The place of a number below a panel: six letters of ten points, and a gap."""


def space_numbers(figure: Figure) -> None:
    """Give each panel as many numbers on its x axis as stand apart in its width.

    Matplotlib's own choice expects numbers of at most four letters. The widths are known only after
    the layout, so call it once the figure has all of its texts.
    """
    figure.draw_without_rendering()
    for axes in figure.axes:
        most = max(1, int(axes.get_window_extent().width / figure.dpi / TICK_INCHES))
        axes.xaxis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))


def new_figure(*, rows: int, width: float = 6.0, height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure with stacked panels that share the axis of rounds; sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, 1, sharex=True, squeeze=False)
    panels: list[Axes] = list(grid[:, 0])
    panels[-1].set_xlabel("round")
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    return figure, panels


def colours(count: int) -> list[str]:
    """Return `count` colours that differ as much as possible."""
    if count <= len(PALETTE):
        return list(PALETTE[:count])
    return [to_hex(colour) for colour in colormaps["viridis"](np.linspace(0, 1, count))]


def ink(colour: str) -> str:
    """Return black or white, whichever is more readable on `colour`."""
    luminance = np.dot(to_rgb(colour), (0.299, 0.587, 0.114))
    return "black" if luminance > 0.5 else "white"


def percent(axes: Axes) -> None:
    """Show the whole range [0, 1] as percentages."""
    axes.set_ylim(-0.02, 1.04)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))


def broken(axes: Axes, rounds: Sequence[int], values: Sequence[float], **style: Any) -> None:
    """Draw a line with a gap at each round without a value, and a dot where no line can be."""
    known = dict(zip(rounds, values, strict=True))
    every = range(min(known, default=1), max(known, default=0) + 1)
    alone = [n - every.start for n in known if not {n - 1, n + 1} & known.keys()]
    heights = [known.get(number, np.nan) for number in every]
    axes.plot(every, heights, marker="o" if alone else None, markevery=alone, **style)


def dot(rounds: Sequence[int]) -> str | None:
    """Return the marker of a line: a dot if it has a single point, which no line shows."""
    return "o" if len(rounds) == 1 else None


def mark(axes: Axes, rounds: Sequence[int], text: str, *, colour: str = GREY) -> None:
    """Draw a dashed line at each of the rounds, with a text above the first line."""
    above = blended_transform_factory(axes.transData, axes.transAxes)
    for number in rounds:
        axes.axvline(number, color=colour, linestyle=(0, (4, 3)), linewidth=1.2, zorder=1)
    if rounds and text:
        axes.text(rounds[0], 1.02, text, color=colour, transform=above, ha="center", fontsize=9)


def mark_changes(axes: Axes, changes: Mapping[str, Sequence[int]]) -> None:
    """Draw a marker at the bottom of the panel where clients joined, left or drifted, or nothing
    was learnt.

    Each kind has its own height, since several kinds can happen in one round.
    """
    foot = blended_transform_factory(axes.transData, axes.transAxes)
    for place, (kind, rounds) in enumerate(changes.items()):
        height = 0.02 + 0.05 * place
        name = CHANGE_NAMES.get(kind, f"clients {kind}")
        axes.plot(
            rounds, [height] * len(rounds), linestyle="", marker=CHANGE_MARKERS[kind], color=GREY,
            markersize=6, transform=foot, clip_on=False, label=name,
        )  # fmt: skip


def legend_dots(colour: Sequence[str], names: Sequence[str], markers: str) -> list[Line2D]:
    """Return legend entries: one dot per name, in its colour and marker."""
    return [
        Line2D([], [], linestyle="", marker=marker, color=shade, label=name, markersize=7)
        for shade, name, marker in zip(colour, names, markers, strict=True)
    ]
