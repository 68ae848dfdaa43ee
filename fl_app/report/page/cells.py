"""A snapshot as it is drawn: one cell per client, or per several clients if there are many."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fl_app.records.snapshot import Snapshot
from fl_app.report.page.look import REMOVED
from fl_app.report.page.run_records import FULL_SCALE

MOST_CELLS = 150


@dataclass(frozen=True)
class Cells:
    """A snapshot as it is drawn: one cell per client, or per several clients of one community.

    round, until: the first and last round to which this snapshot applies.
    members: the clients of each of the m cells, ordered by community and planted group.
    ranks: the community of each cell; groups: its planted group, -1 if unknown or mixed.
    similarity: (m, m), NaN on the diagonal of single clients.
    """

    round: int
    until: int
    members: list[list[int]]
    ranks: list[int]
    groups: list[int]
    similarity: np.ndarray

    @property
    def clients(self) -> int:
        """Number of clients in all cells."""
        return sum(map(len, self.members))


def distinct(snapshots: Sequence[Snapshot]) -> list[tuple[Snapshot, int]]:
    """Return the snapshots that differ from the one before, each with its last round.

    Snapshots of a single client are omitted.
    """
    found: list[tuple[Snapshot, int]] = []
    for snapshot in (s for s in snapshots if len(s.ids) > 1):
        last = found[-1][0] if found else None
        if last is not None and (
            np.array_equal(last.similarity, snapshot.similarity)
            and np.array_equal(last.labels, snapshot.labels)
        ):
            found[-1] = last, snapshot.round
        else:
            found.append((snapshot, snapshot.round))
    return found


def cells(snapshot: Snapshot, members: Mapping[int, int], until: int, *, planted: bool) -> Cells:
    """Return the cells of a snapshot, ordered by community and planted group.

    With more than FULL_SCALE clients a cell has several clients of one community that are
    neighbours in this order; similarities are then means between two cells or within one.
    """
    ids = snapshot.ids.tolist()
    ranks = np.array([members.get(client, REMOVED) for client in ids])
    order = np.lexsort((snapshot.ids, snapshot.groups, np.where(ranks < 0, ranks.max() + 1, ranks)))
    size = 1 if len(ids) <= FULL_SCALE else -(-len(ids) // MOST_CELLS)
    parts = [
        inside[start : start + size]
        for rank in dict.fromkeys(ranks[order].tolist())
        for inside in [order[ranks[order] == rank]]
        for start in range(0, len(inside), size)
    ]
    similarity = snapshot.similarity.astype(float)
    np.fill_diagonal(similarity, np.nan)
    return Cells(
        snapshot.round,
        until,
        [snapshot.ids[part].tolist() for part in parts],
        [int(ranks[part[0]]) for part in parts],
        [_common(snapshot.groups[part].tolist()) if planted else -1 for part in parts],
        similarity[np.ix_(order, order)] if size == 1 else _means(similarity, parts),
    )


def _common(groups: list[int]) -> int:
    return groups[0] if len(set(groups)) == 1 else -1


def _means(similarity: np.ndarray, parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean similarity (m, m) between the parts, without the diagonal."""
    order, starts = np.concatenate(parts), np.cumsum([0, *map(len, parts[:-1])])
    ordered = similarity[np.ix_(order, order)]

    def added(values: np.ndarray) -> np.ndarray:
        summed: np.ndarray = np.add.reduceat(np.add.reduceat(values, starts, 0), starts, 1)
        return summed

    total, known = added(np.nan_to_num(ordered, nan=0.0)), added(~np.isnan(ordered) * 1.0)
    means: np.ndarray = np.divide(total, known, out=np.full(total.shape, np.nan), where=known > 0)
    return means
