"""Hierarchical clustering of local updates, after some rounds of one model.

Briggs et al., IJCNN 2020, "Federated learning with hierarchical clustering of local updates
to improve training on non-IID data", algorithm 1.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from flwr.common import Parameters
from flwr.server.client_manager import ClientManager
from pydantic import PositiveFloat

from fl_app.aggregation import Weighting
from fl_app.graph.client_graph import ClientGraph
from fl_app.graph.communities import Linkage
from fl_app.graph.detection import ByMerging, BySignificance
from fl_app.graph.partitions import by_merging
from fl_app.graph.similarity import UpdateDistance
from fl_app.strategies.cohort import FitInstructions
from fl_app.strategies.graph_settings import GraphUse
from fl_app.strategies.graph_use import (
    DottedPath,
    graph_of_models,
    graph_of_sums,
    needed,
    own_graph,
    put_updates,
    view_of,
)
from fl_app.strategies.outcome import View
from fl_app.strategies.replies import Replies
from fl_app.strategies.roster import roster
from fl_app.strategies.server_context import RULES, WEIGHTED, RuleName, ServerContext
from fl_app.strategies.state import Communities
from fl_app.strategies.two_phase import TwoPhase
from fl_app.strategies.two_phase_state import TwoPhaseState
from fl_app.types import Fallback, Labels, Participation, PositiveInt
from fl_app.used_with import UsedWith


@dataclass(kw_only=True)
class HierarchicalState(TwoPhaseState):
    """The state of hierarchical clustering in a checkpoint."""

    graph: ClientGraph
    """The update of each client in its last clustering round, and their distances; with contrast
    alone empty."""


class Hierarchical(TwoPhase):
    """Agglomerative clustering of all clients' updates in round `cluster_round`.

    In that round all clients train, independent of the participation. Communities are merged
    while two of them are nearer than `threshold` by the `distance` of updates and the `linkage`.
    Their models then start from the new global model (in the paper, from the model of that round).
    With `graph.contrast`, which the paper does not have, the updates are cumulated up to that round
    (`add_updates`). The tree of their cosines is cut by modularity (`by_merging`), since noise
    leaves no distance to which a threshold could refer, and splits that noise or common drift alone
    would give are not made (`significant`).
    """

    state: HierarchicalState
    graph_use = GraphUse(
        contrast=True, gains=True, contrasted=("resolution",), option="distance",
        replaced=("distance", "threshold"), vectors="whose distance needs whole updates",
    )  # fmt: skip
    used_with: ClassVar[UsedWith] = WEIGHTED

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: Participation,
        cluster_round: PositiveInt,
        threshold: PositiveFloat,
        distance: UpdateDistance | DottedPath,
        linkage: Linkage,
        rule: RuleName,
        weighting: Weighting,
        fallback: Fallback,
        joining: bool,
    ) -> None:
        super().__init__(
            context,
            participation=participation,
            rule=RULES[rule],
            weighting=weighting,
            fallback=fallback,
        )
        self.cluster_round, self.joining = cluster_round, joining
        self.part = needed(context.layout, distance)
        how = ByMerging(threshold=threshold, linkage=linkage)
        tree = partial(by_merging, linkage=linkage, resolution=context.detection.resolution)
        significant = BySignificance(lambda _: tree, number=lambda: self.state.searches + 1)
        self.state = HierarchicalState(
            communities=Communities.of(context.initial),
            graph=own_graph(context, partial(graph_of_models, context, distance, how)),
            sums=graph_of_sums(context, significant),
        )

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> FitInstructions:
        """Sample as usual; select all clients in the clustering round."""
        if self.clusters_anew(server_round):
            present = list(roster(client_manager).proxies())
            return self.instruct(server_round, present, client_manager)
        return super().configure_fit(server_round, parameters, client_manager)

    def remember(self, server_round: int, replies: Replies) -> None:
        """Store the updates of the clustering round; with contrast, add those of all before."""
        self.cumulate(server_round, replies)
        if self.asks_own and self.clusters_anew(server_round):
            start = self.state.communities.models[0]
            put_updates(self.state.graph, server_round, replies, start, self.part)

    def is_due(self, server_round: int) -> bool:
        """Whether `cluster_round` is reached."""
        return server_round >= self.cluster_round

    def find(self) -> tuple[Labels, Labels]:
        """Merge clients into communities: those of this round, or with contrast all."""
        if self.context.contrast:
            return self.state.sums.vectors.client_ids, self.state.sums.labels()
        return self.find_own()

    def find_own(self) -> tuple[Labels, Labels]:
        """Merge the clients of this round into communities."""
        # after an undone clustering the graph also has updates of that round
        graph, vectors = self.state.graph, self.state.graph.vectors
        among = vectors.fresh(int(vectors.rounds().max()), max_age=1)
        return vectors.ids_of(among), graph.labels(among)

    def view(self, server_round: int) -> View | None:
        """Return the communities, None before the clustering."""
        at = self.state.clustered_at
        if at is None:
            return None
        by_sums = self.context.contrast and not self.state.by_own
        graph = self.state.sums if by_sums else self.state.graph
        return view_of(self.context, graph, *self.known(), clustered=server_round == at)
