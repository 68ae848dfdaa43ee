"""Rounds until a client that joined or drifted is assigned to the right community."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from fl_app.types import Labels


def in_place(labels: Labels, groups: Labels) -> Bool[np.ndarray, " n"]:
    """Return which clients (n,) are in the right community, by `labels` and `groups`, both (n,).

    A community is right for a client if more than half of its other members are of the client's
    planted group. For a single client it is right if no other client is of its group.
    """
    found = np.zeros(len(labels), bool)
    for client, (label, group) in enumerate(zip(labels.tolist(), groups.tolist(), strict=True)):
        others = np.arange(len(labels)) != client
        members = others & (labels == label)
        if members.any():
            found[client] = (groups[members] == group).mean() > 0.5
        else:
            found[client] = not (others & (groups == group)).any()
    return found


@dataclass(frozen=True)
class Settled:
    """A client in the right community for the first time, `rounds` after a change; 0: at once."""

    client: int
    kind: str
    rounds: int


class Settling:
    """Follows changed clients until they are in the right community.

    `waiting` maps a client to its last change and the round of this change.
    """

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[str, int]] = {}

    def changed(self, clients: Iterable[int], kind: str, server_round: int) -> None:
        """Record a change of clients at the start of a round; it replaces an earlier change."""
        for client in clients:
            self.waiting[client] = kind, server_round

    def settled(
        self, ids: Labels, labels: Labels, groups: Labels, server_round: int
    ) -> list[Settled]:
        """Return waiting clients of `ids` (n,) that are now in the right community, by id."""
        right = in_place(labels, groups)
        found = []
        for client in ids[right].tolist():
            if client in self.waiting:
                kind, since = self.waiting.pop(client)
                found.append(Settled(client, kind, server_round - since))
        return sorted(found, key=lambda each: each.client)
