"""FLIC: plain FedAvg while the similarity graph fills, then one model per community.

Espinoza Castellon et al., IJCNN 2022, "Federated learning with incremental clustering for
heterogeneous data", algorithm 1.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from flwr.common import FitIns, FitRes, Parameters, Scalar
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from pydantic import Field, NonNegativeInt, PositiveInt

from fl_app.evaluation.stability import loss_fall
from fl_app.graph.communities import find
from fl_app.graph.store import UpdateStore
from fl_app.strategies.base import (
    RULES,
    Communities,
    CommunityStrategy,
    Event,
    FitReplies,
    Setting,
    View,
    roster,
)
from fl_app.strategies.replies import Replies, encode
from fl_app.types import Participation

ClusterRound = PositiveInt | Literal["auto"]
Tolerance = Annotated[float, Field(gt=0, lt=1)]


class Flic(CommunityStrategy):
    """Two phases: `federated` up to the clustering round, then `clustered`.

    Clustering happens after round `cluster_round`, or, with `auto`, as soon as the training
    loss averaged over `stability_window` rounds fell by less than `stability_tolerance` of
    the first round's loss against the window before: the paper says "once stable" and leaves
    the test open. docs/results/auto_cluster_round.md has the curves that chose the defaults.
    Updates of rounds below `ignore_before` are left out of the graph. Clients never sampled
    are no nodes: whenever accuracy is measured, they try every community's model on their
    own training data and take the best, since the paper assigns them only after training.
    """

    def __init__(
        self,
        setting: Setting,
        *,
        participation: Participation,
        cluster_round: ClusterRound,
        ignore_before: NonNegativeInt = 0,
        rule: Literal["mean", "median"] = "mean",
        stability_window: PositiveInt = 10,
        stability_tolerance: Tolerance = 0.02,
    ) -> None:
        super().__init__(setting, participation=participation, rule=RULES[rule])
        self.cluster_round = cluster_round
        self.ignore_before = ignore_before
        self.window = stability_window
        self.tolerance = stability_tolerance
        self.store = UpdateStore(setting.holding())
        self.losses: list[float] = []
        self.clustered_at: int | None = None

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Sample among all clients, or, once clustered, inside each community."""
        present = list(roster(client_manager).proxies())
        if self.clustered_at is None:
            cohort = self.sample(server_round, present, "all")
        else:
            members = self.communities.members
            cohort = []
            for row in range(len(self.communities.models)):
                inside = [client for client in present if members.get(client) == row]
                cohort += self.sample(server_round, inside, f"community {row}")
        return self.instruct(server_round, sorted(cohort), client_manager)

    def aggregate_fit(
        self,
        server_round: int,
        results: FitReplies,
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters, dict[str, Scalar]]:
        """Remember the updates, aggregate per community, cluster when it is time."""
        replies = self.receive(server_round, results)
        if self.clustered_at is None:
            self._remember(server_round, replies)
        self.aggregate(replies)
        if self.clustered_at is None and self._is_due(server_round):
            self._cluster(server_round)
        return encode(self.communities.models[0]), {"train_loss": replies.loss}

    def view(self, server_round: int) -> View | None:
        """Return the communities, or, before clustering, those that Louvain would find now."""
        every = self.setting.look_ahead_every
        if self.clustered_at is None and (every == 0 or server_round % every or not self.store):
            return None
        ids = self.store.client_ids()
        dense = len(ids) <= self.setting.finding.sparse_above
        similarity = self.store.similarity()[1] if dense else None
        if self.clustered_at is None:
            return View(ids, find(self.store, self.setting.finding), similarity)
        labels = np.array([self.communities.members[client] for client in ids.tolist()])
        return View(ids, labels, similarity)

    def evaluates(self, server_round: int) -> bool:
        """Measure at the clustering round too: accuracy before is the global model's there."""
        return super().evaluates(server_round) or server_round == self.clustered_at

    @property
    def stability(self) -> float | None:
        """Fall of the windowed training loss (see class docstring)."""
        return loss_fall(self.losses, window=self.window)

    def _remember(self, server_round: int, replies: Replies) -> None:
        self.losses.append(replies.loss)
        if server_round < self.ignore_before:
            return
        part = self.setting.layout.direction
        before = self.communities.models[0]
        for client_id, model in zip(replies.client_ids, replies.models, strict=True):
            self.store.put(int(client_id), before[part] - model[part], server_round)

    def _is_due(self, server_round: int) -> bool:
        if self.cluster_round != "auto":
            return server_round >= self.cluster_round and len(self.store) > 0
        return self.stability is not None and self.stability < self.tolerance

    def _cluster(self, server_round: int) -> None:
        """Split the clients into communities; each starts from the global model."""
        labels = find(self.store, self.setting.finding)
        ids = self.store.client_ids()
        models = np.repeat(self.communities.models[:1], labels.max() + 1, axis=0)
        members = dict(zip(ids.tolist(), labels.tolist(), strict=True))
        self.communities = Communities(models, members)
        self.clustered_at = server_round
        sizes = np.bincount(labels).tolist()
        self.events.append(Event("clustered", f"{len(sizes)} communities of sizes {sizes}"))

    def checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Add the update store, the loss curve and the clustering round."""
        arrays, state = super().checkpoint()
        store = {f"store.{name}": array for name, array in self.store.arrays().items()}
        return arrays | store, state | {"losses": self.losses, "clustered_at": self.clustered_at}

    def restore(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Take up what `checkpoint` returned."""
        super().restore(arrays, state)
        prefix = "store."
        store = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
        self.store = UpdateStore.from_arrays(store, self.setting.holding())
        self.losses = list(state["losses"])
        self.clustered_at = state["clustered_at"]
