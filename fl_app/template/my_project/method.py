"""Communities by k-means on the directions of the clients' latest updates."""

from dataclasses import dataclass

from pydantic import PositiveInt
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize

from fl_app.aggregation import weighted_mean
from fl_app.graph.client_graph import ClientGraph
from fl_app.graph.measures import ShiftedCosine
from fl_app.strategies.graph_use import graph_of, view_of
from fl_app.strategies.outcome import View
from fl_app.strategies.replies import Replies
from fl_app.strategies.server_context import ServerContext
from fl_app.strategies.state import Communities
from fl_app.strategies.two_phase import TwoPhase
from fl_app.strategies.two_phase_state import TwoPhaseState
from fl_app.types import Labels, Matrix, Participation


@dataclass(frozen=True)
class KMeansDirections:
    """K-means on the vectors of a graph, scaled to equal length."""

    count: int
    seed: int

    def __call__(self, graph: ClientGraph, among: Labels) -> Labels:
        """Return the community of each of the rows `among`."""
        how = KMeans(min(self.count, len(among)), n_init=10, random_state=self.seed)
        labels: Labels = how.fit(normalize(graph.vectors.read(among))).labels_.astype(int)
        return labels

    def similarity(self, graph: ClientGraph, among: Labels) -> Matrix:
        """Return what the records show: `1 + cos` of the updates."""
        return graph.values(among)


@dataclass(kw_only=True)
class KMeansOfUpdatesState(TwoPhaseState):
    """The state of the method in a checkpoint."""

    graph: ClientGraph
    """The latest update of each client, and the similarity among them."""


class KMeansOfUpdates(TwoPhase):
    """K-means into `count` communities after round `cluster_round`."""

    name = "kmeans_of_updates"
    state: KMeansOfUpdatesState

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: Participation,
        cluster_round: PositiveInt,
        count: PositiveInt,
    ) -> None:
        super().__init__(context, participation=participation, rule=weighted_mean)
        self.cluster_round = cluster_round
        self.state = KMeansOfUpdatesState(
            communities=Communities.of(context.initial),
            graph=graph_of(
                context,
                ShiftedCosine(),
                KMeansDirections(count, context.seed),
                length=context.layout.direction.stop,
                whole=True,
            ),
        )

    def remember(self, server_round: int, replies: Replies) -> None:
        """Keep each client's latest update."""
        part, before = self.context.layout.direction, self.state.communities.models[0]
        for client, model in zip(replies.client_ids.tolist(), replies.models, strict=True):
            self.state.graph.put(client, before[part] - model[part], server_round)

    def is_due(self, server_round: int) -> bool:
        """After `cluster_round`."""
        return server_round >= self.cluster_round

    def find(self) -> tuple[Labels, Labels]:
        """Cluster the clients that are known."""
        return self.state.graph.vectors.client_ids, self.state.graph.labels()

    def view(self, server_round: int) -> View | None:
        """Show communities and similarities once there are some."""
        if self.state.clustered_at is None:
            return None
        shown = server_round == self.state.clustered_at
        return view_of(self.context, self.state.graph, *self.known(), clustered=shown)
