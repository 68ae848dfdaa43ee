"""Hierarchical clustering of local updates, after some rounds of one model.

Briggs et al., IJCNN 2020, "Federated learning with hierarchical clustering of local updates
to improve training on non-IID data", algorithm 1.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from flwr.common import FitIns, Parameters
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from pydantic import PositiveFloat

from fl_app.aggregation import Weighting
from fl_app.graph.communities import Linkage, agglomerative
from fl_app.strategies.base import roster
from fl_app.strategies.model_graph import DottedPath, distance_named
from fl_app.strategies.replies import Replies
from fl_app.strategies.setting import RULES, Setting, View, prefixed, unprefixed
from fl_app.strategies.two_phase import TwoPhase
from fl_app.types import Labels, Matrix, Participation, PositiveInt


class Hierarchical(TwoPhase):
    """Agglomerative clustering of all clients' updates in round `cluster_round`.

    In that round every client trains, whatever the participation, so that every one is
    known. Communities are merged while two are nearer than `threshold` by the `distance` of
    updates and the `linkage`; their models then start from the global one (the paper trains
    each on from the model of that round).
    """

    def __init__(
        self,
        setting: Setting,
        *,
        participation: Participation,
        cluster_round: PositiveInt,
        threshold: PositiveFloat,
        distance: Literal["euclidean", "cosine"] | DottedPath = "cosine",
        linkage: Linkage = "average",
        rule: Literal["mean", "median"] = "mean",
        weighting: Weighting = "capped",
    ) -> None:
        super().__init__(
            setting, participation=participation, rule=RULES[rule], weighting=weighting
        )
        self.cluster_round = cluster_round
        self.threshold = threshold
        self.linkage: Linkage = linkage
        self.measure = distance_named(distance)
        self.ids = np.empty(0, int)
        self.distance: Matrix = np.empty((0, 0))

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Sample as usual; all clients train in the round that clusters them."""
        if self.clustered_at is None and self.is_due(server_round):
            everyone = list(roster(client_manager).proxies())
            return self.instruct(server_round, everyone, client_manager)
        return super().configure_fit(server_round, parameters, client_manager)

    def remember(self, server_round: int, replies: Replies) -> None:
        """Keep the distances among the updates of the round that clusters."""
        if not self.is_due(server_round):
            return
        updates = self.communities.models[0] - replies.models
        self.ids = replies.client_ids
        self.distance = self.measure(updates, updates, self.setting.layout)
        np.fill_diagonal(self.distance, 0.0)

    def is_due(self, server_round: int) -> bool:
        """After `cluster_round`."""
        return server_round >= self.cluster_round

    def find(self) -> tuple[Labels, Labels]:
        """Merge clients into communities."""
        labels = agglomerative(self.distance, threshold=self.threshold, linkage=self.linkage)
        return self.ids, labels

    def view(self, server_round: int) -> View | None:
        """Return the communities once there are some."""
        if self.clustered_at is None:
            return None
        return View(*self.known(), None, self.distance)

    def checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Add the distances that the communities come from."""
        arrays, state = super().checkpoint()
        graph = {"ids": self.ids, "distance": self.distance}
        return arrays | prefixed("graph", graph), state

    def restore(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Take up what `checkpoint` returned."""
        super().restore(arrays, state)
        graph = unprefixed("graph", arrays)
        self.ids, self.distance = np.array(graph["ids"]), np.array(graph["distance"])
