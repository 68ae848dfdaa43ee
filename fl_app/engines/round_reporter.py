"""Builds the record of a round from the outcome, the clients and the planted truth if known."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from logging import getLogger
from types import MappingProxyType
from typing import Any

import numpy as np
from flwr.common import FitIns, FitRes
from flwr.server.client_proxy import ClientProxy

from fl_app.client.central import CentralTest
from fl_app.data.schedule import Schedule
from fl_app.evaluation.agreement import adjusted_rand, pure_share
from fl_app.evaluation.class_imbalance import MOST, wasserstein_silhouette
from fl_app.evaluation.communities import describe
from fl_app.evaluation.detection import detection
from fl_app.evaluation.lineage import Lineage
from fl_app.evaluation.settling import Settling
from fl_app.records.history import SPLITS, chosen_reasons
from fl_app.strategies.model_evaluation import TEST_LOSS, Scores
from fl_app.strategies.outcome import Event, Outcome, View
from fl_app.strategies.replies import ClientFailure, limited
from fl_app.strategies.roster import Roster
from fl_app.types import Labels, Vectors

log = getLogger(__name__)

CountClasses = Callable[[], np.ndarray]
"""Returns the number of samples of each class (n, c) of all clients."""


class RoundReporter:
    """Builds the record of each round of one run with `clients` clients.

    `benign` returns the communities assumed benign, from their models (k, d) and sizes (k,).
    `lineage` names the communities over the rounds; `settling` follows newcomers and drifted
    clients; `names` are the clients' own, by id. `class_counts` returns the number of samples of
    each class (n, c) of all clients, where they are known.
    """

    def __init__(
        self,
        roster: Roster,
        *,
        clients: int,
        benign: Callable[[Vectors, Labels], set[int]],
        schedule: Schedule | None,
        central: CentralTest | None,
        names: Mapping[int, str] = MappingProxyType({}),
        class_counts: CountClasses | None = None,
    ) -> None:
        self._class_counts = None if class_counts is None else cache(class_counts)
        self.roster, self.clients, self.benign = roster, clients, benign
        self.schedule, self.central, self.names = schedule, central, names
        self.lineage = Lineage()
        self.settling = Settling()

    def restore(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Restore the state from the records of earlier rounds."""
        self.lineage = Lineage.of(records)
        for record in records:
            self._follow(record["round"])
            for client in (record["communities"] or {}).get("settled") or {}:
                self.settling.waiting.pop(int(client), None)

    def record(
        self,
        server_round: int,
        outcome: Outcome,
        failures: Sequence[ClientFailure],
        events: Sequence[Event],
    ) -> dict[str, Any]:
        """Return the record of a round; the loop adds time, bytes, loss and privacy."""
        view = outcome.view
        self._follow(server_round)
        return {
            "round": server_round,
            "phase": outcome.phase,
            "sampled": list(outcome.cohort),
            "failed": self.failed(failures),
            "rejected": self.named(outcome.rejected),
            "lost": self.roster.lost(self.clients),
            "dominance": {str(client): share for client, share in outcome.dominance.items()},
            "odd_updates": {str(client): size for client, size in outcome.odd_updates.items()},
            **self.scored(outcome, set(self.roster.proxies())),
            "communities": self._describe(view, server_round, outcome.removed) if view else None,
            "notes": dict(outcome.notes),
            "events": [self._event(e) for e in (*self._changes(server_round), *events)],
            "stability": outcome.stability,
            "step": outcome.step,
        }

    def scored(self, outcome: Outcome, clients: set[int]) -> dict[str, Any]:
        """Return the fields of a record that an evaluation changes; `clients` were present then."""
        scores = outcome.scores
        return {
            "accuracy": _accuracy(scores),
            "metrics": _metrics(scores.measured),
            "global_accuracy": _mean(scores.global_accuracy),
            "central": self._central(outcome) if _accuracy(scores) else None,
            "attack": self._attack(outcome, clients),
        }

    def failed(self, failures: Sequence[ClientFailure]) -> dict[str, str]:
        """Return the reasons of failures by client id; of several, that of its training."""
        return self.named(chosen_reasons((each.client_id, each.reason) for each in failures))

    def named(self, reasons: Mapping[int | str, str]) -> dict[str, str]:
        """Return the reasons by client id, with the clients' own names if they have some."""
        names = {str(client): f" (client {name})" for client, name in self.names.items()}
        return {str(client): why + names.get(str(client), "") for client, why in reasons.items()}

    def _central(self, outcome: Outcome) -> dict[str, Any] | None:
        """Return the accuracy on the server's test set, of the global and community models."""
        if self.central is None:
            return None
        models, global_model = outcome.models, outcome.global_model
        found = self.central(models)
        if global_model is not None:
            return {"global": self.central(global_model[None, :])[0], "communities": found}
        if len(models) == 1:
            return {"global": found[0], "communities": []}
        return {"global": None, "communities": found}

    def _changes(self, server_round: int) -> list[Event]:
        """Return events for clients that joined, left or drifted at the start of this round."""
        changes = self.schedule.changes(server_round) if self.schedule else ()
        return [
            Event(change.kind, f"clients {list(change.clients)}", list(change.clients))
            for change in changes
        ]

    def _follow(self, server_round: int) -> None:
        """Follow the clients whose right community is new or changed in this round."""
        for change in self.schedule.changes(server_round) if self.schedule else ():
            if change.kind != "left":
                self.settling.changed(change.clients, change.kind, server_round)

    def _event(self, event: Event) -> dict[str, Any]:
        """Return an event; `right`: whether a split separated only malicious clients, if known."""
        malicious, split = self.roster.malicious(), event.kind in SPLITS
        known = malicious and split and event.clients
        right = set(event.clients) <= malicious if known else None
        return asdict(event) | {"right": right}

    def _attack(self, outcome: Outcome, clients: set[int]) -> dict[str, Any] | None:
        """Return the detection of malicious clients, in simulations that know them."""
        malicious = self.roster.malicious()
        if not malicious:
            return None
        suspects, scores = outcome.suspects(self.benign), outcome.scores
        found = detection(suspects, malicious, clients, scores.accuracy, outcome.members)
        rates = [rate for c, rate in scores.attack_success.items() if c not in malicious]
        return found | {"success": float(np.mean(rates)) if rates else None}

    def _describe(
        self, view: View, server_round: int, removed: Mapping[int, int]
    ) -> dict[str, Any]:
        """Return measures of all clusters, and count and sizes of those that still train."""
        groups = self.groups(view, server_round)
        total = len(set(self.planted(server_round).values()))
        return describe(
            view.labels,
            groups=groups if (groups >= 0).all() else None,
            total_groups=total,
            similarity=view.similarity,
            distance=view.distance,
        ) | {
            **_trained(view, removed),
            "wasserstein_silhouette": self._wasserstein(view),
            "moved": self._moved(view),
            "settled": self._settled(view, groups, server_round),
        }

    def _wasserstein(self, view: View) -> float | None:
        """Return the score of the communities by class imbalance, None where it is unknown."""
        if self._class_counts is None or len(view.labels) > MOST:
            return None
        counts = self._class_counts()[view.client_ids].astype(np.float64)
        return wasserstein_silhouette(counts, view.labels) if counts.any(axis=1).all() else None

    def _moved(self, view: View) -> dict[str, tuple[int | None, int]]:
        moved = self.lineage.follow(view.client_ids, view.labels)
        return {str(client): names for client, names in moved.items()}

    def _settled(self, view: View, groups: Labels, server_round: int) -> dict[str, Any]:
        """Return clients that are in the right community for the first time since a change."""
        if (groups < 0).any():
            return {}
        found = self.settling.settled(view.client_ids, view.labels, groups, server_round)
        return {str(each.client): {"kind": each.kind, "rounds": each.rounds} for each in found}

    def groups(self, view: View, server_round: int) -> np.ndarray:
        """Return the planted group of each client (n,) as of a round, -1 where unknown."""
        planted = self.planted(server_round)
        return np.array([planted.get(client, -1) for client in view.client_ids.tolist()], int)

    def agreement(
        self, assignment: Mapping[int, int], removed: Sequence[int], server_round: int
    ) -> dict[str, float]:
        """Return the agreement of an assignment with the planted groups as of a round.

        The removed clients are one more community. Empty if the group of a client is unknown.
        """
        planted = self.planted(server_round)
        rows = {**assignment, **dict.fromkeys(removed, max(assignment.values(), default=-1) + 1)}
        if not rows or not planted.keys() >= rows.keys():
            return {}
        labels, groups = np.array([*rows.values()]), np.array([planted[each] for each in rows])
        measures = {"ari": adjusted_rand, "pure_share": pure_share}
        return {name: measure(labels, groups) for name, measure in measures.items()}

    def planted(self, server_round: int) -> Mapping[int, int]:
        """Return the group of each client that told one, after its drifts up to a round."""
        planted = self.roster.groups()
        return planted if self.schedule is None else self.schedule.regrouped(planted, server_round)


