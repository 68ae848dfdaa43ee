"""The similarity matrix and the community graph, one frame per snapshot."""

from base64 import b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from fl_app.report.network import spread_out, strong_edges
from fl_app.report.page.cells import Cells, cells, distinct
from fl_app.report.page.clients import name_of, ranges
from fl_app.report.page.look import (
    GROUND,
    MUTED,
    REMOVED,
    RULE,
    SYMBOLS,
    Figure,
    Trace,
    bare,
    colour,
    figure,
)
from fl_app.report.page.run_records import FULL_SCALE, RunRecords

NAMED = 40
"""Up to this number of nodes, each has a label beside its dot."""
ROOM = 0.8
"""Free space around the graph, in units in which a client has an area of pi."""
STEPS = 254
NOTHING = 255
"""Largest grade of a cell, which is stored in one byte, and the code for a missing value."""


def frames(records: RunRecords) -> list[dict[str, Any]]:
    """Return round, caption, matrix and graph of every snapshot that differs from the last."""
    stages = [
        cells(snapshot, records.members_at(snapshot.round), until, planted=bool(records.planted))
        for snapshot, until in distinct(records.run.snapshots)
    ]
    if not stages:
        return []
    limits = _limits(stages)
    places = _places(records)
    shades = _shades(records)
    return [
        {
            "round": stage.round,
            "caption": _caption(stage),
            "matrix": matrix(stage, limits, shades),
            "graph": graph(stage, places),
        }
        for stage in stages
    ]


def _limits(stages: Sequence[Cells]) -> tuple[float, float]:
    """Return one scale for all frames: the middle 99 % of the values that are not NaN."""
    values = np.concatenate([s.similarity[~np.isnan(s.similarity)] for s in stages])
    low, high = np.percentile(values, [0.5, 99.5]).tolist()
    return low, max(high, low + 1e-9)


def _caption(stage: Cells) -> str:
    count = len({rank for rank in stage.ranks if rank != REMOVED})
    when = (
        f"round {stage.round}"
        if stage.until == stage.round
        else (f"rounds {stage.round} to {stage.until}")
    )
    text = f"{when}: {count} {'community' if count == 1 else 'communities'}"
    out = sum(len(m) for m, rank in zip(stage.members, stage.ranks, strict=True) if rank == REMOVED)
    return f"{text}, {stage.clients} clients" + (f", {out} of them removed" if out else "")


def _shades(records: RunRecords) -> dict[int, str]:
    """Return a colour for each planted group: that of the community with the largest overlap."""
    pairs = Counter(
        (records.groups[c], rank) for c, rank in records.final.items() if c in records.groups
    )
    groups = sorted(set(records.groups.values()))
    ranks = sorted({rank for _, rank in pairs} - {REMOVED})
    overlap = np.array([[pairs[group, rank] for rank in ranks] for group in groups])
    if not overlap.size:
        return {}
    matched = zip(*(side.tolist() for side in linear_sum_assignment(-overlap)), strict=True)
    found = {groups[row]: ranks[column] for row, column in matched}
    spare = iter(range(len(ranks), len(ranks) + len(groups)))
    return {group: colour(found[group] if group in found else next(spare)) for group in groups}


def matrix(stage: Cells, limits: tuple[float, float], shades: Mapping[int, str]) -> Figure:
    """Draw the similarity, with strips for communities and planted groups on its left."""
    m = len(stage.members)
    low, high = limits
    grades = np.clip((stage.similarity - low) / (high - low), 0, 1) * STEPS
    packed = np.where(np.isnan(grades), NOTHING, np.nan_to_num(grades).round()).astype(np.uint8)
    names = [_name(stage, place) for place in range(m)]
    what = "similarity" if high > 0 else "minus the distance"
    trace = {
        "type": "heatmap", "x": names, "y": names, "zmin": low, "zmax": high,
        "packed": {"bytes": b64encode(packed.tobytes()).decode(), "side": m, "low": low,
                   "high": high, "steps": STEPS},
        "colorscale": "Viridis", "hoverongaps": False,
        "colorbar": {"title": {"text": what, "side": "right"}, "thickness": 12},
        "hovertemplate": "%{x}<br>%{y}<br>" + what + " %{z:.3f}<extra></extra>",
    }  # fmt: skip
    strips = _strip(stage.ranks, {r: colour(r) for r in stage.ranks}, (-0.035, -0.01))
    strips += _strip(stage.groups, shades, (-0.07, -0.045))
    return figure(
        [trace],
        height=440,
        xaxis=bare(type="category", constrain="domain"),
        yaxis=bare(type="category", autorange="reversed", scaleanchor="x", constrain="domain"),
        shapes=[*strips, *_edges(stage.ranks)],
        margin={"l": 40, "r": 8, "t": 8, "b": 8},
    )


def _name(stage: Cells, place: int) -> str:
    who, group = ranges(sorted(stage.members[place])), stage.groups[place]
    planted = f", planted group {group}" if group >= 0 else ""
    several = "clients" if len(stage.members[place]) > 1 else "client"
    return f"{several} {who} ({_called(stage.ranks[place])}{planted})"


def _called(rank: int) -> str:
    return "removed" if rank == REMOVED else f"community {name_of(rank)}"


