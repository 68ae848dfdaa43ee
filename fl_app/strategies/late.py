"""Late clustering: FedAvg, then the communities of the clients' models, once.

The reference method in Bettinelli et al., IEEE Big Data 2024, for discovery during training.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from fl_app.aggregation import Weighting
from fl_app.graph.client_graph import ClientGraph
from fl_app.strategies.catching_up import catches_up, move, steps_of
from fl_app.strategies.graph_settings import GraphUse
from fl_app.strategies.graph_use import (
    Exponent,
    Scale,
    Similarity,
    by_significance,
    by_similarity,
    check_distance,
    distance_named,
    graph_of_models,
    graph_of_sums,
    needed,
    own_graph,
    put_models,
    strayed,
)
from fl_app.strategies.looking_ahead import LookingAhead, LookingAheadState
from fl_app.strategies.replies import Replies
from fl_app.strategies.server_context import RULES, WEIGHTED, RuleName, ServerContext
from fl_app.strategies.state import Communities
from fl_app.types import CatchUp, Fallback, Labels, Participation, PositiveInt, Vector
from fl_app.used_with import UsedWith


@dataclass(kw_only=True)
class LateState(LookingAheadState):
    """The state of late clustering in a checkpoint."""

    round: int = 0
    """The last round whose replies are in a graph."""


class Late(LookingAhead):
    """Like FLIC, but with the similarity of community discovery, of last models.

    With `graph.contrast`, which the paper does not have, the graph is of cumulated updates, as in
    FLIC: noise does not average out of last models, and each of them carries the noise of the
    model from which it started. With `catch_up`, which the paper does not have, last models of
    absent clients move along with the one model: `fl_app.strategies.catching_up`.
    """

    state: LateState
    graph_use = GraphUse(
        modularity=True, ahead=True, contrast=True, gains=True, option="similarity",
        replaced=("similarity", "exponent", "scale", "catch_up"),
        vectors="whose similarity needs whole models",
    )  # fmt: skip
    used_with: ClassVar[UsedWith] = WEIGHTED

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: Participation,
        cluster_round: PositiveInt,
        similarity: Similarity,
        exponent: Exponent,
        scale: Scale,
        max_age: PositiveInt | None,
        rule: RuleName,
        weighting: Weighting,
        catch_up: CatchUp,
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
        self.between, self.max_age = distance_named(similarity), max_age
        self.part = needed(context.layout, similarity)
        how = by_similarity(context, exponent=exponent, scale=scale)
        self.state = LateState(
            communities=Communities.of(context.initial),
            graph=own_graph(context, partial(graph_of_models, context, similarity, how)),
            sums=graph_of_sums(context, by_significance(context, lambda: self.test_number)),
        )
        self.catches_up = catches_up(catch_up, self.state.graph.vectors, judges=self.judges)
        self.cohort.check = self.check

    def check(self, model: Vector, samples: int) -> None:
        """Raise ValueError for a model without a finite distance to itself."""
        if not self.context.contrast or self.context.or_own:
            check_distance(self.between, model, self.context.layout)

    def remember(self, server_round: int, replies: Replies) -> None:
        """Store each client's last model, or with contrast add its update to the others."""
        self.state.round = server_round
        self.cumulate(server_round, replies)
        if self.asks_own:
            common, layout = self.state.communities.models[0], self.context.layout
            odd = {*self.cohort.odd_updates, *strayed(self.between, replies, common, layout)}
            if self.catches_up:
                self._follow(replies)
            put_models(self.state.graph, server_round, replies, odd, self.part)

    def _follow(self, replies: Replies) -> None:
        """Move last models of absent clients along with the one model that all train."""
        vectors, heard = self.state.graph.vectors, replies.client_ids.tolist()
        absent = np.setdiff1d(vectors.client_ids, replies.client_ids).tolist()
        one = dict.fromkeys([*heard, *absent], 0)
        steps = steps_of(replies, self.cohort.sent, one, self.aggregator.rule, replies.weights)
        move(vectors, absent, one, {row: step[self.part] for row, step in steps.items()})

    def is_due(self, server_round: int) -> bool:
        """Whether `cluster_round` is reached."""
        return server_round >= self.cluster_round and self.knows

    def among(self, graph: ClientGraph) -> Labels:
        """Return the rows of the clients whose last vector is not too old."""
        return graph.vectors.fresh(self.state.round, self.max_age)
