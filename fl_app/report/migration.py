"""An alluvial diagram: clients that move between communities from round to round."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from fl_app.report.run import Run, memberships, numbers
from fl_app.report.style import colours, ink, legend_dots

MOST_ROUNDS = 12
MOST_NAMED = 12
"""Communities in the legend, the first ones."""
BAR = 0.12
"""Half the width of a bar; neighbouring rounds have distance 1."""
GAP = 0.03
"""Free space between the bars of a round, as a share of all clients."""

Bars = dict[int, tuple[float, float]]
"""Lower and upper end of each community's bar."""


def migration(run: Run) -> Figure | None:
    """Draw a bar per community and round, and a band for clients with the same move."""
    named = memberships(run.rounds)
    if len(named) < 2 or not moves(named):
        return None
    rank = numbers(named, run.assignment)
    found = {r: {c: rank[name] for c, name in stage.items()} for r, stage in named.items()}
    rounds = chosen(found)
    names = sorted({name for r in rounds for name in found[r].values()})
    shade = dict(zip(names, colours(len(names)), strict=True))
    figure = Figure(figsize=(max(6.0, 0.8 * len(rounds)), 4.2), layout="constrained")
    axes = figure.subplots()
    most = max(len(found[r]) for r in rounds)
    bars = [stacks(found[r], names, most) for r in rounds]
    for place, (left, right) in enumerate(pairwise(rounds)):
        _bands(axes, place, (found[left], found[right]), (bars[place], bars[place + 1]), shade)
    for place, stack in enumerate(bars):
        _stack(axes, place, stack, shade, found[rounds[place]])
    axes.set_xticks(range(len(rounds)), [str(r) for r in rounds])
    axes.set(xlabel="round", yticks=[], xlim=(-0.4, len(rounds) - 0.6))
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_title("clients by community; a band is a set of clients with the same move")
    shown = names[:MOST_NAMED]
    told = legend_dots(
        [shade[n] for n in shown], [f"community {n}" for n in shown], "s" * len(shown)
    )
    figure.legend(handles=told, loc="outside lower center", ncols=4)
    return figure


def moves(found: Mapping[int, Mapping[int, int]]) -> bool:
    """Whether any client ever moved to another community."""
    stages = list(found.values())
    return any(a[client] != b[client] for a, b in pairwise(stages) for client in a)


def chosen(found: Mapping[int, Mapping[int, int]]) -> list[int]:
    """Return the first and last round and those with a change: at most MOST_ROUNDS of them."""
    rounds = list(found)
    changed = [b for a, b in pairwise(rounds) if found[a] != found[b]]
    unique = sorted({rounds[0], *changed, rounds[-1]})
    places = np.linspace(0, len(unique) - 1, min(MOST_ROUNDS, len(unique))).round().astype(int)
    return [unique[place] for place in places]


def stacks(members: Mapping[int, int], names: Sequence[int], most: int) -> Bars:
    counts, low, bars = Counter(members.values()), 0.0, {}
    for name in names:
        if counts[name]:
            bars[name] = (low, low + counts[name])
            low += counts[name] + GAP * most
    return bars


def _bands(
    axes: Axes,
    place: int,
    members: tuple[Mapping[int, int], Mapping[int, int]],
    bars: tuple[Bars, Bars],
    shade: Mapping[int, str],
) -> None:
    """Draw the moves between two rounds as bands, in the colour of the old community."""
    before, after = members
    flows = Counter((before[client], after[client]) for client in before if client in after)
    left = {name: low for name, (low, _) in bars[0].items()}
    right = {name: low for name, (low, _) in bars[1].items()}
    for (old, new), count in sorted(flows.items()):
        a, b = left[old], right[new]
        left[old], right[new] = a + count, b + count
        t = np.linspace(0, 1, 30)
        s = t * t * (3 - 2 * t)
        x = place + BAR + t * (1 - 2 * BAR)
        low, high = a + s * (b - a), a + count + s * (b - a)
        points = np.concatenate([np.stack([x, low], 1), np.stack([x, high], 1)[::-1]])
        alpha = 0.35 if old == new else 0.6
        axes.add_patch(Polygon(points, closed=True, color=shade[old], alpha=alpha, linewidth=0))


def _stack(
    axes: Axes, place: int, bars: Bars, shade: Mapping[int, str], members: Mapping[int, int]
) -> None:
    counts = Counter(members.values())
    for name, (low, high) in bars.items():
        axes.bar(place, high - low, 2 * BAR, low, color=shade[name])
        colour = ink(shade[name])
        axes.text(
            place, (low + high) / 2, str(counts[name]), ha="center", va="center",
            color=colour, fontsize=8,
        )  # fmt: skip