def _strip(kinds: list[int], shades: Mapping[int, str], x: tuple[float, float]) -> list[Trace]:
    """Return boxes beside the matrix, one for each sequence of cells of the same kind."""
    changes = [0, *(i for i in range(1, len(kinds)) if kinds[i] != kinds[i - 1]), len(kinds)]
    return [
        {
            "type": "rect", "xref": "x domain", "yref": "y", "x0": x[0], "x1": x[1],
            "y0": start - 0.5, "y1": end - 0.5, "fillcolor": shades[kinds[start]],
            "line": {"width": 0},
        }
        for start, end in pairwise(changes)
        if kinds[start] in shades
    ]  # fmt: skip


def _edges(ranks: list[int]) -> list[Trace]:
    """Return lines between the communities."""
    places = [i - 0.5 for i in range(1, len(ranks)) if ranks[i] != ranks[i - 1]]
    pen = {"color": "white", "width": 1}
    end = len(ranks) - 0.5
    across = [
        {"type": "line", "x0": -0.5, "x1": end, "y0": p, "y1": p, "line": pen} for p in places
    ]
    down = [{"type": "line", "y0": -0.5, "y1": end, "x0": p, "x1": p, "line": pen} for p in places]
    return across + down


def _places(records: RunRecords) -> dict[int, tuple[float, float]]:
    """Return one place per client for all frames, from the last known similarity of each pair.

    Clients of the same final community are placed together. Empty for more than FULL_SCALE
    clients.
    """
    snapshots = records.run.snapshots
    ids = sorted({client for s in snapshots for client in s.ids.tolist()})
    if len(ids) > FULL_SCALE:
        return {}
    whole = np.full((len(ids), len(ids)), min(float(s.similarity.min()) for s in snapshots))
    for snapshot in snapshots:
        rows = np.searchsorted(ids, snapshot.ids)
        whole[np.ix_(rows, rows)] = snapshot.similarity
    kinds = [records.final.get(client, REMOVED - 1) for client in ids]
    found = spread_out(len(ids), strong_edges(whole), kinds).tolist()
    return {client: (x, y) for client, (x, y) in zip(ids, found, strict=True)}


def graph(stage: Cells, places: Mapping[int, tuple[float, float]]) -> Figure:
    """Draw each cell in the colour of its community, connected to the most similar cells."""
    edges = strong_edges(np.nan_to_num(stage.similarity, nan=-np.inf))
    if places:
        at = np.array([places[members[0]] for members in stage.members])
    else:
        at = spread_out(len(stage.members), edges, stage.ranks)
    ranks = np.array(stage.ranks)
    within = ranks[edges[:, 0]] == ranks[edges[:, 1]]
    traces = [_lines(at, edges[within], RULE), _lines(at, edges[~within], MUTED)]
    for group in sorted(set(stage.groups)):
        traces += [_nodes(stage, at, group), *([_key(group)] if group >= 0 else [])]
    return figure(
        traces,
        height=440,
        xaxis=bare(**_frame([x for x, _ in places.values()])),
        yaxis=bare(scaleanchor="x", **_frame([y for _, y in places.values()])),
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
    )


def _frame(places: Sequence[float]) -> dict[str, list[float]]:
    """Return an axis range that is the same in all frames; empty without fixed places."""
    return {"range": [min(places) - ROOM, max(places) + ROOM]} if places else {}


def _lines(at: np.ndarray, edges: np.ndarray, shade: str) -> Trace:
    ends = np.round(at[edges], 3)
    gaps: list[list[float | None]] = [[*pair, None] for pair in ends[:, :, 0].tolist()]
    x = [value for part in gaps for value in part]
    y = [value for pair in ends[:, :, 1].tolist() for value in (*pair, None)]
    return {
        "type": "scatter", "mode": "lines", "x": x, "y": y, "hoverinfo": "skip",
        "line": {"color": shade, "width": 1}, "showlegend": False,
    }  # fmt: skip


def _nodes(stage: Cells, at: np.ndarray, group: int) -> Trace:
    mine = [place for place, found in enumerate(stage.groups) if found == group]
    few = len(stage.members) <= NAMED
    return {
        "type": "scatter", "mode": "markers+text" if few else "markers",
        "x": np.round(at[mine, 0], 3).tolist(), "y": np.round(at[mine, 1], 3).tolist(),
        "text": [ranges(stage.members[place]) for place in mine], "textposition": "top center",
        "textfont": {"size": 10}, "showlegend": False,
        "customdata": [_name(stage, place) for place in mine],
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {
            "color": [colour(stage.ranks[place]) for place in mine], "size": 13 if few else 9,
            "symbol": _symbol(group), "line": {"color": GROUND, "width": 1},
        },
    }  # fmt: skip


def _symbol(group: int) -> str:
    return SYMBOLS[group % len(SYMBOLS)] if group >= 0 else "circle"


def _key(group: int) -> Trace:
    """Return the entry of a planted group in the legend: its shape, in a neutral colour."""
    return {
        "type": "scatter", "mode": "markers", "x": [None], "y": [None],
        "name": f"planted group {group}",
        "marker": {"symbol": _symbol(group), "color": MUTED, "size": 10},
    }  # fmt: skip
