"""Central k-means on the points of all clients, as a reference."""

from dataclasses import dataclass, replace

import numpy as np
from flwr.common import Parameters
from flwr.server.client_manager import ClientManager

from fl_app.kmeans.central import cluster
from fl_app.rng import generator
from fl_app.strategies.centroid_strategy import CentroidStrategy
from fl_app.strategies.cohort import Aggregated, FitFailures, FitInstructions, FitReplies
from fl_app.strategies.outcome import Outcome
from fl_app.strategies.server_context import ServerContext
from fl_app.strategies.state import Communities, MethodState
from fl_app.types import PositiveInt


@dataclass(kw_only=True)
class CentralState(MethodState):
    """The state of central k-means in a checkpoint."""

    done: bool = False
    """Whether the single round is complete."""


class CentralKMeans(CentroidStrategy):
    """Scikit-learn's k-means on the union of all clients' points, in one round.

    Clients only evaluate; a simulation has their points on the server. The best of `n_init`
    k-means++ starts is used, each with at most `max_iter` iterations. Raises ValueError if the
    context has no union.
    """

    simulation_only = True
    trains_clients = False
    name = "central_kmeans"
    state: CentralState

    def __init__(
        self, context: ServerContext, *, n_init: PositiveInt, max_iter: PositiveInt
    ) -> None:
        super().__init__(context, participation=1.0)
        if context.union is None:
            raise ValueError("central k-means needs all points on the server; run a simulation")
        self.union = context.union
        self.n_init, self.max_iter = n_init, max_iter
        self.state = CentralState(communities=Communities.of(context.initial))

    def outcome(self, server_round: int) -> Outcome:
        """Add whether the single round is complete, and the scores of the clusters."""
        notes = self.evaluation.scores.agreement
        done = "central k-means has one round" if self.state.done else ""
        return replace(super().outcome(server_round), notes=notes, finished=done)

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> FitInstructions:
        """Ask no client to train."""
        return self.instruct(server_round, [], client_manager)

    def aggregate_fit(
        self, server_round: int, results: FitReplies, failures: FitFailures
    ) -> Aggregated:
        """Cluster the union."""
        self.rejections.add_failed(failures)
        points = self.union()
        state = int(generator(self.context.seed, purpose="central k-means").integers(2**31))
        found = cluster(points, self.k, state=state, n_init=self.n_init, max_iter=self.max_iter)
        self.state.done = True
        loss = float(found.inertia_ / len(points))
        return self.publish(np.asarray(found.cluster_centers_)), {"train_loss": loss}
