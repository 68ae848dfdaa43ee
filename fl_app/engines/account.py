"""What the record of a round says: of the strategy, the clients, and what is known besides."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from flwr.common import FitIns, FitRes
from flwr.server.client_proxy import ClientProxy

from fl_app.client.central import CentralTest
from fl_app.data.schedule import Schedule
from fl_app.evaluation.communities import describe
from fl_app.evaluation.detection import detection
from fl_app.evaluation.lineage import Lineage
from fl_app.evaluation.settling import Settling
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.replies import ClientFailure
from fl_app.strategies.roster import Roster
from fl_app.strategies.setting import Event, View
from fl_app.types import Labels

SPLITS = ("clustered", "removed")
"""Kinds of events in which a method parts clients."""


class Account:
    """Gives account of the rounds of one run, of so many `clients`.

    `lineage` names its communities over the rounds, `settling` follows newcomers and drifters.
    """

    def __init__(
        self,
        strategy: CommunityStrategy,
        roster: Roster,
        *,
        clients: int,
        schedule: Schedule | None,
        central: CentralTest | None,
    ) -> None:
        self.strategy, self.roster, self.clients = strategy, roster, clients
        self.schedule, self.central = schedule, central
        self.lineage = Lineage()
        self.settling = Settling()

    def restore(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Take up what the records of earlier rounds say."""
        self.lineage = Lineage.of(records)
        for record in records:
            self._follow(record["round"])
            for client in (record["communities"] or {}).get("settled") or {}:
                self.settling.waiting.pop(int(client), None)

    def of(
        self, server_round: int, failures: Sequence[ClientFailure], view: View | None
    ) -> dict[str, Any]:
        """Return the record of a round, but for what only the loop knows: time, bytes, loss."""
        strategy = self.strategy
        accuracy = strategy.accuracy
        self._follow(server_round)
        return {
            "round": server_round,
            "phase": strategy.phase,
            "sampled": strategy.cohort,
            "failed": {str(f.client_id): f.reason for f in failures},
            "rejected": {str(client): why for client, why in strategy.rejected.items()},
            "lost": self.lost(),
            "dominance": {str(client): share for client, share in strategy.dominance.items()},
            "accuracy": _spread(accuracy) if accuracy else None,
            "global_accuracy": _mean(strategy.scores.everyone),
            "central": self._central() if accuracy else None,
            "communities": self._describe(view, server_round) if view else None,
            "attack": self._attack(accuracy),
            "notes": dict(strategy.notes),
            "events": [self._event(e) for e in (*self._changes(server_round), *strategy.events)],
            "stability": strategy.stability,
            "step": strategy.step,
        }

    def lost(self) -> list[int]:
        """Return the clients that the schedule has there and no connected node stands for."""
        present, away = self.roster.proxies().keys(), self.roster.absent
        if len(present) + len(away) >= self.clients:
            return []
        return sorted(set(range(self.clients)) - present - away)

    def _central(self) -> dict[str, Any] | None:
        """Return accuracy on the server's own test set, global and of each community."""
        if self.central is None:
            return None
        strategy = self.strategy
        models, everyone = strategy.state.communities.models, strategy.state.global_model
        found = self.central(models)
        if everyone is not None:
            return {"global": self.central(everyone[None, :])[0], "communities": found}
        if len(models) == 1:
            return {"global": found[0], "communities": []}
        return {"global": None, "communities": found}

    def _changes(self, server_round: int) -> list[Event]:
        """Return who joined, left or drifted at the start of this round."""
        changes = self.schedule.changes(server_round) if self.schedule else ()
        return [
            Event(change.kind, f"clients {list(change.clients)}", list(change.clients))
            for change in changes
        ]

    def _follow(self, server_round: int) -> None:
        """Wait for those whose right community is another one since this round."""
        for change in self.schedule.changes(server_round) if self.schedule else ():
            if change.kind == "joined" or (change.kind == "drifted" and self._regroups):
                self.settling.changed(change.clients, change.kind, server_round)

    @property
    def _regroups(self) -> bool:
        return self.schedule is not None and self.schedule.dynamics.drift == "group"

    def _event(self, event: Event) -> dict[str, Any]:
        """Return an event; whether a split met the malicious alone, where these are known."""
        malicious, split = self.roster.malicious(), event.kind in SPLITS
        known = malicious and split and event.clients
        right = set(event.clients) <= malicious if known else None
        return asdict(event) | {"right": right}

    def _attack(self, accuracy: Mapping[int, float]) -> dict[str, Any] | None:
        """Return who of the malicious was told apart, where a simulation knows them."""
        malicious = self.roster.malicious()
        if not malicious:
            return None
        strategy, clients = self.strategy, set(self.roster.proxies())
        members = strategy.state.communities.members
        found = detection(strategy.suspects, malicious, clients, accuracy, members)
        rates = strategy.scores.fooled
        fooled = [rate for client, rate in rates.items() if client not in malicious]
        return found | {"backdoor": float(np.mean(fooled)) if fooled else None}

    def _describe(self, view: View, server_round: int) -> dict[str, Any]:
        groups = self.groups(view, server_round)
        total = len(set(self.roster.groups().values()))
        return describe(
            view.labels,
            groups=groups if (groups >= 0).all() else None,
            total_groups=total,
            similarity=view.similarity,
            distance=view.distance,
        ) | {"moved": self._moved(view), "settled": self._settled(view, groups, server_round)}

    def _moved(self, view: View) -> dict[str, tuple[int | None, int]]:
        moved = self.lineage.follow(view.client_ids, view.labels)
        return {str(client): names for client, names in moved.items()}

    def _settled(self, view: View, groups: Labels, server_round: int) -> dict[str, Any]:
        """Return who sits right for the first time since it joined or drifted, and how soon."""
        if (groups < 0).any():
            return {}
        found = self.settling.settled(view.client_ids, view.labels, groups, server_round)
        return {str(each.client): {"kind": each.kind, "rounds": each.rounds} for each in found}

    def groups(self, view: View, server_round: int) -> np.ndarray:
        """Return the planted group of each client (n,) as of a round, -1 where unknown."""
        planted = self.roster.groups()
        if self.schedule is not None and planted:
            planted = self.schedule.regrouped(planted, server_round)
        return np.array([planted.get(client, -1) for client in view.client_ids.tolist()], int)


def sent(
    messages: Sequence[tuple[ClientProxy, FitIns]] | Sequence[tuple[ClientProxy, FitRes]],
) -> int:
    """Return the bytes of the models in messages; a reply may hold what is no bytes."""
    tensors = (tensor for _, each in messages for tensor in each.parameters.tensors)
    return sum(len(tensor) for tensor in tensors if type(tensor) is bytes)


def _mean(values: Mapping[int, float]) -> float | None:
    return float(np.mean(list(values.values()))) if values else None


def _spread(accuracy: dict[int, float]) -> dict[str, Any]:
    values = list(accuracy.values())
    clients = {str(client): value for client, value in accuracy.items()}
    return {"mean": float(np.mean(values)), "std": float(np.std(values)), "clients": clients}
