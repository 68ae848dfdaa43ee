"""What every strategy shares: decode and validate replies, encode models, evaluate, survive."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from logging import getLogger
from typing import Any

import numpy as np
from flwr.common import EvaluateIns, EvaluateRes, FitIns, FitRes, Parameters, Scalar
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy

from fl_app.aggregation import Rule, median, weighted_mean
from fl_app.graph.communities import Finding
from fl_app.graph.holdings import Holding, InMemory
from fl_app.params import Layout
from fl_app.rng import generator
from fl_app.strategies.replies import (
    Replies,
    TooFewRepliesError,
    decode_fit,
    decode_score,
    encode,
)
from fl_app.strategies.roster import Roster
from fl_app.types import Labels, Matrix, Vector, Vectors

log = getLogger(__name__)

FitReplies = list[tuple[ClientProxy, FitRes]]
EvaluateReplies = list[tuple[ClientProxy, EvaluateRes]]

RULES: Mapping[str, Rule] = {"mean": weighted_mean, "median": median}
"""Aggregation rules by the name that a configuration gives them."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the wiring hands to every strategy; `initial` is the first model (d,)."""

    seed: int
    rounds: int
    layout: Layout
    initial: Vector
    min_success: int
    evaluate_every: int
    evaluate_at_most: int | None = None
    finding: Finding = field(default_factory=Finding)
    holding: Callable[[], Holding] = InMemory
    look_ahead_every: int = 1


@dataclass(frozen=True)
class View:
    """The communities as the server sees them after a round, for records and figures."""

    client_ids: Labels
    labels: Labels
    similarity: Matrix | None


@dataclass
class Event:
    """Something that happened once and belongs in the records."""

    kind: str
    detail: str


@dataclass
class Communities:
    """Models and who receives which: the state that every strategy keeps.

    `models` (k, d); `members` maps a client to its row, once it is known. A client without
    a row receives the only model, or tries them all.
    """

    models: Vectors
    members: dict[int, int] = field(default_factory=dict)

    def rows_for(self, client_id: int) -> Sequence[int]:
        """Return the rows of the models that a client may receive."""
        row = self.members.get(client_id)
        return range(len(self.models)) if row is None else (row,)


class CommunityStrategy(Strategy, ABC):
    """A Flower Strategy over communities of clients, each with a model of its own."""

    def __init__(self, setting: Setting, *, participation: float, rule: Rule) -> None:
        self.setting = setting
        self.participation = participation
        self.rule = rule
        self.communities = Communities(setting.initial[None, :].copy())
        self.events: list[Event] = []
        self.rejected: dict[int, str] = {}
        self.accuracy: dict[int, float] = {}
        self.assigned: dict[int, int] = {}
        self.step: float | None = None
        self._asked: dict[str, tuple[int, int]] = {}
        self._room = np.empty((0, setting.layout.size), np.float32)

    @abstractmethod
    def view(self, server_round: int) -> View | None:
        """Return the communities as this strategy sees them after `server_round`."""

    @property
    def phase(self) -> str:
        """Either `federated`, one model for all, or `clustered`."""
        return "clustered" if self.communities.members else "federated"

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

    def evaluates(self, server_round: int) -> bool:
        """Whether the clients are asked for their accuracy after this round."""
        last = server_round == self.setting.rounds
        return last or server_round % self.setting.evaluate_every == 0

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """Send every client its model, or all models to a client that belongs nowhere yet."""
        if not self.evaluates(server_round):
            return []
        encoded = [encode(model) for model in self.communities.models]
        instructions = []
        proxies = roster(client_manager).proxies()
        for client_id in self._examined(server_round, list(proxies)):
            proxy = proxies[client_id]
            rows = self.communities.rows_for(client_id)
            for row in rows:
                config: dict[str, Scalar] = {"round": server_round, "community": row}
                config["choose"] = len(rows) > 1
                instructions.append((proxy, EvaluateIns(encoded[row], config)))
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
        for _, reply in results:
            score = decode_score(reply)
            if score is None:
                log.warning(
                    "round %d: an evaluation without finite metrics is left out", server_round
                )
                continue
            client_id, loss, community, accuracy = score
            scores.setdefault(client_id, []).append((loss, community, accuracy))
        best = {client_id: min(found) for client_id, found in sorted(scores.items())}
        self.accuracy = {client_id: accuracy for client_id, (_, _, accuracy) in best.items()}
        strangers = set(best) - set(self.communities.members)
        many = len(self.communities.models) > 1
        self.assigned = {c: best[c][1] for c in sorted(strangers)} if many else {}
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
        """Send each client of the cohort the model of its community."""
        proxies = roster(client_manager).proxies()
        encoded: dict[int, Parameters] = {}
        self._asked, self.rejected = {}, {}
        instructions = []
        for client_id in cohort:
            row = self.communities.rows_for(client_id)[0]
            if row not in encoded:
                encoded[row] = encode(self.communities.models[row])
            self._asked[proxies[client_id].cid] = (client_id, row)
            instructions.append((proxies[client_id], FitIns(encoded[row], {"round": server_round})))
        return instructions

    def receive(self, server_round: int, results: FitReplies) -> Replies:
        """Decode the replies and leave out the bad ones, named and counted.

        Raises TooFewRepliesError before anything learnt is touched.
        """
        good: dict[int, tuple[Vector, int, int, float]] = {}
        for proxy, reply in results:
            client_id, row = self._asked[proxy.cid]
            try:
                model, samples, loss = decode_fit(reply, self.setting.layout.size)
                good[client_id] = (model, row, samples, loss)
            except (ValueError, KeyError, TypeError) as error:
                self.rejected[client_id] = str(error)
                log.warning("round %d: client %d rejected: %s", server_round, client_id, error)
        if len(good) < self.setting.min_success:
            raise TooFewRepliesError(
                f"round {server_round} brought {len(good)} valid replies of {len(self._asked)} "
                f"asked, engine.min_success is {self.setting.min_success}; "
                f"rejected: {self.rejected or 'none'}"
            )
        ids = sorted(good)
        models, starts, samples, losses = zip(*(good[i] for i in ids), strict=True)
        return Replies(
            np.array(ids),
            self._stack(models),
            np.array(starts),
            np.array(samples, float),
            np.array(losses, float),
        )

    def _stack(self, models: Sequence[Vector]) -> Vectors:
        # one buffer for all rounds: fresh pages for every cohort cost more than the copy
        if len(models) > len(self._room):
            self._room = np.empty((len(models), self.setting.layout.size), np.float32)
        stacked: Vectors = np.stack(models, out=self._room[: len(models)])
        return stacked

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
        return {"models": self.communities.models}, {"members": members}

    def restore(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Take up what `checkpoint` returned."""
        members = {int(client): int(row) for client, row in state["members"].items()}
        self.communities = Communities(np.array(arrays["models"]), members)


def roster(client_manager: ClientManager) -> Roster:
    """Return the client manager as the roster that our loop hands in."""
    if not isinstance(client_manager, Roster):
        raise TypeError(
            f"expected a Roster, got {type(client_manager).__name__}; "
            "return ServerAppComponents(server=RoundLoop(...)) so that clients are known by id"
        )
    return client_manager
