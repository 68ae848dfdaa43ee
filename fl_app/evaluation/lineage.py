"""Which community of this round is which of the last: names that live on, and who moved."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from fl_app.types import Labels


class Lineage:
    """Names communities over the rounds, so that a client that stays is seen to stay.

    Labels are numbered anew in every round; names are given so that as many clients as
    possible keep theirs, and a community without a predecessor gets a name never used.
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
        """Take up the labels (n,) of clients (n,); return who moved from which name to which.

        From None: a client not seen before.
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
        """Return the name of each label by the largest overlap with the names of before."""
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
