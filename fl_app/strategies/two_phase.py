"""Methods that train one model first, cluster the clients once, then train one model each."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.common import FitIns, FitRes, Parameters, Scalar
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy

from fl_app.strategies.base import CommunityStrategy, FitReplies, roster
from fl_app.strategies.replies import Replies, encode
from fl_app.strategies.setting import Communities, Event
from fl_app.types import Labels


class TwoPhase(CommunityStrategy):
    """`federated` up to the clustering round, then `clustered`: FedAvg inside each community.

    A method says what it remembers of the replies, when clustering is due, and which
    communities it finds. Clients that are no nodes then, since they were never sampled, try
    every community's model on their own training data whenever accuracy is measured, and
    take the best.
    """

    clustered_at: int | None = None

    @abstractmethod
    def remember(self, server_round: int, replies: Replies) -> None:
        """Keep what clustering will need, before the replies are aggregated."""

    @abstractmethod
    def is_due(self, server_round: int) -> bool:
        """Whether the clients are clustered after this round."""

    @abstractmethod
    def find(self) -> tuple[Labels, Labels]:
        """Return the sorted ids of the clients that are known (n,), and their communities (n,)."""

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
        """Remember, aggregate per community, cluster when it is time."""
        replies = self.receive(server_round, results)
        if self.clustered_at is None:
            self.remember(server_round, replies)
        self.aggregate(replies)
        if self.clustered_at is None and self.is_due(server_round):
            self._cluster(server_round)
        return encode(self.communities.models[0]), {"train_loss": replies.loss}

    def evaluates(self, server_round: int) -> bool:
        """Measure at the clustering round too: accuracy before is the global model's there."""
        return super().evaluates(server_round) or server_round == self.clustered_at

    def _cluster(self, server_round: int) -> None:
        """Split the clients into communities; each starts from the global model."""
        ids, labels = self.find()
        models = np.repeat(self.communities.models[:1], labels.max() + 1, axis=0)
        members = dict(zip(ids.tolist(), labels.tolist(), strict=True))
        self.communities = Communities(models, members)
        self.clustered_at = server_round
        sizes = np.bincount(labels).tolist()
        self.events.append(Event("clustered", f"{len(sizes)} communities of sizes {sizes}"))

    def known(self) -> tuple[Labels, Labels]:
        """Return the sorted ids of the members (n,) and their communities (n,)."""
        members = self.communities.members
        ids = np.array(sorted(members), int)
        return ids, np.array([members[client] for client in ids.tolist()], int)

    def checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Add the clustering round."""
        arrays, state = super().checkpoint()
        return arrays, state | {"clustered_at": self.clustered_at}

    def restore(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Take up what `checkpoint` returned."""
        super().restore(arrays, state)
        self.clustered_at = state["clustered_at"]
