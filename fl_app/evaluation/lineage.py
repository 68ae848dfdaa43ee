"""Matches the communities of successive rounds: persistent names, and clients that moved."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from fl_app.types import Labels


class Lineage:
    """Names communities consistently over the rounds.

    Labels are renumbered in every round. Names are assigned so that as many clients as possible
    keep theirs; a community without a predecessor gets a new name.
    """

    def __init__(self) -> None:
        self.names: dict[int, int] = {}
        self._next = 0

    @classmethod
    def of(cls, records: Sequence[Mapping[str, Any]]) -> "Lineage":
        """Return the lineage after the rounds of these records."""
        lineage = cls()
        for record in records:
            for client, (_, new) in ((record["communities"] or {}).get("moved") or {}).items():
                lineage._set(int(client), new)
        return lineage

    def follow(self, ids: Labels, labels: Labels) -> dict[int, tuple[int | None, int]]:
        """Add the labels (n,) of clients (n,); return old and new name of each moved client.

        The old name of a new client is None.
        """
        clients = ids.tolist()
        name_of = self._match(clients, labels)
        moved = {}
        for client, label in zip(clients, labels.tolist(), strict=True):
            old, new = self.names.get(client), name_of[label]
            if old != new:
                moved[client] = (old, new)
                self._set(client, new)
        return moved

    def _match(self, clients: Sequence[int], labels: Labels) -> dict[int, int]:
        """Return the name of each label by the largest overlap with the previous names."""
        found = np.unique(labels)
        names = sorted({self.names[client] for client in clients if client in self.names})
        overlap = np.zeros((len(found), len(names)), int)
        for client, row in zip(clients, np.searchsorted(found, labels).tolist(), strict=True):
            if client in self.names:
                overlap[row, names.index(self.names[client])] += 1
        rows, columns = linear_sum_assignment(overlap, maximize=True)
        pairs = zip(rows.tolist(), columns.tolist(), strict=True)
        kept = {r: names[c] for r, c in pairs if overlap[r, c]}
        new = iter(range(self._next, self._next + len(found)))
        return {int(label): kept[r] if r in kept else next(new) for r, label in enumerate(found)}

    def _set(self, client: int, name: int) -> None:
        self.names[client] = name
        self._next = max(self._next, name + 1)
