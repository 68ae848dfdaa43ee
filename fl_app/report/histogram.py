"""Distances between clients within and across groups, raw and as normalised similarities."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl_app.records.snapshot import Snapshot
from fl_app.report.run import Run
from fl_app.report.style import BLUE, ORANGE

BINS = 30


def similarities(run: Run) -> Figure | None:
    """Draw the pairwise distances of the last snapshot and the similarities computed from them."""
    snapshot = next((s for s in reversed(run.snapshots) if _made_of_distances(s)), None)
    if snapshot is None or len(snapshot.ids) < 3:
        return None
    assert snapshot.distance is not None
    pairs = np.triu_indices(len(snapshot.ids), 1)
    planted = bool((snapshot.groups >= 0).all())
    kind = snapshot.groups if planted else snapshot.labels
    same = kind[pairs[0]] == kind[pairs[1]]
    figure = Figure(figsize=(6.4, 5.0), layout="constrained")
    top, bottom = figure.subplots(2, 1)
    what = "planted group" if planted else "community found"
    _bars(top, snapshot.distance[pairs], same, what)
    top.set_xlabel("distance between two clients' last models")
    top.legend()
    _bars(bottom, snapshot.similarity[pairs], same, what)
    bottom.set_xlabel("similarity, normalised and raised to the exponent")
    top.set_title(f"round {snapshot.round}: {len(snapshot.ids)} clients")
    return figure


def _made_of_distances(snapshot: Snapshot) -> bool:
    """Whether the similarities come from distances and are not just the negative distances."""
    distance = snapshot.distance
    return distance is not None and not np.array_equal(snapshot.similarity, -distance)


def _bars(axes: Axes, values: np.ndarray, same: np.ndarray, what: str) -> None:
    low = float(values.min())
    edges = np.linspace(low, max(float(values.max()), low + 1e-9), BINS + 1).tolist()
    names = (f"same {what}", f"different {what}s")
    for part, colour, name in zip((same, ~same), (BLUE, ORANGE), names, strict=True):
        axes.hist(values[part], edges, color=colour, alpha=0.6, label=name)
    axes.set_ylabel("pairs")
