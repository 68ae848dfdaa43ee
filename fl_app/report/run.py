"""Reads the output folder of a run, completed or interrupted, for the figures."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, get_args

import numpy as np

from fl_app.records.history import read_rounds
from fl_app.records.models import FILE as MODELS
from fl_app.records.models import read_models
from fl_app.records.names import ROUNDS
from fl_app.records.points import read_points
from fl_app.records.reading import read_config
from fl_app.records.snapshot import Snapshot, read_snapshots
from fl_app.records.summary import read_summary
from fl_app.types import ChangeKind

Record = Mapping[str, Any]
CHANGES = (*get_args(ChangeKind), "skipped")
"""Kinds of events that a schedule causes, and that of a round in which nothing was learnt."""


@dataclass(frozen=True)
class Clustered:
    """The result of federated k-means: centroids (k, d), and the shape of a point.

    points: (p, 2) in a simulation with points in the plane, else None.
    """

    final: np.ndarray
    shape: tuple[int, ...]
    points: np.ndarray | None


@dataclass(frozen=True)
class Run:
    """The files of a run.

    rounds: the records, in order.
    snapshots: the similarity matrices, in order of rounds.
    config: the resolved configuration, empty if the folder has none.
    assignment: the community of each client at the end; empty before the run has ended.
    clustered: the centroids, if points and not clients were clustered; else None.
    """

    rounds: list[dict[str, Any]]
    snapshots: list[Snapshot]
    config: dict[str, Any]
    clustered: Clustered | None = None
    assignment: Mapping[int, int] = field(default_factory=dict)


def read_run(folder: Path) -> Run:
    """Return the run in a folder; a part that it has not written yet is empty."""
    rounds = read_rounds(folder) if (folder / ROUNDS).exists() else []
    found = _clustered(folder)
    ended = assigned(read_summary(folder))
    return Run(rounds, read_snapshots(folder), read_config(folder), found, ended)


def assigned(summary: Record | None) -> dict[int, int]:
    """Return the community of each client in the summary of a run, empty without one."""
    rows = ((summary or {}).get("communities") or {}).get("assignment") or {}
    return {int(client): int(row) for client, row in rows.items()}


def _clustered(folder: Path) -> Clustered | None:
    drawn = read_points(folder)
    if drawn is None or not (folder / MODELS).exists():
        return None
    final = read_models(folder)[0]["centroids"]
    return Clustered(final, drawn.shape, drawn.points)


def first_right_round(records: Sequence[Record]) -> int | None:
    """Return the round from which the communities always equal the planted groups, else None.

    Rounds without communities are ignored.
    """
    first = None
    for record in records:
        found = record["communities"]
        if found is None:
            continue
        if not found["right"]:
            first = None
        elif first is None:
            first = int(record["round"])
    return first


def clustering_rounds(records: Sequence[Record]) -> list[int]:
    """Return the rounds after which the clients were split into communities."""
    return [
        int(record["round"])
        for record in records
        if any(event["kind"] == "clustered" for event in record["events"])
    ]


def changes(records: Sequence[Record]) -> dict[str, list[int]]:
    """Return the rounds in which clients joined, left or drifted, or that were skipped, by kind."""
    found: dict[str, list[int]] = {}
    for record in records:
        for event in record["events"]:
            if event["kind"] in CHANGES:
                found.setdefault(event["kind"], []).append(int(record["round"]))
    return found


def removed_until(records: Sequence[Record], last: int) -> list[int]:
    """Return the clients that the method has removed up to a round, which are no community."""
    events = [event for record in records if record["round"] <= last for event in record["events"]]
    return [int(c) for event in events if event["kind"] == "removed" for c in event["clients"]]


def planted_count(run: Run) -> int | None:
    """Return the largest number of planted groups, None if it cannot be read from the run.

    It can change when clients drift.
    """
    removed, counts = False, list[int]()
    for record in run.rounds:
        found = record["communities"]
        removed = removed or any(event["kind"] == "removed" for event in record["events"])
        if found and found["right"]:  # then the removed clients are a planted group too
            counts.append(int(found["count"]) + removed)
    known = [s.groups for s in run.snapshots if (s.groups >= 0).all() and len(s.groups)]
    return max([*counts, *(len(np.unique(groups)) for groups in known)], default=None)


def memberships(records: Sequence[Record]) -> dict[int, dict[int, int]]:
    """Return the named community of every known client, by round, from the recorded moves.

    Rounds without communities are omitted.
    """
    now: dict[int, int] = {}
    found = {}
    for record in records:
        moved = (record["communities"] or {}).get("moved")
        if moved is None:
            continue
        if moved:  # else rounds share one mapping, which saves memory with many clients
            now = now | {int(client): int(names[1]) for client, names in moved.items()}
        found[int(record["round"])] = now
    return found


def numbers(
    named: Mapping[int, Mapping[int, int]], assignment: Mapping[int, int]
) -> dict[int, int]:
    """Return the number of each community that the records name.

    It is the number of the community's model, as in `summary.json`. Communities without one, and
    all before the end of the run, get the free numbers, the largest first.
    """
    sizes = Counter(name for stage in named.values() for name in stage.values())
    last = list(named.values())[-1] if named else {}
    final = Counter(last.values())
    shared = Counter((last[client], row) for client, row in assignment.items() if client in last)
    found: dict[int, int] = {}
    for (name, row), _ in shared.most_common():
        if name not in found and row not in found.values():
            found[name] = row
    order = sorted(sizes.keys() - found, key=lambda name: (-final[name], -sizes[name], name))
    taken = {*assignment.values()}
    free = (number for number in count() if number not in taken)
    return found | dict(zip(order, free, strict=False))


def series(records: Sequence[Record], *path: str) -> tuple[list[int], list[float]]:
    """Return rounds and values of a field, without the rounds in which it is null."""
    rounds, values = [], []
    for record in records:
        value: Any = record
        for key in path:
            value = value.get(key) if value is not None else None
        if value is not None:
            rounds.append(int(record["round"]))
            values.append(float(value))
    return rounds, values
