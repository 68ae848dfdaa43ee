"""How soon a client that joined or drifted sits in the right community."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from fl_app.types import Labels


def in_place(labels: Labels, groups: Labels) -> Bool[np.ndarray, " n"]:
    """Return which clients (n,) sit among their own: `labels` found, `groups` planted, both (n,).

    A client does when more than half of the others in its community are of its planted group;
    one that is alone does when nobody else is of its group.
    """
    found = np.zeros(len(labels), bool)
    for client, (label, group) in enumerate(zip(labels.tolist(), groups.tolist(), strict=True)):
        others = np.arange(len(labels)) != client
        company = others & (labels == label)
        if company.any():
            found[client] = (groups[company] == group).mean() > 0.5
        else:
            found[client] = not (others & (groups == group)).any()
    return found


@dataclass(frozen=True)
class Settled:
    """A client that sits right for the first time after a change, `rounds` after it; 0: at once."""

    client: int
    kind: str
    rounds: int


class Settling:
    """Follows the clients that something happened to until they sit in the right community.

    `waiting` maps a client to what happened to it last, and in which round.
    """

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[str, int]] = {}

    def changed(self, clients: Iterable[int], kind: str, server_round: int) -> None:
        """Note that `kind` happened to clients at the start of a round; a later change replaces."""
        for client in clients:
            self.waiting[client] = kind, server_round

    def settled(
        self, ids: Labels, labels: Labels, groups: Labels, server_round: int
    ) -> list[Settled]:
        """Return who of the waiting among `ids` (n,) sits right after this round, by id."""
        right = in_place(labels, groups)
        found = []
        for client in ids[right].tolist():
            if client in self.waiting:
                kind, since = self.waiting.pop(client)
                found.append(Settled(client, kind, server_round - since))
        return sorted(found, key=lambda each: each.client)
