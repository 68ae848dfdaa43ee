"""The clients as a graph, laid out by the similarity of their updates."""

from collections.abc import Sequence

import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from fl_app.records.rounding import counted
from fl_app.records.snapshot import Snapshot
from fl_app.report.run import Run, clustering_rounds, removed_until
from fl_app.report.style import MARKERS, colours, ink, legend_dots

NEIGHBOURS = 5
NAMED_CLIENTS = 150
MOST_CLIENTS = 500
"""Above this number, single dots cannot be seen; the report then draws several as one."""
GAP = 0.6
"""Free space around a disc, in units in which a client has an area of pi."""
LONGEST_LEGEND = 10


def graph(run: Run) -> Figure | None:
    """Draw each client in the colour of its community, with the marker of its group."""
    snapshot = _chosen(run)
    if snapshot is None or len(snapshot.ids) > MOST_CLIENTS:
        return None
    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.subplots()
    edges = strong_edges(snapshot.similarity)
    places = spread_out(len(snapshot.ids), edges)
    same = snapshot.labels[edges[:, 0]] == snapshot.labels[edges[:, 1]]
    for within, colour in ((True, "#BBBBBB"), (False, "#777777")):
        lines = places[edges[same == within]]
        axes.add_collection(LineCollection(list(lines), colors=colour, linewidths=0.5, zorder=1))
    _clients(axes, snapshot, places)
    axes.set_title(f"round {snapshot.round}: each client and its most similar clients")
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.margins(0.06)
    _legend(figure, snapshot, removed_until(run.rounds, snapshot.round))
    return figure


def strong_edges(similarity: np.ndarray) -> np.ndarray:
    """Return the pairs (m, 2), i < j, in which one is among the other's most similar clients.

    These are fewer than half of the others, since few clients that are all joined show no groups.
    Pairs as dissimilar as any are left out, unless all are equal.
    """
    n = len(similarity)
    others = similarity.astype(float).copy()
    np.fill_diagonal(others, -np.inf)
    most = min(NEIGHBOURS, max(1, (n - 1) // 2), n - 1)
    near = np.argsort(-others, axis=1, kind="stable")[:, :most]
    pairs = np.stack([np.repeat(np.arange(n), near.shape[1]), near.ravel()], axis=1)
    apart = others[~np.eye(n, dtype=bool)]
    if len(apart) and apart.min() < apart.max():
        pairs = pairs[others[pairs[:, 0], pairs[:, 1]] > apart.min()]
    return np.unique(np.sort(pairs, axis=1), axis=0)


def _chosen(run: Run) -> Snapshot | None:
    """Return the snapshot at the clustering, else the last one."""
    usable = [s for s in run.snapshots if len(s.ids) > 1]
    clustered = clustering_rounds(run.rounds)
    at = [s for s in usable if s.round in clustered] or usable
    return at[-1] if at else None


def spread_out(count: int, edges: np.ndarray, kinds: Sequence[int] | None = None) -> np.ndarray:
    """Return (count, 2) places: a spring layout along the strong edges (m, 2), fixed seed.

    Components without an edge between them would repel each other without limit. Therefore each
    is laid out on its own disc, whose area is proportional to its clients, and the discs form
    rows. With `kinds`, each kind has a disc instead, independent of the edges.
    """
    network: nx.Graph[int] = nx.Graph()
    network.add_nodes_from(range(count))
    network.add_edges_from(edges.tolist())
    if kinds is None:
        found = [set(part) for part in nx.connected_components(network)]
    else:
        found = [{i for i in range(count) if kinds[i] == kind} for kind in set(kinds)]
    parts = sorted(found, key=lambda part: (-len(part), min(part)))
    radii = [len(part) ** 0.5 for part in parts]
    places = np.zeros((count, 2))
    for part, radius, centre in zip(parts, radii, _centres(radii), strict=True):
        inside = network.subgraph(sorted(part))
        laid = nx.spring_layout(inside, iterations=200, seed=0, scale=radius, center=centre)
        for node, place in laid.items():
            places[node] = place
    return places


def _centres(radii: list[float]) -> list[tuple[float, float]]:
    """Return the centre of each disc, in rows of about the same width, largest disc first."""
    width = 2.4 * sum((radius + GAP) ** 2 for radius in radii) ** 0.5
    x = y = 0.0
    height = 2 * (radii[0] + GAP)
    centres = []
    for radius in radii:
        step = 2 * (radius + GAP)
        if x > 0 and x + step > width:
            x, y, height = 0.0, y - height, step
        centres.append((x + step / 2, y - height / 2))
        x += step
    return centres


def _marker(group: int) -> str:
    return MARKERS[group % len(MARKERS)] if group >= 0 else "o"


def _clients(axes: Axes, snapshot: Snapshot, places: np.ndarray) -> None:
    shades = colours(int(snapshot.labels.max()) + 1)
    for group in np.unique(snapshot.groups).tolist():
        mine = snapshot.groups == group
        axes.scatter(
            places[mine, 0],
            places[mine, 1],
            c=[shades[label] for label in snapshot.labels[mine].tolist()],
            marker=_marker(group),
            s=max(25.0, min(110.0, 9000 / len(snapshot.ids))),
            edgecolors="white",
            linewidths=0.7,
            zorder=2,
        )
    if len(snapshot.ids) <= NAMED_CLIENTS:
        inks = [ink(shade) for shade in shades]
        for client, label, (x, y) in zip(snapshot.ids, snapshot.labels, places, strict=True):
            axes.text(x, y, str(client), size=4.5, ha="center", va="center", color=inks[label])


def _legend(figure: Figure, snapshot: Snapshot, removed: list[int]) -> None:
    present = set(snapshot.labels[~np.isin(snapshot.ids, removed)].tolist())
    count = int(snapshot.labels.max()) + 1
    sizes = np.bincount(snapshot.labels, minlength=count).tolist()
    dots = []
    if count <= LONGEST_LEGEND:
        kinds = [f"community {label}" if label in present else "removed" for label in range(count)]
        counts = [counted(size, "client", "clients") for size in sizes]
        names = [f"{kind} ({clients})" for kind, clients in zip(kinds, counts, strict=True)]
        dots += legend_dots(colours(count), names, "o" * count)
    groups = [group for group in np.unique(snapshot.groups).tolist() if group >= 0]
    if 1 < len(groups) <= len(MARKERS):
        names = [f"planted group {group}" for group in groups]
        shape = "".join(_marker(group) for group in groups)
        dots += legend_dots(["#999999"] * len(groups), names, shape)
    if dots:
        figure.legend(handles=dots, loc="outside right center")
