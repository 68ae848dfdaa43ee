"""PACFL: communities by the angles between the subspaces of the clients' data, sent once.

Vahidian et al., AAAI 2023, "Efficient distribution similarity identification in clustered
federated learning via principal angles between client data subspaces".
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from flwr.common import Parameters
from flwr.server.client_manager import ClientManager
from pydantic import Field

from fl_app.aggregation import Weighting
from fl_app.client.subspaces import CLASS_SUBSPACES, SUBSPACE
from fl_app.graph.client_graph import ClientGraph
from fl_app.graph.communities import Linkage
from fl_app.graph.detection import ByMerging
from fl_app.graph.principal_angles import Angle, PrincipalAngles
from fl_app.learner_reports import Report
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.cohort import Aggregated, FitFailures, FitInstructions, FitReplies, Offer
from fl_app.strategies.encoding import encode
from fl_app.strategies.fallback import settle
from fl_app.strategies.graph_settings import GraphUse
from fl_app.strategies.graph_use import graph_of, view_of
from fl_app.strategies.outcome import Event, View, clustering
from fl_app.strategies.replies import Replies
from fl_app.strategies.roster import roster
from fl_app.strategies.server_context import RULES, WEIGHTED, RuleName, ServerContext
from fl_app.strategies.state import Communities
from fl_app.strategies.trial import SettledState, begin
from fl_app.strategies.turns import in_turns, learn_in_turns
from fl_app.types import Described, Fallback, Participation, PositiveInt
from fl_app.used_with import UsedWith

Degrees = Annotated[float, Field(gt=0, le=90)]
REACH: Mapping[Linkage, Callable[[np.ndarray], float]] = {
    "average": np.mean, "complete": np.max, "single": np.min,
}  # fmt: skip
"""The distance of a client to a community from those to its members, by the linkage."""


@dataclass(kw_only=True)
class PacflState(SettledState):
    """The state of PACFL in a checkpoint."""

    graph: ClientGraph
    """The bases of the clients' subspaces, and the angles between them."""
    clustered_at: int | None = None
    """The round in which the communities were found; None: not yet."""


