"""What every strategy shares: decode and validate replies, encode models, evaluate, survive."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from logging import getLogger
from typing import Any, ClassVar

import numpy as np
from flwr.common import EvaluateIns, EvaluateRes, FitIns, Parameters, Scalar
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy

from fl_app.aggregation import Rule, Weighting, dominant, sample_weights
from fl_app.ingress.evaluations import EvaluationAnswer
from fl_app.ingress.fits import FitQuestion
from fl_app.rng import generator
from fl_app.strategies.cohort import Cohort, FitReplies
from fl_app.strategies.examination import GLOBAL, EvaluateReplies, Examination, Rows, Scores
from fl_app.strategies.replies import Replies, TooFewRepliesError, encode
from fl_app.strategies.roster import Roster
from fl_app.strategies.setting import Event, Setting, View
from fl_app.strategies.state import Communities, MethodState
from fl_app.types import Labels, Vector, Vectors, Weights

__all__ = [
    "GLOBAL",
    "CommunityStrategy",
    "EvaluateReplies",
    "FitReplies",
    "Rows",
    "roster",
]
log = getLogger(__name__)


class CommunityStrategy(Strategy, ABC):
    """A Flower Strategy over communities of clients, each with a model of its own.

    `name` is what a summary calls it, where that is not the name of the class.
    """

    name: str | None = None
    of_points = False
    """Whether the model is centroids of data points, and not a network."""
    shared: ClassVar[Mapping[str, Any]] = {"weighting": Weighting}
    """Settings of every method by name: set as attributes where its constructor takes none."""
    simulation_only = False
    """Whether the server needs what only a simulation has."""

    def __init__(
        self,
        setting: Setting,
        *,
        participation: float,
        rule: Rule,
        weighting: Weighting = "samples",
    ) -> None:
        self.setting = setting
        self.participation = participation
        self.rule = rule
        self.weighting: Weighting = weighting
        self.state = MethodState(communities=Communities.of(setting.initial))
        self.events: list[Event] = []
        self.rejected: dict[int | str, str] = {}
        self.scores = Scores()
        self.dominance: dict[int, float] = {}
        self.training_s = 0.0
        self.said: dict[int, Mapping[str, float]] = {}
        self.step: float | None = None
        self.stopped = False
        self._dominating: set[int] = set()
        self._examination = Examination()
        self._fitting = Cohort(
            setting.layout,
            largest_update=setting.largest_update,
            of_points=self.of_points,
        )

    @abstractmethod
    def view(self, server_round: int) -> View | None:
        """Return the communities as this strategy sees them after `server_round`."""

    @property
    def phase(self) -> str:
        """Either `federated`, one model for all, or `clustered`."""
        return "clustered" if self.state.communities.members else "federated"

    @property
    def notes(self) -> Mapping[str, Any]:
        """Further values of the round for the records, JSON all of them."""
        return {}

    @property
    def suspects(self) -> set[int]:
        """Clients that this method keeps apart from the benign: see `Setting.benign`."""
        if not self.state.communities.members:
            return set(self.state.removed)
        rows = list(self.state.communities.members.values())
        benign = self.setting.benign(self.state.communities.models, np.bincount(rows))
        apart = {c for c, row in self.state.communities.members.items() if row not in benign}
        return apart | set(self.state.removed)

    @property
    def cohort(self) -> list[int]:
        """Client ids asked to train in the round under way."""
        return self._fitting.client_ids

    @property
    def accuracy(self) -> dict[int, float]:
        """Accuracy of each client that was measured last, with the model that it uses."""
        return self.scores.accuracy

    @property
    def assigned(self) -> dict[int, int]:
        """The row that each client with a choice of models has taken."""
        return self.scores.assigned

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
        now = self.state.communities
        return now.models, [now.rows_for(client) for client in client_ids]

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """Send every client its model, or several to a client that is to choose, and the global."""
        self._examination, self.scores = Examination(), Scores()
        if not self.evaluates(server_round):
            return []
        known = roster(client_manager)
        client_ids = self._examined(server_round, list(known.proxies()))
        models, offers = self.attribute(client_ids)
        return self._examination.ask(
            server_round, client_ids, models, offers, known, self.state.global_model
        )

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
        reject = partial(self.reject, server_round)
        self.scores = self._examination.receive(results, self.check_score, reject)
        if not self.accuracy:
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
        known = roster(client_manager)
        models, offers = self.attribute(cohort)
        encoded: dict[Rows, Parameters] = {}
        self._fitting.begin(models)
        self.rejected, self.dominance = {}, {}
        instructions = []
        for client_id, rows in zip(cohort, map(tuple, offers), strict=True):
            if rows not in encoded:
                encoded[rows] = encode(*(models[row] for row in rows))
            question = FitQuestion(client_id, rows, known.samples(client_id))
            proxy = known.proxy(client_id)  # one that has left since fails, by name
            self._fitting.asked[proxy.cid] = question
            ins = FitIns(encoded[rows], {"round": server_round, **self.task(server_round)})
            instructions.append((proxy, ins))
        return instructions

    def task(self, server_round: int) -> Mapping[str, Scalar]:
        """Return what clients are asked for beside training, by name."""
        return {}

    @property
    def finished(self) -> bool:
        """Whether further rounds would change nothing."""
        return False

    def check(self, model: Vector, samples: int) -> None:
        """Raise ValueError for a finite model (d,) that this method still cannot use.

        `samples` are those that the client trained on, as it says.
        """
        return

    def check_score(self, answer: EvaluationAnswer) -> None:
        """Raise ValueError for a score that this method cannot use."""
        return

    def receive(self, server_round: int, results: FitReplies) -> Replies:
        """Return the trusted replies; the others are left out, named and counted.

        Raises TooFewRepliesError before anything learnt is touched.
        """
        reject = partial(self.reject, server_round)
        answers, models = self._fitting.receive(results, self.check, reject)
        if len(answers) < self.setting.min_success:
            raise TooFewRepliesError(
                f"round {server_round} brought {len(answers)} valid replies of "
                f"{len(self.cohort)} asked, engine.min_success is {self.setting.min_success}; "
                f"rejected: {self.rejected or 'none'}"
            )
        self.training_s = sum(answer.seconds for answer in answers)
        self.said = {answer.client_id: answer.said for answer in answers}
        samples = np.array([answer.samples for answer in answers], float)
        return Replies.of(answers, models, self.weights_of(samples))

    def strides(self, replies: Replies) -> Weights:
        """Return the norms of the updates as multiples of the usual one in this round (n,)."""
        return self._fitting.strides(replies.models, replies.starts)

    def weights_of(self, samples: Weights) -> Weights:
        """Return the weights (n,) of clients with so many samples (n,)."""
        return sample_weights(samples, how=self.weighting, cap=self.setting.sample_cap)

    def watch(self, client_ids: Labels, weights: Weights) -> None:
        """Note the client of a community (n,) that holds more than half of its weight (n,)."""
        found = dominant(weights)
        if found is None:
            return
        place, share = found
        client = int(client_ids[place])
        self.dominance[client] = max(share, self.dominance.get(client, 0.0))
        if client not in self._dominating:
            log.warning(
                "client %d holds %.0f %% of the weight of its community; "
                "strategy.weighting=uniform or a lower engine.sample_cap bound it",
                client, 100 * share,
            )  # fmt: skip
            self._dominating.add(client)

    def reject(self, server_round: int, client: int | str, why: str) -> None:
        """Count and log a client whose reply is left out in this round."""
        before = self.rejected.get(client)
        self.rejected[client] = why if before is None else f"{before}; {why}"
        log.warning("round %d: client %s rejected: %s", server_round, client, why)

    def aggregate(self, replies: Replies) -> None:
        """Replace the model of every community that replied by the rule's aggregate.

        `step` becomes the norm of the mean movement over the norm of the models.
        """
        models = self.state.communities.models
        moved = length = 0.0
        for row in np.unique(replies.starts):
            mine = np.flatnonzero(replies.starts == row)
            together = len(mine) == len(replies.starts)
            received = replies.models if together else replies.models[mine]
            self.watch(replies.client_ids[mine], replies.weights[mine])
            model = self.rule(received, replies.weights[mine])
            moved += float(np.linalg.norm(model - models[row]))
            length += float(np.linalg.norm(model))
            models[row] = model
        self.step = moved / length if length else None


def roster(client_manager: ClientManager) -> Roster:
    """Return the client manager as the roster that our loop hands in."""
    if not isinstance(client_manager, Roster):
        raise TypeError(
            f"expected a Roster, got {type(client_manager).__name__}; "
            "return ServerAppComponents(server=RoundLoop(...)) so that clients are known by id"
        )
    return client_manager
