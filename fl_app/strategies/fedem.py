"""FedEM: several models for all clients, of which each client uses its own mixture.

Marfoq, Neglia, Bellet, Kameni and Vidal, NeurIPS 2021, "Federated multi-task learning under a
mixture of distributions".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from fl_app.aggregation import Weighting
from fl_app.attribution import mixed
from fl_app.client.mixture import WEIGHTS
from fl_app.learner_reports import Report
from fl_app.strategies.alternating import Alternating, AlternatingState
from fl_app.strategies.cohort import Aggregated, FitFailures, FitReplies, Rows
from fl_app.strategies.encoding import encode
from fl_app.strategies.graph_settings import GraphUse
from fl_app.strategies.outcome import CLUSTERED, Outcome, View
from fl_app.strategies.replies import Replies
from fl_app.strategies.server_context import RULES, WEIGHTED, RuleName, ServerContext
from fl_app.strategies.state import Communities
from fl_app.types import Between, Fallback, Participation, Vector, Vectors, Weights
from fl_app.used_with import UsedWith

ALL = 0.99
"""Mean weight of a component over the clients from which on all of them use it alone."""


@dataclass(kw_only=True)
class FedEmState(AlternatingState):
    """The state of FedEM in a checkpoint; the models are those of `one_hot`."""

    told: dict[int, list[float]] = field(default_factory=dict)
    """The weights of each client as it last told them, which sum to 1."""


class FedEm(Alternating):
    """Clients compute responsibilities, and train all components with them; the server averages.

    A model holds all k components, and the weights of one client. Model k of the communities has
    the whole weight on component k, so that the mean of these models with the weights of a client
    is the model of this client. A client's community is the component of its largest weight. A
    client that has not trained has equal weights. With `fallback`, the mixtures are judged: see
    `fl_app.strategies.alternating`. The one model has the whole weight on one component, so that
    only this one learns.
    """

    model_kind = "mixture"
    state: FedEmState
    graph_use = GraphUse(only=("sparse_above",))
    used_with: ClassVar[UsedWith] = WEIGHTED
    asks = {WEIGHTS: Report(length=1, low=0, high=1)}  # noqa: RUF012

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: Participation,
        rule: RuleName,
        weighting: Weighting,
        fallback: Fallback,
    ) -> None:
        super().__init__(
            context,
            participation=participation,
            rule=RULES[rule],
            weighting=weighting,
            fallback=fallback,
        )
        self.part = context.layout.parts[WEIGHTS]
        self.count = self.part.stop - self.part.start
        self.asks = {
            name: replace(each, length=self.count) for name, each in type(self).asks.items()
        }
        self.state = FedEmState(communities=Communities(self._alone(context.initial)))

    def _alone(self, model: Vector) -> Vectors:
        """Return the model (d,) with the whole weight on each of the k components (k, d)."""
        models = np.repeat(model[None, :], self.count, axis=0)
        models[:, self.part] = np.eye(self.count, dtype=np.float32)
        return models

    def weights_of(self, client_ids: Sequence[int]) -> Between:
        """Return the weights (n, k) of clients; equal ones for a client that has not trained."""
        equal = [1 / self.count] * self.count
        weights: Between = np.array([self.state.told.get(client, equal) for client in client_ids])
        return weights.reshape(-1, self.count)

    def attribute(self, client_ids: Sequence[int]) -> tuple[Vectors, list[Rows]]:
        """Return the mixture of each client (n, d), or the one model after they were undone."""
        models = self.state.communities.models
        if self.state.one:
            return models, [(0,)] * len(client_ids)
        weights = self.weights_of(client_ids)
        mixtures = np.empty((len(weights), models.shape[1]), np.float32)
        for row, each in enumerate(weights):
            mixtures[row] = mixed(each, models)
        return mixtures, [(row,) for row in range(len(weights))]

    def mixtures(self, client_ids: Sequence[int]) -> Mapping[int, Weights]:
        """Return the weights (k,) of all clients, of none after the mixtures were undone."""
        if self.state.one:
            return {}
        return dict(zip(client_ids, self.weights_of(client_ids), strict=True))

    def aggregate_fit(
        self, server_round: int, results: FitReplies, failures: FitFailures
    ) -> Aggregated:
        """Store the clients' weights, and average the components."""
        replies = self.receive(server_round, results, failures)
        if self.trains_common:
            return self.train_common(server_round, replies)
        self.compare(replies)
        self.remember(replies)
        before = self.state.communities.models[0]
        model = self.aggregator.aggregate(replies.client_ids, replies.models, replies.weights)
        models = self._alone(model)
        length = float(np.linalg.norm(models[0]))
        moved = float(np.linalg.norm(models[0] - before))
        self.aggregator.step = moved / length if length else None
        self.state.communities = Communities(models)
        self.judge(server_round)
        return encode(models[0]), {"train_loss": replies.loss}

    def remember(self, replies: Replies) -> None:
        """Store the weights that the clients tell."""
        told = summing_to_one(replies.reports[WEIGHTS])
        self.state.told.update(zip(replies.client_ids.tolist(), told.tolist(), strict=True))

    def outcome(self, server_round: int) -> Outcome:
        """Set the communities: the component of the largest weight of each client."""
        members = dict(self.users())
        return replace(super().outcome(server_round), phase=CLUSTERED, members=members)

    def ready(self, server_round: int) -> bool:
        """Whether a trial may begin: clients mix components, and had rounds to choose weights."""
        mean = self.weights_of([*self.state.told]).mean(axis=0)
        return self.late(server_round) and bool(mean.max() < ALL)

    def choices(self) -> Mapping[int, int]:
        """Return the component of the largest weight of each client."""
        return {client: int(np.argmax(each)) for client, each in self.state.told.items()}

    def view(self, server_round: int) -> View | None:
        """Return the communities, and for two clients the product of their weights.

        This is the probability that a sample of each comes from the same component.
        """
        if self.state.one or not self.state.told:
            return super().view(server_round)
        ids = np.array(sorted(self.state.told))
        weights = self.weights_of(ids.tolist())
        few = len(ids) <= self.context.detection.sparse_above
        return View(ids, weights.argmax(axis=1), weights @ weights.T if few else None)


def summing_to_one(told: Between) -> Between:
    """Return non-negative rows (n, k) scaled to sum to 1; equal entries for a row of zeros."""
    total = told.sum(axis=1, keepdims=True)
    equal = np.full(told.shape, 1 / told.shape[1])
    scaled: Between = np.divide(told, total, out=equal, where=total > 0)
    return scaled
