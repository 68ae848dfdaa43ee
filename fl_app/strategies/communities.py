"""Community discovery during training: communities of the clients' last models, every round.

Bettinelli et al., IEEE Big Data 2024, "Discovering communities with clustered federated
learning", algorithm 1.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from flwr.common import FitRes, Parameters, Scalar
from flwr.server.client_proxy import ClientProxy
from pydantic import NonNegativeFloat

from fl_app.aggregation import Weighting, weighted_mean
from fl_app.attribution import nearest, weighted_nearest
from fl_app.strategies.base import CommunityStrategy, FitReplies, Rows
from fl_app.strategies.model_graph import Exponent, ModelGraph, Scale, Similarity, Snapshot
from fl_app.strategies.replies import encode
from fl_app.strategies.setting import Communities, Setting, View, prefixed, unprefixed
from fl_app.types import Between, Participation, PositiveInt, Vector, Vectors


class CommunityDiscovery(CommunityStrategy):
    """Louvain on normalised similarities of the last models, after every round.

    A community's model is the mean of its members' last models, by `weighting` equally or
    by samples; the global model is the plain mean of the community models. `attribution`
    says what a client receives: `avg` its community's model; `1nn` the one nearest to its
    last model; `wnn` the mean of the `neighbours` nearest, weighted by softmax(-beta *
    distance). Newcomers, and clients not heard of for `max_age` rounds, get the global model.
    """

    name = "communities"

    def __init__(
        self,
        setting: Setting,
        *,
        participation: Participation,
        attribution: Literal["avg", "1nn", "wnn"] = "avg",
        neighbours: PositiveInt = 3,
        beta: NonNegativeFloat = 1.0,
        similarity: Similarity = "trusted",
        exponent: Exponent = 3.0,
        scale: Scale = "ordinary",
        weighting: Weighting = "uniform",
        max_age: PositiveInt | None = None,
    ) -> None:
        super().__init__(
            setting, participation=participation, rule=weighted_mean, weighting=weighting
        )
        self.attribution = attribution
        self.neighbours, self.beta = neighbours, beta
        self.graph = ModelGraph(
            setting.layout,
            setting.finding,
            similarity=similarity,
            exponent=exponent,
            scale=scale,
            max_age=max_age,
        )
        self.samples: dict[int, float] = {}
        self.everyone = setting.initial
        self.found: Snapshot | None = None
        self.round = 0

    def check(self, model: Vector, samples: int) -> None:
        """Refuse a model that no distance can be measured from."""
        self.graph.check(model)

    def attribute(self, client_ids: Sequence[int]) -> tuple[Vectors, list[Rows]]:
        """Return community models, the global one and mixtures (m, d), and each client's row."""
        if self.found is None:
            return self.everyone[None, :], [(0,)] * len(client_ids)
        models = self.communities.models
        given = self._weights(self.found)
        place = {client: i for i, client in enumerate(self.found.client_ids.tolist())}
        stock, rows = [models, self.everyone[None, :]], list[Rows]()
        count = len(models) + 1
        for client in client_ids:
            weights = given[place[client]] if client in place else None
            if weights is None:
                rows.append((len(models),))
            elif weights.max() == 1.0:
                rows.append((int(weights.argmax()),))
            else:
                stock.append((weights.astype(np.float32) @ models)[None, :])
                rows.append((count,))
                count += 1
        return np.concatenate(stock), rows

    def _weights(self, found: Snapshot) -> Between:
        """Return how much of each community's model (k) each known client receives (n, k)."""
        models, rows = self.communities.models, found.labels
        if self.attribution != "avg":
            distance = self.graph.between(found.models, models, self.setting.layout)
            if self.attribution == "wnn":
                return weighted_nearest(distance, neighbours=self.neighbours, beta=self.beta)
            rows = nearest(distance)
        whole: Between = np.eye(len(models))[rows]
        return whole

    def aggregate_fit(
        self,
        server_round: int,
        results: FitReplies,
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters, dict[str, Scalar]]:
        """Keep the models, find the communities, and average inside and over them."""
        replies = self.receive(server_round, results)
        self.graph.put(server_round, replies, self.strides(replies))
        heard = zip(replies.client_ids.tolist(), replies.samples.tolist(), strict=True)
        self.samples.update(heard)
        self._discover(server_round)
        return encode(self.everyone), {"train_loss": replies.loss}

    def _discover(self, server_round: int) -> None:
        found = self.graph.look(server_round)
        ids = found.client_ids.tolist()
        weights = self.weights_of(np.array([self.samples[client] for client in ids]))
        count = int(found.labels.max()) + 1
        inside = [np.flatnonzero(found.labels == row) for row in range(count)]
        for each in inside:
            self.watch(found.client_ids[each], weights[each])
        models = np.stack([self.rule(found.models[each], weights[each]) for each in inside])
        self.communities = Communities(models, dict(zip(ids, found.labels.tolist(), strict=True)))
        before, self.everyone = self.everyone, models.mean(axis=0)
        length = float(np.linalg.norm(self.everyone))
        self.step = float(np.linalg.norm(self.everyone - before)) / length if length else None
        self.found, self.round = found, server_round

    @property
    def global_model(self) -> Vector | None:
        """The plain mean of the community models."""
        return self.everyone

    def view(self, server_round: int) -> View | None:
        """Return the communities that were found after this round."""
        found = self.found
        if found is None:
            return None
        return View(found.client_ids, found.labels, found.similarity, found.distance)

    def checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Add the last models, the global model and what is known of the clients."""
        arrays, state = super().checkpoint()
        arrays["everyone"] = self.everyone
        samples = {str(client): count for client, count in self.samples.items()}
        state |= {"samples": samples, "round": self.round}
        return arrays | prefixed("graph", self.graph.arrays()), state

    def restore(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Take up what `checkpoint` returned."""
        super().restore(arrays, state)
        self.everyone = np.array(arrays["everyone"])
        self.graph.restore(unprefixed("graph", arrays))
        self.round = state["round"]
        self.found = self.graph.look(self.round) if self.round else None
        self.samples = {int(client): count for client, count in state["samples"].items()}