def sent(
    messages: Sequence[tuple[ClientProxy, FitIns]] | Sequence[tuple[ClientProxy, FitRes]],
) -> int:
    """Return the bytes of the models in messages; a reply may contain other types."""
    tensors = (tensor for _, each in messages for tensor in each.parameters.tensors)
    return sum(len(tensor) for tensor in tensors if type(tensor) is bytes)


def _trained(view: View, removed: Mapping[int, int]) -> dict[str, Any]:
    """Return count and sizes of the communities, without the clusters of the removed clients."""
    labels = view.labels[~np.isin(view.client_ids, list(removed))]
    return {"count": len(np.unique(labels)), "sizes": np.bincount(labels).tolist()}


def _mean(values: Mapping[int, float]) -> float | None:
    return float(np.mean(list(values.values()))) if values else None


def _accuracy(scores: Scores) -> dict[str, Any] | None:
    """Return the spread of the accuracy over the clients; None: it was not measured."""
    if scores.overall is not None:
        mean, std = scores.overall
        return {"mean": mean, "std": std, "clients": {}}
    return _spread(scores.accuracy) if scores.accuracy else None


def _metrics(measured: Mapping[str, Mapping[int, float]]) -> dict[str, Any] | None:
    """Return the spread of each metric over the clients that have a value; None: no metric."""
    for name in [name for name, values in measured.items() if not values]:
        log.warning(
            "task.metrics.%s has no value on any client: it is undefined, or not finite, on the "
            "samples for test of each", name,
        )  # fmt: skip
    found = {name: _spread(values) for name, values in measured.items() if values}
    if TEST_LOSS in found:
        counted = limited(np.array([*measured[TEST_LOSS].values()]))
        found[TEST_LOSS] |= {"mean": float(counted.mean()), "std": float(counted.std())}
    return found or None


def _spread(told: Mapping[int, float]) -> dict[str, Any]:
    """Return mean and standard deviation of what clients told, and this by client id."""
    values = list(told.values())
    clients = {str(client): value for client, value in told.items()}
    return {"mean": float(np.mean(values)), "std": float(np.std(values)), "clients": clients}
