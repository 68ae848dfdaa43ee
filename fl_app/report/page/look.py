"""The common parts of all figures on the page: plotly mappings, colours of both schemes."""

from collections.abc import Sequence
from typing import Any

Trace = dict[str, Any]
Figure = dict[str, Any]
"""`data` and `layout` as plotly.js reads them."""

INK, MUTED, RULE, GROUND = "#1f2328", "#6b7280", "#d9dee4", "#ffffff"
COMMUNITIES = (
    "#012d9d",
    "#d97a0b",
    "#1f7662",
    "#a862a6",
    "#3c89f6",
    "#d01434",
    "#453500",
    "#810cdb",
)
"""Chosen to maximise the smallest distance for colour-blind readers; a test checks it."""
DARK = {
    INK: "#e6e9ee",
    MUTED: "#9aa4b2",
    RULE: "#333a45",
    GROUND: "#14171c",
    "#012d9d": "#1b89b8",
    "#d97a0b": "#e8b404",
    "#1f7662": "#66f5d8",
    "#a862a6": "#f1058d",
    "#3c89f6": "#8cb8ea",
    "#d01434": "#f57f7c",
    "#453500": "#c3fb1b",
    "#810cdb": "#c466fd",
}
"""Maps each colour of the light scheme to the dark scheme; the page replaces them."""
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "x", "pentagon")
REMOVED = -1
"""Stands for the community of a client that was removed from training."""


def colour(rank: int) -> str:
    """Return the colour of the community of a rank, grey for removed clients."""
    return MUTED if rank == REMOVED else COMMUNITIES[rank % len(COMMUNITIES)]


def dash(rank: int) -> str:
    """Return the line style of a community: a different one when colours repeat."""
    return DASHES[rank // len(COMMUNITIES) % len(DASHES)]


def axis(title: str = "", **more: Any) -> dict[str, Any]:
    """Return an axis with a light grid."""
    lines = {"gridcolor": RULE, "linecolor": RULE, "zerolinecolor": RULE, "automargin": True}
    return {"title": {"text": title, "standoff": 8}} | lines | more


def bare(**more: Any) -> dict[str, Any]:
    """Return an invisible axis."""
    return {"visible": False, "showgrid": False, "zeroline": False} | more


def share(title: str, **more: Any) -> dict[str, Any]:
    """Return an axis for shares in [0, 1], shown as percentages."""
    return axis(title, tickformat=".0%", range=[-0.02, 1.04]) | more


def figure(traces: Sequence[Trace], *, height: int, **layout: Any) -> Figure:
    """Return a figure of the traces, `height` in pixels."""
    base = {
        "height": height,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": INK, "size": 13, "family": "system-ui, sans-serif"},
        "margin": {"l": 56, "r": 16, "t": 16, "b": 44},
        "hoverlabel": {"bgcolor": GROUND, "bordercolor": RULE, "font": {"color": INK}},
        "legend": {
            "orientation": "h",
            "y": 1.02,
            "yanchor": "bottom",
            "x": 0,
            "traceorder": "normal",
        },
        "hovermode": "closest",
    }
    return {"data": list(traces), "layout": base | layout}


def line(x: Sequence[Any], y: Sequence[Any], name: str, shade: str, **more: Any) -> Trace:
    """Return a line through points, broken where a value is None; a single point is a dot."""
    style = {"color": shade, "width": 2, "dash": more.pop("dash", "solid")}
    mode = "lines" if len(x) > 1 else "markers"
    return {
        "type": "scatter", "mode": mode, "x": list(x), "y": list(y), "name": name,
        "line": style, "marker": {"color": shade},
    } | more  # fmt: skip
