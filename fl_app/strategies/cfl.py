"""CFL: recursive bipartition by the cosine similarity of updates, also against Byzantine clients.

Sattler et al., ICASSP 2020, "On the Byzantine robustness of clustered federated learning",
algorithm 1; the conditions on norms are those of Sattler et al., IEEE TNNLS 2021, equations 17
and 18.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, ClassVar, Literal

import numpy as np
from flwr.common import Parameters
from flwr.server.client_manager import ClientManager
from pydantic import Field, NonNegativeFloat

from fl_app.aggregation import Weighting, weighted_mean
from fl_app.graph.client_graph import ClientGraph
from fl_app.graph.detection import ByCut, BySignificantCut
from fl_app.graph.partitions import by_modularity
from fl_app.records.history import GIVEN_UP
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.cfl_conditions import SplitConditions, parts_of
from fl_app.strategies.cohort import Aggregated, FitFailures, FitInstructions, FitReplies, Offer
from fl_app.strategies.encoding import encode
from fl_app.strategies.fallback import decide
from fl_app.strategies.graph_settings import GraphUse
from fl_app.strategies.graph_use import (
    add_updates,
    graph_of_latest,
    graph_of_sums,
    own_graph,
    view_of,
)
from fl_app.strategies.outcome import CLUSTERED, FEDERATED, Event, Outcome, View
from fl_app.strategies.replies import Replies
from fl_app.strategies.roster import roster
from fl_app.strategies.server_context import ServerContext
from fl_app.strategies.state import Communities
from fl_app.strategies.trial import JudgedState, begin, learn, of_communities, offered
from fl_app.types import Fallback, Labels, Participation, PositiveInt
from fl_app.used_with import UsedWith, When

Decay = Annotated[float, Field(gt=0, le=1)]


@dataclass(kw_only=True)
class CflState(JudgedState):
    """The state of CFL in a checkpoint."""

    graph: ClientGraph
    """The latest update of each client, and their similarities; with contrast alone empty."""
    sums: ClientGraph
    """With contrast, the cumulated updates of each client, and their cosines; else empty."""
    due: set[int] = field(default_factory=set)
    """The clusters whose clients must all train in the next round, since a split is due."""
    settled: bool = False
    """Whether a split was undone, in whole or in part; then there are no further splits."""
    by_own: bool = False
    """With contrast=both, whether a split on trial is one of the latest updates."""
    own_settled: bool = False
    """Whether one of these was undone; then further splits are by contrast only."""


class Cfl(CommunityStrategy):
    """Splits a cluster if its most similar clients across the two parts disagree.

    After a round, the clients of each cluster with an update from the last `max_age` rounds are
    split in two so that alpha_cross, the largest similarity across the parts, is minimal. The
    split is made if alpha_cross < `alpha_threshold * alpha_decay^(t - 1)` in round t. Clients
    without such an update stay in the larger part. `mode=clusters` continues to train both parts,
    each from the mean of its own replies; `mode=byzantine` trains only the larger part and removes
    the others from training. A client without a cluster chooses the model with the least loss.
    A cluster is split only after a round in which all of its clients were asked to train: if the
    sampled clients indicate a split, all are asked in the next round. With `fallback`, the splits
    are judged some rounds after the last one: see `fl_app.strategies.fallback`. If one is undone,
    there are no further ones.
    `mean_below` and `norm_above`, if given, allow a split only if the norm of the cluster's mean
    update is below the first and its largest norm is above the second. The mean is of equal
    weights; equation 17 weighs it by samples, of which a client can claim any number. `gap_above`
    allows it only if the mean similarity within the parts exceeds the mean across them by more than
    this value.
    With `graph.contrast`, which the paper does not have, the updates are cumulated over the rounds
    without the drift of each cluster (`add_updates`), the two parts are `halves` of the significant
    communities, and there is no split without these. Since a split is final, the threshold of
    significance grows with the rounds: see `reach`. Sums of different rounds can be compared, so
    that `max_age` has no effect. The similarities of the other conditions are then those of the
    cumulated updates; conditions on norms are refused.
    """

    state: CflState
    used_with: ClassVar[UsedWith] = {
        "fallback": When("mode", ("clusters",), given=(True,)),  # else there is only one model
    }
    compares = False
    graph_use = GraphUse(
        contrast=True, contrasted=("backend", "resolution"), replaced=("max_age",)
    )  # fmt: skip

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: Participation,
        alpha_threshold: Annotated[float, Field(gt=-1, lt=1)],
        alpha_decay: Decay,
        mode: Literal["clusters", "byzantine"],
        max_age: PositiveInt,
        mean_below: NonNegativeFloat | None,
        norm_above: NonNegativeFloat | None,
        gap_above: NonNegativeFloat | None,
        weighting: Weighting,
        fallback: Fallback,
    ) -> None:
        super().__init__(
            context,
            participation=participation,
            rule=weighted_mean,
            weighting=weighting,
            fallback=fallback,
        )
        self.conditions = SplitConditions(
            alpha_threshold=alpha_threshold,
            alpha_decay=alpha_decay,
            mean_below=mean_below,
            norm_above=norm_above,
            gap_above=gap_above,
        )
        self.keeps_all = mode == "clusters"
        self.max_age = max_age
        only_sums = context.contrast and not context.or_own
        if only_sums and not (mean_below is None and norm_above is None):
            raise ValueError(
                "strategy.mean_below and strategy.norm_above must be null with "
                f"graph.contrast=true, got {mean_below} and {norm_above}: they are norms of one "
                "round's updates, and contrast cumulates them; use strategy.gap_above"
            )
        partition = partial(by_modularity, how=context.detection)
        self.state = CflState(
            communities=Communities.of(context.initial),
            graph=own_graph(context, lambda: graph_of_latest(context, ByCut())),
            sums=graph_of_sums(context, BySignificantCut(partition)),
        )
        self.alpha_cross: dict[int, float] = {}
        self._whole: set[int] = set()

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> FitInstructions:
        """Sample in each cluster, or select all of it if a split is due; sample the unassigned."""
        self.alpha_cross = {}  # which a round that is skipped has none of
        present = [c for c in roster(client_manager).proxies() if c not in self.state.removed]
        members = self.state.communities.members
        pool = [c for c in present if c not in members]
        cohort = self.sampler.draw(server_round, pool, "pool 0")
        all_new = len(cohort) == len(pool)
        self._whole = set()
        for row in range(len(self.state.communities.models)):
            pool = [c for c in present if members.get(c) == row]
            sampled = self.sampler.draw(server_round, pool, f"pool {row + 1}")
            cohort += pool if row in self.state.due else sampled
            if row in self.state.due or (all_new and len(sampled) == len(pool)):
                self._whole.add(row)
        return self.instruct(server_round, sorted(cohort), client_manager)

    def aggregate_fit(
        self, server_round: int, results: FitReplies, failures: FitFailures
    ) -> Aggregated:
        """Bipartition every cluster, then average in each remaining cluster."""
        every = self.receive(server_round, results, failures)
        learn(self.state, every, self.aggregator.rule, self.context.clip_update)
        replies = of_communities(self.state, every)
        heard = zip(replies.client_ids.tolist(), replies.starts.tolist(), strict=True)
        self.state.communities.members.update(heard)
        self._remember(server_round, replies)
        self.state.due = set()
        before = len(self.state.communities.models)
        for row in range(before):
            self._split(server_round, row)
        self.aggregator.update(self.state.communities.models, self._of_members(replies))
        if self.judges and len(self.state.communities.models) > before:
            begin(self.state, server_round)
        self._decide(server_round)
        return encode(self.state.communities.models[0]), {"train_loss": every.loss}

    def offer(self, server_round: int, client_ids: Sequence[int]) -> Offer:
        """Return each client's rows; while a split is on trial, also the common model.

        Then the clients without a cluster train it.
        """
        if self.state.common is None:
            return super().offer(server_round, client_ids)
        return offered(self.state, client_ids)

    def _decide(self, server_round: int) -> None:
        """Judge the splits at the end of their trial; if one is undone, there are no others."""
        found = decide(self.state, server_round, self.context.rounds)
        if any(event.kind in GIVEN_UP for event in found):
            self.state.due = set()  # whose rows are those before
            self.state.own_settled = True
            self.state.settled = not self.state.by_own
        if self.state.common is None:
            self.state.by_own = False
        self.events += found

    def _remember(self, server_round: int, replies: Replies) -> None:
        context, starts = self.context, self.state.communities.models
        if context.contrast:
            add_updates(self.state.sums, context, server_round, replies, starts, replies.starts)
        if context.contrast and not context.or_own:
            return
        part = context.layout.direction
        received = zip(replies.client_ids.tolist(), replies.starts, replies.models, strict=True)
        for client, row, model in received:
            self.state.graph.put(client, model[part] - starts[row, part], server_round)

    def _split(self, server_round: int, row: int) -> None:
        """Split a cluster if its recent updates meet the conditions."""
        parted = self._parted_from(server_round, row, by_sums=self.context.contrast)
        own = not parted and self.context.or_own and not self.state.own_settled
        if own:
            parted = self._parted_from(server_round, row, by_sums=False)
        if not parted:
            return
        if row not in self._whole:
            self.state.due.add(row)
            return
        self.state.by_own |= own
        what = f"alpha_cross {self.alpha_cross[row]:.3f} of cluster {row}: {parted}"
        now = self.state.communities
        if not self.keeps_all:
            for client in parted:
                self.state.removed[client] = server_round
                del now.members[client]
            self.events.append(Event("removed", what, parted))
            return
        models = np.concatenate([now.models, now.models[row][None, :]])
        members = now.members | dict.fromkeys(parted, len(models) - 1)
        self.state.communities = Communities(models, members)
        self.events.append(Event("clustered", what, parted))

    def _parted_from(self, server_round: int, row: int, *, by_sums: bool) -> list[int]:
        """Return which clients a split parts from a cluster; none: it is not to be split."""
        graph = self.state.sums if by_sums else self.state.graph
        among = self.fresh(server_round, row, graph, by_sums=by_sums)
        if len(among) < 2 or self.state.settled:
            return []
        labels, self.alpha_cross[row] = parts_of(graph, among, by_sums=by_sums)
        met = self.conditions
        weak = met.is_cross(self.alpha_cross[row], server_round)
        apart = weak and met.is_apart(graph, among, labels)
        if not apart or not (by_sums or met.is_unsettled(graph, among)):
            return []
        parted: list[int] = graph.vectors.ids_of(among)[labels == 1].tolist()
        return parted

    def fresh(self, server_round: int, row: int, graph: ClientGraph, *, by_sums: bool) -> Labels:
        """Return the rows (m,) of a cluster's clients in a graph whose updates are recent."""
        vectors, members = graph.vectors, self.state.communities.members
        young = vectors.fresh(server_round, None if by_sums else self.max_age)
        inside = [members.get(client) == row for client in vectors.ids_of(young).tolist()]
        among: Labels = young[np.array(inside, bool)]
        return among

    def _of_members(self, replies: Replies) -> Replies:
        """Return the replies of cluster members, each in the current cluster of its client."""
        members = self.state.communities.members
        rows = [members.get(client, -1) for client in replies.client_ids.tolist()]
        valid = np.array(rows) >= 0
        return replace(replies, starts=np.array(rows)).where(valid)

    def outcome(self, server_round: int) -> Outcome:
        """Add alpha_cross of every cluster that could have been split.

        The phase is `federated` until the first split.
        """
        split = len(self.state.communities.models) > 1 or self.state.removed
        notes = {"alpha_cross": {str(row): alpha for row, alpha in self.alpha_cross.items()}}
        phase = CLUSTERED if split else FEDERATED
        return replace(super().outcome(server_round), phase=phase, notes=notes)

    def view(self, server_round: int) -> View | None:
        """Return the clusters; the removed clients are an additional cluster."""
        members = self.state.communities.members
        rest = dict.fromkeys(self.state.removed, len(self.state.communities.models))
        rows = dict(sorted((members | rest).items()))
        if not rows:
            return None
        ids, labels = np.array(list(rows)), np.array(list(rows.values()))
        split = any(event.kind == "clustered" for event in self.events)
        graph = self.state.sums if self.context.contrast else self.state.graph
        return view_of(self.context, graph, ids, labels, clustered=split)
