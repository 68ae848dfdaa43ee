"""Late clustering: FedAvg, then the communities of the clients' models, once.

The reference of Bettinelli et al., IEEE Big Data 2024, for discovering during training.
"""

from dataclasses import dataclass, field
from typing import Literal

from fl_app.aggregation import Weighting
from fl_app.strategies.model_graph import (
    Exponent,
    LatestModels,
    ModelCommunities,
    ModelGraph,
    Scale,
    Similarity,
)
from fl_app.strategies.outcome import View
from fl_app.strategies.replies import Replies
from fl_app.strategies.server_context import RULES, ServerContext
from fl_app.strategies.state import Communities
from fl_app.strategies.two_phase import TwoPhase, TwoPhaseState
from fl_app.types import Labels, Participation, PositiveInt


@dataclass(kw_only=True)
class LateState(TwoPhaseState):
    """What late clustering must keep."""

    latest: LatestModels = field(default_factory=LatestModels)
    """The last model of each client, up to the clustering."""
    round: int = 0
    """The last round whose models are in `latest`."""


class Late(TwoPhase):
    """As FLIC, with the similarity of community discovery: of last models, not of updates."""

    state: LateState

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: Participation,
        cluster_round: PositiveInt,
        similarity: Similarity = "trusted",
        exponent: Exponent = 3.0,
        scale: Scale = "ordinary",
        max_age: PositiveInt | None = None,
        rule: Literal["mean", "median"] = "mean",
        weighting: Weighting = "capped",
    ) -> None:
        super().__init__(
            context, participation=participation, rule=RULES[rule], weighting=weighting
        )
        self.cluster_round = cluster_round
        self.graph = ModelGraph(
            context.layout,
            context.detection,
            similarity=similarity,
            exponent=exponent,
            scale=scale,
            max_age=max_age,
        )
        self.cohort.check = self.graph.check
        self.state = LateState(communities=Communities.of(context.initial))
        self._found: tuple[int, ModelCommunities] | None = None

    def remember(self, server_round: int, replies: Replies) -> None:
        """Keep each client's last model."""
        self.state.round = server_round
        self.state.latest.put(
            server_round, replies, self.cohort.strides(replies.models, replies.starts)
        )

    def is_due(self, server_round: int) -> bool:
        """After `cluster_round`."""
        return server_round >= self.cluster_round

    def find(self) -> tuple[Labels, Labels]:
        """Find the communities among the last models."""
        found = self._look()
        return found.client_ids, found.labels

    def view(self, server_round: int) -> View | None:
        """Return the communities, or, before clustering, those that would be found now."""
        every = self.context.look_ahead_every
        if self.state.clustered_at is None and (every == 0 or server_round % every):
            return None
        found = self._look()
        labels = found.labels if self.state.clustered_at is None else self.known()[1]
        return View(found.client_ids, labels, found.similarity, found.distance)

    def _look(self) -> ModelCommunities:
        now = self.state.round
        if self._found is None or self._found[0] != now:
            self._found = now, self.graph.look(self.state.latest, now)
        return self._found[1]
