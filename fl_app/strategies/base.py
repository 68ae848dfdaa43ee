"""What every strategy shares: decode and validate replies, encode models, evaluate, survive."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from logging import getLogger
from typing import Any

import numpy as np
from flwr.common import EvaluateIns, EvaluateRes, FitIns, FitRes, Parameters, Scalar
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy

from fl_app.aggregation import Rule
from fl_app.rng import generator
from fl_app.strategies.replies import (
    Replies,
    TooFewRepliesError,
    decode_choice,
    decode_fit,
    decode_score,
    encode,
)
from fl_app.strategies.roster import Roster
from fl_app.strategies.setting import Communities, Event, Setting, View
from fl_app.types import Vector, Vectors

log = getLogger(__name__)

Rows = Sequence[int]
"""Rows of the models that one client receives; of several it takes the best."""
FitReplies = list[tuple[ClientProxy, FitRes]]
EvaluateReplies = list[tuple[ClientProxy, EvaluateRes]]

GLOBAL = -1
"""The `community` of the global model in evaluations."""


class CommunityStrategy(Strategy, ABC):
    """A Flower Strategy over communities of clients, each with a model of its own.

    `name` is what a summary calls it, where that is not the name of the class.
    """

    name: str | None = None
    of_points = False
    """Whether the model is centroids of data points, and not a network."""
    simulation_only = False
    """Whether the server needs what only a simulation has."""

    def __init__(self, setting: Setting, *, participation: float, rule: Rule) -> None:
        self.setting = setting
        self.participation = participation
        self.rule = rule
        self.communities = Communities(setting.initial[None, :].copy())
        self.events: list[Event] = []
        self.rejected: dict[int, str] = {}
        self.removed: dict[int, int] = {}
        self.accuracy: dict[int, float] = {}
        self.global_accuracy: dict[int, float] = {}
        self.fooled: dict[int, float] = {}
        self.assigned: dict[int, int] = {}
        self.step: float | None = None
        self.stopped = False
        self._asked: dict[str, tuple[int, Rows]] = {}
        self._choosing: set[int] = set()
        self._room = np.empty((0, setting.layout.size), np.float32)

    @abstractmethod
    def view(self, server_round: int) -> View | None:
        """Return the communities as this strategy sees them after `server_round`."""

    @property
    def phase(self) -> str:
        """Either `federated`, one model for all, or `clustered`."""
        return "clustered" if self.communities.members else "federated"

    @property
    def notes(self) -> Mapping[str, Any]:
        """Further values of the round for the records, JSON all of them."""
        return {}

    @property
    def suspects(self) -> set[int]:
        """Clients that this method keeps apart from the benign: see `Setting.benign`."""
        if not self.communities.members:
            return set(self.removed)
        rows = list(self.communities.members.values())
        benign = self.setting.benign(self.communities.models, np.bincount(rows))
        apart = {c for c, row in self.communities.members.items() if row not in benign}
        return apart | set(self.removed)

    @property
    def cohort(self) -> list[int]:
        """Client ids asked to train in the round under way."""
        return sorted(client_id for client_id, _ in self._asked.values())

    @property
    def stability(self) -> float | None:
        """How far training still moves, where the strategy measures it."""
        return None

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters:
        """Return the initial model: the server's own, so that every engine starts alike."""
        return encode(self.setting.initial)

    def evaluate(
        self, server_round: int, parameters: Parameters
    ) -> tuple[float, dict[str, Scalar]] | None:
        """Return None: no data on the server."""
        return None

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Sample among all clients; each receives what `attribute` says."""
        cohort = self.sample(server_round, list(roster(client_manager).proxies()), "all")
        return self.instruct(server_round, cohort, client_manager)

    def evaluates(self, server_round: int) -> bool:
        """Whether the clients are asked for their accuracy after this round."""
        last = server_round == self.setting.rounds or self.finished or self.stopped
        return last or server_round % self.setting.evaluate_every == 0

    def attribute(self, client_ids: Sequence[int]) -> tuple[Vectors, list[Rows]]:
        """Return models (m, d), and which of them each client receives."""
        return self.communities.models, [self.communities.rows_for(c) for c in client_ids]

    @property
    def global_model(self) -> Vector | None:
        """The model of all clients beside those of the communities, where there is one."""
        return None

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """Send every client its model, or several to a client that is to choose, and the global."""
        self._choosing = set()
        if not self.evaluates(server_round):
            return []
        proxies = roster(client_manager).proxies()
        client_ids = self._examined(server_round, list(proxies))
        models, offers = self.attribute(client_ids)
        encoded = {row: encode(models[row]) for row in sorted({r for rows in offers for r in rows})}
        everyone = self.global_model
        if everyone is not None:
            encoded[GLOBAL] = encode(everyone)
        instructions = []
        for client_id, rows in zip(client_ids, offers, strict=True):
            choose = len(rows) > 1
            if choose:
                self._choosing.add(client_id)
            for row in (*rows, GLOBAL) if everyone is not None else rows:
                config: dict[str, Scalar] = {"round": server_round, "community": row}
                config["choose"] = choose and row != GLOBAL
                instructions.append((proxies[client_id], EvaluateIns(encoded[row], config)))
        return instructions

    def _examined(self, server_round: int, client_ids: list[int]) -> list[int]:
        most = self.setting.evaluate_at_most
        if most is None or len(client_ids) <= most:
            return client_ids
        draw = generator(self.setting.seed, purpose="sample evaluation", round=server_round)
        return sorted(draw.choice(client_ids, most, replace=False).tolist())

    def aggregate_evaluate(
        self,
        server_round: int,
        results: EvaluateReplies,
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Keep each client's accuracy; of several models the least own training loss wins."""
        scores: dict[int, list[tuple[float, int, float]]] = {}
        everyone: dict[int, float] = {}
        fooled: dict[tuple[int, int], Any] = {}
        for _, reply in results:
            score = decode_score(reply)
            if score is None:
                log.warning(
                    "round %d: an evaluation without finite metrics is left out", server_round
                )
                continue
            client_id, loss, community, accuracy = score
            if community == GLOBAL:
                everyone[client_id] = accuracy
            else:
                fooled[client_id, community] = reply.metrics.get("backdoor")
                scores.setdefault(client_id, []).append((loss, community, accuracy))
        self.global_accuracy = dict(sorted(everyone.items()))
        best = {client_id: min(found) for client_id, found in sorted(scores.items())}
        self.accuracy = {client_id: accuracy for client_id, (_, _, accuracy) in best.items()}
        rates = {c: fooled[c, community] for c, (_, community, _) in best.items()}
        self.fooled = {client: float(rate) for client, rate in rates.items() if rate is not None}
        self.assigned = {c: best[c][1] for c in best if c in self._choosing}
        if not best:
            return None, {}
        return None, {"accuracy": float(np.mean(list(self.accuracy.values())))}

    def sample(self, server_round: int, client_ids: Sequence[int], purpose: str) -> list[int]:
        """Draw round(participation * n), at least one, of the sorted ids, keyed by the round."""
        if not client_ids:
            return []
        size = max(1, round(self.participation * len(client_ids)))
        draw = generator(self.setting.seed, purpose=f"sample {purpose}", round=server_round)
        return sorted(draw.choice(np.sort(client_ids), size, replace=False).tolist())

    def instruct(
        self, server_round: int, cohort: Sequence[int], client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Send each client of the cohort its model, or several to choose from."""
        proxies = roster(client_manager).proxies()
        models, offers = self.attribute(cohort)
        encoded: dict[Rows, Parameters] = {}
        self._asked, self.rejected = {}, {}
        instructions = []
        for client_id, rows in zip(cohort, map(tuple, offers), strict=True):
            if rows not in encoded:
                encoded[rows] = encode(*(models[row] for row in rows))
            self._asked[proxies[client_id].cid] = (client_id, rows)
            ins = FitIns(encoded[rows], {"round": server_round, **self.task(server_round)})
            instructions.append((proxies[client_id], ins))
        return instructions

    def task(self, server_round: int) -> Mapping[str, Scalar]:
        """Return what clients are asked for beside training, by name."""
        return {}

    @property
    def finished(self) -> bool:
        """Whether further rounds would change nothing."""
        return False

    def check(self, model: Vector) -> None:
        """Raise ValueError for a finite model (d,) that this method still cannot use."""
        return

    def receive(self, server_round: int, results: FitReplies) -> Replies:
        """Decode the replies and leave out the bad ones, named and counted.

        Raises TooFewRepliesError before anything learnt is touched.
        """
        # one buffer for all rounds: fresh pages for every cohort cost more than the copy
        if len(results) > len(self._room):
            self._room = np.empty((len(results), self.setting.layout.size), np.float32)
        good: list[tuple[int, int, int, float]] = []
        for proxy, reply in sorted(results, key=lambda result: self._asked[result[0].cid]):
            client_id, rows = self._asked[proxy.cid]
            try:
                model, samples, loss = decode_fit(reply, self.setting.layout.size)
                self.check(model)
                good.append((client_id, rows[decode_choice(reply, len(rows))], samples, loss))
                self._room[len(good) - 1] = model  # at once, while the check has it in the cache
            except (ValueError, KeyError, TypeError) as error:
                self.rejected[client_id] = str(error)
                log.warning("round %d: client %d rejected: %s", server_round, client_id, error)
        if len(good) < self.setting.min_success:
            raise TooFewRepliesError(
                f"round {server_round} brought {len(good)} valid replies of {len(self._asked)} "
                f"asked, engine.min_success is {self.setting.min_success}; "
                f"rejected: {self.rejected or 'none'}"
            )
        ids, starts, counts, losses = map(np.array, zip(*good, strict=True))
        models = self._room[: len(good)]
        return Replies(ids, models, starts, counts.astype(float), losses)

    def aggregate(self, replies: Replies) -> None:
        """Replace the model of every community that replied by the rule's aggregate.

        `step` becomes the norm of the mean movement over the norm of the models.
        """
        models = self.communities.models
        moved = length = 0.0
        for row in np.unique(replies.starts):
            mine = np.flatnonzero(replies.starts == row)
            together = len(mine) == len(replies.starts)
            received = replies.models if together else replies.models[mine]
            model = self.rule(received, replies.samples[mine])
            moved += float(np.linalg.norm(model - models[row]))
            length += float(np.linalg.norm(model))
            models[row] = model
        self.step = moved / length if length else None

    def checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return all that must survive a crash: arrays by name, and JSON values."""
        members = {str(client): row for client, row in self.communities.members.items()}
        removed = {str(client): when for client, when in self.removed.items()}
        return {"models": self.communities.models}, {"members": members, "removed": removed}

    def restore(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Take up what `checkpoint` returned."""
        members = {int(client): int(row) for client, row in state["members"].items()}
        self.communities = Communities(np.array(arrays["models"]), members)
        self.removed = {int(client): int(when) for client, when in state["removed"].items()}


def roster(client_manager: ClientManager) -> Roster:
    """Return the client manager as the roster that our loop hands in."""
    if not isinstance(client_manager, Roster):
        raise TypeError(
            f"expected a Roster, got {type(client_manager).__name__}; "
            "return ServerAppComponents(server=RoundLoop(...)) so that clients are known by id"
        )
    return client_manager
