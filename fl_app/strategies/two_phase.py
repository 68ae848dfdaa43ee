"""Methods that train one model first, cluster the clients once, then train one model each."""

from abc import abstractmethod
from dataclasses import dataclass, replace

import numpy as np
from flwr.common import FitIns, Parameters, Scalar
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy

from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.cohort import FitFailures, FitReplies
from fl_app.strategies.encoding import encode
from fl_app.strategies.outcome import Event, Outcome
from fl_app.strategies.replies import Replies
from fl_app.strategies.roster import roster
from fl_app.strategies.state import Communities, MethodState
from fl_app.types import Labels


@dataclass(kw_only=True)
class TwoPhaseState(MethodState):
    """What such a method must keep."""

    clustered_at: int | None = None
    """The round after which the clients were clustered; None: not yet."""


class TwoPhase(CommunityStrategy):
    """`federated` up to the clustering round, then `clustered`: FedAvg inside each community.

    A method says what it remembers of the replies, when clustering is due, and which
    communities it finds. Clients that are no nodes then, since they were never sampled, try
    every community's model on their own training data whenever accuracy is measured, and
    take the best.
    """

    state: TwoPhaseState

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
        if self.state.clustered_at is None:
            cohort = self.sampler.draw(server_round, present, "all")
        else:
            members = self.state.communities.members
            cohort = []
            for row in range(len(self.state.communities.models)):
                inside = [client for client in present if members.get(client) == row]
                cohort += self.sampler.draw(server_round, inside, f"community {row}")
        return self.instruct(server_round, sorted(cohort), client_manager)

    def aggregate_fit(
        self,
        server_round: int,
        results: FitReplies,
        failures: FitFailures,
    ) -> tuple[Parameters, dict[str, Scalar]]:
        """Remember, aggregate per community, cluster when it is time."""
        replies = self.receive(server_round, results, failures)
        if self.state.clustered_at is None:
            self.remember(server_round, replies)
        self.aggregator.update(self.state.communities.models, replies)
        if self.state.clustered_at is None and self.is_due(server_round):
            self._cluster(server_round)
        return encode(self.state.communities.models[0]), {"train_loss": replies.loss}

    def outcome(self, server_round: int) -> Outcome:
        """Measure at the clustering round too: accuracy before is the global model's there."""
        measures = server_round == self.state.clustered_at
        return replace(super().outcome(server_round), measures=measures)

    def _cluster(self, server_round: int) -> None:
        """Split the clients into communities; each starts from the global model."""
        ids, labels = self.find()
        models = np.repeat(self.state.communities.models[:1], labels.max() + 1, axis=0)
        members = dict(zip(ids.tolist(), labels.tolist(), strict=True))
        self.state.communities = Communities(models, members)
        self.state.clustered_at = server_round
        sizes = np.bincount(labels).tolist()
        self.events.append(Event("clustered", f"{len(sizes)} communities of sizes {sizes}"))

    def known(self) -> tuple[Labels, Labels]:
        """Return the sorted ids of the members (n,) and their communities (n,)."""
        members = self.state.communities.members
        ids = np.array(sorted(members), int)
        return ids, np.array([members[client] for client in ids.tolist()], int)
