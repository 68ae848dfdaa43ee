"""An alluvial diagram: clients that move between communities from round to round."""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from fl_app.report.migration import BAR, Bars, chosen, moves, stacks
from fl_app.report.page.clients import name_of, ranges
from fl_app.report.page.look import (
    COMMUNITIES,
    GROUND,
    REMOVED,
    Figure,
    Trace,
    axis,
    bare,
    colour,
    figure,
)
from fl_app.report.page.run_records import RunRecords

BEND = np.linspace(0, 1, 16)
SMOOTH = BEND * BEND * (3 - 2 * BEND)
HATCHES = ("", "/", "x", ".")
"""Patterns of bars whose colour is already used by another community."""
Stage = Mapping[int, int]


def alluvial(records: RunRecords) -> Figure | None:
    """Draw a bar per community and round, and a band for clients with the same move."""
    found = records.members
    if len(found) < 2 or not moves(found):
        return None
    rounds = chosen(found)
    names = sorted({rank for r in rounds for rank in found[r].values()}, key=_last_removed)
    most = max(len(found[r]) for r in rounds)
    bars = [stacks(found[r], names, most) for r in rounds]
    bands = [
        band
        for place, (left, right) in enumerate(pairwise(rounds))
        for band in _bands(place, (found[left], found[right]), (bars[place], bars[place + 1]))
    ]
    lasting = set(found[rounds[-1]].values())
    boxes = [_boxes(rank, rounds, bars) | {"showlegend": rank in lasting} for rank in names]
    ticks: dict[str, Any] = {
        "tickvals": list(range(len(rounds))),
        "ticktext": list(map(str, rounds)),
    }
    return figure(
        [*bands, *boxes],
        height=440,
        xaxis=axis(
            "round", showgrid=False, zeroline=False, range=[-0.3, len(rounds) - 0.7], **ticks
        ),
        yaxis=bare(),
        barmode="overlay",
        hoverdistance=5,
    )


def _last_removed(rank: int) -> tuple[bool, int]:
    return rank == REMOVED, rank


def _bands(place: int, stages: tuple[Stage, Stage], bars: tuple[Bars, Bars]) -> list[Trace]:
    """Return the moves between two rounds as bands, in the colour of the old community."""
    before, after = stages
    flows = Counter((before[client], after[client]) for client in before if client in after)
    left = {rank: low for rank, (low, _) in bars[0].items()}
    right = {rank: low for rank, (low, _) in bars[1].items()}
    traces = []
    for (old, new), count in sorted(
        flows.items(), key=lambda flow: list(map(_last_removed, flow[0]))
    ):
        a, b = left[old], right[new]
        left[old], right[new] = a + count, b + count
        who = sorted(c for c in before if before[c] == old and after.get(c) == new)
        traces.append(_band(place, (a, b), count, old, new) | {"text": _text(old, new, who)})
    return traces


def _band(place: int, lows: tuple[float, float], count: int, old: int, new: int) -> Trace:
    x = place + BAR + BEND * (1 - 2 * BAR)
    low = lows[0] + SMOOTH * (lows[1] - lows[0])
    outline = np.concatenate([low, (low + count)[::-1]])
    return {
        "type": "scatter", "mode": "lines", "fill": "toself", "hoveron": "fills",
        "x": np.round(np.concatenate([x, x[::-1]]), 3).tolist(),
        "y": np.round(outline, 2).tolist(), "showlegend": False,
        "line": {"width": 0}, "fillcolor": colour(old) + ("55" if old == new else "a0"),
        "hoverinfo": "text", "name": "",
    }  # fmt: skip


def _text(old: int, new: int, clients: list[int]) -> str:
    move = f"stay in {name_of(old)}" if old == new else f"{name_of(old)} to {name_of(new)}"
    return f"{len(clients)} clients, {move}: {ranges(clients)}"


def _boxes(rank: int, rounds: list[int], bars: list[Bars]) -> Trace:
    shown = [place for place in range(len(rounds)) if rank in bars[place]]
    spans = [bars[place][rank] for place in shown]
    counts = [round(high - low) for low, high in spans]
    name = "removed" if rank == REMOVED else f"community {name_of(rank)}"
    return {
        "type": "bar", "x": shown, "base": [low for low, _ in spans], "y": counts,
        "width": 2 * BAR, "name": name,
        "text": [str(count) for count in counts], "textposition": "inside", "textangle": 0,
        "insidetextanchor": "middle", "insidetextfont": {"color": GROUND, "size": 11},
        "marker": {"color": colour(rank), "line": {"width": 0},
                   "pattern": {"shape": HATCHES[max(rank, 0) // len(COMMUNITIES) % len(HATCHES)]}},
        "customdata": [rounds[place] for place in shown],
        "hovertemplate": name + " in round %{customdata}: %{y} clients<extra></extra>",
    }  # fmt: skip
