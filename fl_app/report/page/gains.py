"""The gain of each client: accuracy after against before."""

from collections.abc import Sequence

import numpy as np

from fl_app.report.page.clients import name_of
from fl_app.report.page.look import (
    COMMUNITIES,
    GROUND,
    MUTED,
    REMOVED,
    SYMBOLS,
    Figure,
    Trace,
    axis,
    colour,
    figure,
    line,
    share,
)
from fl_app.report.page.run_records import RunRecords

POINTS = "gain in percentage points"
LONGEST_LEGEND = 12
CELLS = 40
WIDTH = 2.5
"""Width of a bar of the histogram, in percentage points."""


def gains(records: RunRecords) -> Figure | None:
    """Draw accuracy after against before; clients above the diagonal have gained."""
    both = records.both
    if records.compared is None or not both:
        return None
    before, after = records.compared
    x, y = [records.before[c] for c in both], [records.after[c] for c in both]
    low = max(0.0, min(*x, *y) - 0.05)
    even = line([low, 1], [low, 1], "no change", MUTED, dash="dash", hoverinfo="skip")
    points = [_density(x, y)] if records.aggregated else _points(records, both)
    return figure(
        [*points, even],
        height=460,
        xaxis=share(f"accuracy before (round {before})", range=[low - 0.02, 1.03]),
        yaxis=share(f"accuracy after (round {after})", range=[low - 0.02, 1.03]),
    )


def gain(records: RunRecords) -> Figure | None:
    """Draw the gain of each client in descending order, or a histogram for many clients."""
    both = records.both
    if records.compared is None or not both:
        return None
    points = {c: round(100 * (records.after[c] - records.before[c]), 2) for c in both}
    if records.aggregated:
        return _histogram(list(points.values()))
    order = sorted(both, key=lambda client: (-points[client], client))
    bars = {
        "type": "bar", "x": list(range(len(order))), "y": [points[c] for c in order],
        "marker": {"color": [_shade(records.final.get(c)) for c in order], "line": {"width": 0}},
        "text": [f"client {c}, community {name_of(records.final.get(c))}" for c in order],
        "textposition": "none", "hovertemplate": "%{text}: %{y:+.1f} points<extra></extra>",
    }  # fmt: skip
    across = axis("clients", showticklabels=False, showgrid=False)
    return figure([bars], height=460, xaxis=across, yaxis=axis(POINTS), bargap=0.15)


def _histogram(points: Sequence[float]) -> Figure:
    edges = np.arange(WIDTH * (min(points) // WIDTH), max(points) + WIDTH + 1e-9, WIDTH)
    counts = np.histogram(points, edges)[0].tolist()
    bars = {
        "type": "bar", "x": (edges[:-1] + WIDTH / 2).tolist(), "y": counts, "width": WIDTH * 0.9,
        "marker": {"color": COMMUNITIES[0], "line": {"width": 0}},
        "hovertemplate": "%{y} clients around %{x:+.1f} points<extra></extra>",
    }  # fmt: skip
    return figure([bars], height=460, xaxis=axis(POINTS), yaxis=axis("clients"), bargap=0.05)


def _shade(rank: int | None) -> str:
    return COMMUNITIES[0] if rank is None else colour(rank)


def _points(records: RunRecords, clients: Sequence[int]) -> list[Trace]:
    ranks = sorted({records.final.get(client, REMOVED - 1) for client in clients})
    traces = []
    for rank in ranks:
        inside = [c for c in clients if records.final.get(c, REMOVED - 1) == rank]
        known = rank >= REMOVED
        name = name_of(rank) if known else "clients"
        traces.append({
            "type": "scatter", "mode": "markers", "x": [records.before[c] for c in inside],
            "y": [records.after[c] for c in inside], "text": [str(c) for c in inside],
            "name": f"community {name}" if rank >= 0 else name,
            "showlegend": len(ranks) <= LONGEST_LEGEND,
            "hovertemplate": "client %{text}: %{x:.1%} to %{y:.1%}<extra>%{fullData.name}</extra>",
            "marker": {
                "color": colour(rank) if known else COMMUNITIES[0], "size": 10,
                "line": {"color": GROUND, "width": 1},
                "symbol": "x" if rank == REMOVED else SYMBOLS[max(rank, 0) % len(SYMBOLS)],
            },
        })  # fmt: skip
    return traces


def _density(x: Sequence[float], y: Sequence[float]) -> Trace:
    edges = np.linspace(0, 1, CELLS + 1)
    counts = np.histogram2d(y, x, bins=(edges, edges))[0].astype(int)
    middle = np.round((edges[1:] + edges[:-1]) / 2, 4).tolist()
    return {
        "type": "heatmap", "x": middle, "y": middle,
        "z": [[count or None for count in row] for row in counts.tolist()],
        "colorscale": "Viridis", "colorbar": {"title": {"text": "clients"}, "thickness": 12},
        "hovertemplate": "%{z} clients: %{x:.0%} to %{y:.0%}<extra></extra>", "name": "clients",
    }  # fmt: skip