class Pacfl(CommunityStrategy):
    """Agglomerative clustering of data subspaces in the first round, then FedAvg per community.

    In the first round all clients train the initial model, and send `vectors` principal vectors of
    their samples with it, of all samples or with `signature=classes` of each class. Communities
    are merged while the `angle` between their subspaces is below `threshold` degrees. A client
    that comes later sends its vectors with its first model. It joins the nearest community, or
    founds one if none is near enough; the communities of the others stay. In the first training it
    chooses the model by its loss, and its reply counts only if it joins that community. With
    `fallback` the communities are judged; if they are undone, or left by clients, newcomers found
    no other.
    """

    state: PacflState
    graph_use = GraphUse(vectors="whose angles need whole vectors")
    used_with: ClassVar[UsedWith] = WEIGHTED
    asks = {SUBSPACE: Report(length=1, low=-1, high=1, per=("inputs",))}  # noqa: RUF012

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: Participation,
        vectors: PositiveInt,
        signature: Described,
        angle: Angle,
        threshold: Degrees,
        linkage: Linkage,
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
        if signature == "data":
            self.told, wanted = SUBSPACE, Report(length=vectors, low=-1, high=1, per=("inputs",))
        else:
            self.told = CLASS_SUBSPACES
            wanted = Report(length=vectors, low=-1, high=1, per=("classes", "inputs"))
        self.asks = {self.told: wanted}
        self.threshold, self.linkage = threshold, linkage
        parts = (context.classes or 1) if signature == "classes" else 1
        self.measure = PrincipalAngles(parts, vectors, angle)
        length = int(wanted.sized(context.classes, context.inputs).length or 0)
        how = ByMerging(threshold=threshold, linkage=linkage)
        self.state = PacflState(
            communities=Communities.of(context.initial),
            graph=graph_of(context, self.measure, how, length=length, whole=True),
        )

    def asks_of(self, client_id: int) -> Collection[str]:
        """Return nothing for a member, which has sent its vectors."""
        return () if client_id in self.state.communities.members else self.asks

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> FitInstructions:
        """Select all clients that belong to no community, and sample from the others."""
        present, members = roster(client_manager).proxies(), self.state.communities.members
        fresh = [client for client in present if client not in members]
        drawn = self.sampler.draw(server_round, [c for c in present if c in members], "all")
        return self.instruct(server_round, sorted(fresh + drawn), client_manager)

    def offer(self, server_round: int, client_ids: Sequence[int]) -> Offer:
        """Return each client's rows; while a split is on trial, also the common model."""
        if self.state.common is None:
            return super().offer(server_round, client_ids)
        share = self.sampler.participation
        return in_turns(self.state, server_round, *self.attribute(client_ids), share)

    def aggregate_fit(
        self, server_round: int, results: FitReplies, failures: FitFailures
    ) -> Aggregated:
        """Find the communities of new clients, then average the replies of each community."""
        replies = self.receive(server_round, results, failures)
        clustered = self.state.clustered_at is not None
        before = len(self.state.communities.models) if clustered else 0
        fresh = self._remember(server_round, replies)
        if clustered:
            for client in fresh:
                self._join(client)
        else:
            self._cluster(server_round)
        mine = self._learn(replies)
        rows = np.array([self.state.communities.members[c] for c in mine.client_ids.tolist()], int)
        counted = (rows == mine.starts) | (rows >= before)
        self.aggregator.update(
            self.state.communities.models, replace(mine, starts=rows).where(counted)
        )
        if clustered:
            self.events += settle(self.state, server_round, self.context.rounds, apart=True)
        elif self.judges and len(self.state.communities.models) > 1:
            begin(self.state, server_round)
        return encode(self.state.communities.models[0]), {"train_loss": replies.loss}

    def _learn(self, replies: Replies) -> Replies:
        context, last = self.context, len(self.cohort.sent) - 1
        return learn_in_turns(self.state, replies, last, self.aggregator.rule, context.clip_update)

    def _remember(self, server_round: int, replies: Replies) -> list[int]:
        """Store the vectors of the clients that belong to no community, and return these."""
        fresh = []
        for place, client in enumerate(replies.client_ids.tolist()):
            if client not in self.state.communities.members:
                vector = self.measure.flat(replies.reports[self.told][place])
                self.state.graph.put(client, vector, server_round)
                fresh.append(client)
        return fresh

    def _cluster(self, server_round: int) -> None:
        """Split the clients into communities, whose models start from the initial model."""
        ids, labels = self.state.graph.vectors.client_ids, self.state.graph.labels()
        models = np.repeat(self.state.communities.models[:1], labels.max() + 1, axis=0)
        members = dict(zip(ids.tolist(), labels.tolist(), strict=True))
        self.state.communities = Communities(models, members)
        self.state.clustered_at = server_round
        self.events.append(clustering(labels))

    def _join(self, client: int) -> None:
        """Add a client to the nearest community, or to a new one."""
        graph, now = self.state.graph, self.state.communities
        rows = np.array(list(now.members.values()))
        others = graph.vectors.rows_of(list(now.members))
        angles = graph.matrix()[graph.vectors.rows_of([client])[0], others]
        reach = REACH[self.linkage]
        distances = [reach(angles[rows == row]) for row in range(len(now.models))]
        nearest = int(np.argmin(distances))
        if distances[nearest] >= self.threshold and not self.state.settled:
            nearest = len(now.models)
            now.models = np.concatenate([now.models, now.models[:1]])
            detail = f"community {nearest} by client {client}, as no other is near"
            self.events.append(Event("founded", detail, [client]))
        now.members[client] = nearest

    def view(self, server_round: int) -> View | None:
        """Return the communities, None before the first round."""
        if self.state.clustered_at is None:
            return None
        members, graph = self.state.communities.members, self.state.graph
        ids = graph.vectors.client_ids
        labels = np.array([members[client] for client in ids.tolist()])
        shown = server_round == self.state.clustered_at
        return view_of(self.context, graph, ids, labels, clustered=shown)
