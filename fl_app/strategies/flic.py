"""FLIC: FedAvg while the server builds the similarity graph, then one model per community.

Espinoza Castellon et al., IJCNN 2022, "Federated learning with incremental clustering for
heterogeneous data", algorithm 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from fl_app.aggregation import Weighting
from fl_app.evaluation.stability import loss_fall
from fl_app.graph.client_graph import ClientGraph
from fl_app.strategies.graph_settings import GraphUse
from fl_app.strategies.graph_use import (
    by_significance,
    graph_of_latest,
    graph_of_sums,
    own_graph,
    put_updates,
)
from fl_app.strategies.looking_ahead import LookingAhead, LookingAheadState
from fl_app.strategies.outcome import Outcome
from fl_app.strategies.replies import Replies
from fl_app.strategies.server_context import RULES, WEIGHTED, RuleName, ServerContext
from fl_app.strategies.state import Communities
from fl_app.types import (
    ClusterRound,
    Fallback,
    Labels,
    NonNegativeInt,
    Participation,
    PositiveInt,
)
from fl_app.used_with import UsedWith, When

Tolerance = Annotated[float, Field(gt=0, lt=1)]


@dataclass(kw_only=True)
class FlicState(LookingAheadState):
    """The state of FLIC in a checkpoint."""

    losses: list[float] = field(default_factory=list)
    """The lower median of the training losses of each round before the clustering, if told."""


class Flic(LookingAhead):
    """Louvain on `1 + cos` of the clients' latest updates, after round `cluster_round`.

    `auto` means the first round in which the mean training loss over `stability_window` rounds is
    less than `stability_tolerance` times the first loss below the mean over the window before.
    The paper says "once stable" without a criterion; docs/results/auto_cluster_round.md has the
    curves for the choice of these values. Updates of rounds before `ignore_before` are not added
    to the graph. The paper assigns clients that were never sampled only after training; here they
    are assigned at every evaluation. With `graph.contrast`, which the paper does not have, the
    graph is of cumulated updates (`add_updates`), and splits that noise or common drift alone would
    give are not made (`significant`).
    """

    state: FlicState
    graph_use = GraphUse(
        modularity=True, ahead=True, contrast=True, gains=True, gains_in_noise=True
    )  # fmt: skip
    used_with: ClassVar[UsedWith] = {
        **WEIGHTED,
        "stability_window": When("cluster_round", ("auto",)),
        "stability_tolerance": When("cluster_round", ("auto",)),
    }

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: Participation,
        cluster_round: ClusterRound,
        ignore_before: NonNegativeInt,
        rule: RuleName,
        weighting: Weighting,
        stability_window: PositiveInt,
        stability_tolerance: Tolerance,
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
        self.ignore_before = ignore_before
        self.window = stability_window
        self.tolerance = stability_tolerance
        self.state = FlicState(
            communities=Communities.of(context.initial),
            graph=own_graph(context, lambda: graph_of_latest(context)),
            sums=graph_of_sums(context, by_significance(context, lambda: self.test_number)),
        )

    @classmethod
    def asks_losses(cls, options: Mapping[str, Any]) -> bool:
        """Whether the round of the clustering is found by the loss."""
        return options.get("cluster_round") == "auto"

    @property
    def wants_loss(self) -> bool:
        """Whether the round of the clustering is yet to be found by the loss."""
        return self.cluster_round == "auto" and self.state.clustered_at is None

    def remember(self, server_round: int, replies: Replies) -> None:
        """Store each client's update: the model it received minus the one it returned."""
        if not self.context.private or self.wants_loss:
            self.state.losses.append(replies.usual_loss)
        if server_round < self.ignore_before:
            return
        self.cumulate(server_round, replies)
        if self.asks_own:
            start, part = self.state.communities.models[0], self.context.layout.direction
            put_updates(self.state.graph, server_round, replies, start, part)

    def is_due(self, server_round: int) -> bool:
        """Whether `cluster_round` is reached, or with `auto` the loss is stable.

        Without any updates, nothing can be clustered yet.
        """
        if not self.knows:
            return False
        if self.cluster_round != "auto":
            return server_round >= self.cluster_round
        fall = self._loss_fall()
        return fall is not None and fall < self.tolerance

    def among(self, graph: ClientGraph) -> Labels:
        """Return the rows of all clients."""
        return graph.vectors.order

    def outcome(self, server_round: int) -> Outcome:
        """Add the fall of the training loss."""
        return replace(super().outcome(server_round), stability=self._loss_fall())

    def _loss_fall(self) -> float | None:
        return loss_fall(self.state.losses, window=self.window)
