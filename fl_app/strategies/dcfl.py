"""DCFL: clients are clustered again whenever the communities no longer fit.

Augello et al., PerCom Workshops 2023, "DCFL: dynamic clustered federated learning under
differential privacy settings", algorithm 1.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import numpy as np
from flwr.common import Parameters
from flwr.server.client_manager import ClientManager
from pydantic import Field

from fl_app.aggregation import weighted_mean
from fl_app.graph.client_graph import ClientGraph
from fl_app.graph.communities import NotConvergedWarning, canonical
from fl_app.graph.dcfl_distance import dcfl_between
from fl_app.graph.detection import ByExemplars, BySignificance
from fl_app.graph.measures import DcflDistance, DcflKind
from fl_app.graph.partitions import by_exemplars
from fl_app.graph.validity import dunn_index
from fl_app.ingress import screen
from fl_app.strategies.catching_up import Steps
from fl_app.strategies.changing import ChangingCommunities, ChangingState
from fl_app.strategies.cohort import Aggregated, FitFailures, FitInstructions, FitReplies, Rows
from fl_app.strategies.encoding import encode
from fl_app.strategies.graph_settings import GraphUse
from fl_app.strategies.graph_use import graph_of, graph_of_sums, groups_of, labels_of_sums
from fl_app.strategies.outcome import Event, Outcome, View, clustering
from fl_app.strategies.replies import Replies
from fl_app.strategies.server_context import RULES, RuleName, ServerContext
from fl_app.strategies.state import Communities
from fl_app.types import CatchUp, Fallback, Labels, Participation, PositiveInt, Vector, Vectors

BETWEEN = 0.75
"""Clients that merge groups are near to all others, honest ones were to at most 0.44 of them."""
Damping = Annotated[float, Field(ge=0.5, lt=1)]


@dataclass(kw_only=True)
class DcflState(ChangingState):
    """The state of DCFL in a checkpoint."""

    global_model: Vector
    """The mean or median of the latest models of all clients with a recent update (d,). A mean
    is without communities that are far from all others."""
    before: Vectors
    """The mean of the models from which the members started of each community (k, d) that can be
    joined."""
    graph: ClientGraph
    """The last update vector of each client, its start and its end, and their distances."""
    dunn: float | None = None
    """The Dunn index of the communities before the last round; None if it is not finite, there
    were no communities or none are looked for any more, or the round was skipped."""


class Dcfl(ChangingCommunities):
    """Affinity propagation on the distances of update vectors, triggered by the Dunn index.

    An update vector goes from the model that a client received to the one it returned; the latest
    one of each client is used for `max_age` rounds (the paper does not define partial
    participation). Clients are clustered again if there is only one community or the Dunn index
    is below 1. A community's model is the plain mean or, by `rule`, the median of its members'
    latest models; the global model is that of all clients. A newcomer first trains the global
    model. Then it is assigned to the community whose last step is nearest to its own, and trains
    that community's model. `distance` selects parts of the paper's distance, for an ablation.
    With `graph.contrast`, which the paper does not have, affinity propagation and the Dunn index
    use `1 - contrast` of the clients' cumulated updates (`add_updates`), and splits that noise or
    common drift alone would give are not made (`significant`). Newcomers are assigned as above.
    """

    state: DcflState
    counts_wrong = True
    graph_use = GraphUse(
        contrast=True, replaced=("distance",),
        vectors="whose models are means of the clients' last models",
    )  # fmt: skip

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: Participation,
        distance: DcflKind,
        damping: Damping,
        preference: float | None,
        max_age: PositiveInt | None,
        rule: RuleName,
        catch_up: CatchUp,
        fallback: Fallback,
    ) -> None:
        super().__init__(context, participation=participation, rule=RULES[rule], fallback=fallback)
        self.max_age = max_age
        if context.contrast:
            self.cohort.unseen = np.arange(context.layout.size)  # a direction shows no length
        self.measure = DcflDistance(distance, context.layout)
        options: dict[str, Any] = {
            "damping": damping, "preference": preference, "seed": context.seed,
        }  # fmt: skip
        how, exemplars = ByExemplars(**options), partial(by_exemplars, **options)
        graph = graph_of(context, self.measure, how, length=2 * context.layout.size, whole=True)
        self.state = DcflState(
            communities=Communities.of(context.initial),
            global_model=context.initial,
            before=context.initial[None, :].copy(),
            graph=graph,
            sums=graph_of_sums(context, BySignificance(lambda _: exemplars)),
            moved=self.catching_up(graph, catch_up),
        )
        self._first = True

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> FitInstructions:
        """Sample from all clients; a round that is skipped has no Dunn index."""
        self.state.dunn = None
        return super().configure_fit(server_round, parameters, client_manager)

    def attribute(self, client_ids: Sequence[int]) -> tuple[Vectors, list[Rows]]:
        """Return community models and the global model (k + 1, d), and each client's row."""
        models, members = self.state.communities.models, self.state.communities.members
        if self.state.one:
            return models, [(0,)] * len(client_ids)
        stock = np.concatenate([models, self.state.global_model[None, :]])
        return stock, [(members.get(client, len(models)),) for client in client_ids]

    def aggregate_fit(
        self, server_round: int, results: FitReplies, failures: FitFailures
    ) -> Aggregated:
        """Store the update vectors, cluster again if necessary, average in each community."""
        sent = np.concatenate([self.state.communities.models, self.state.global_model[None, :]])
        every = self.receive(server_round, results, failures)
        replies = self.learn(every)
        if self.state.one and not self.awaits_contrast:
            return self.train_one(replies)
        if len(replies.client_ids):
            self._find(server_round, replies, sent)
        else:
            self.judge(server_round)
        return encode(self.state.global_model), {"train_loss": every.loss}

    def _find(self, server_round: int, replies: Replies, sent: Vectors) -> None:
        """Store the update vectors, find and judge the communities, and average in each."""
        self._remember(server_round, replies, sent)
        among = self.state.graph.vectors.fresh(server_round, self.max_age)
        ids = self.state.graph.vectors.ids_of(among)
        gathers = self.gathers(server_round)
        self._first = not self.state.communities.members or self.gathers(server_round - 1)
        labels = np.zeros(len(among), int) if gathers else self._labels(among, ids)
        if labels is None:
            self.train_one(replies)
            return
        self._average(among, ids, labels, replies)
        self.judge(server_round)
        self._note_starts(among, ids)

    def _remember(self, server_round: int, replies: Replies, sent: Vectors) -> None:
        received = zip(
            replies.client_ids.tolist(), replies.starts.tolist(), replies.models, strict=True
        )
        for client, row, model in received:
            self.state.graph.put(client, np.concatenate([sent[row], model]), server_round)
        self.follow(server_round, replies)
        self.weigh_long(replies)
        self.cumulate(server_round, replies)

    def steps(self, replies: Replies) -> Steps:
        """Return how far absent members move, by plain means of steps, as those of models are."""
        return super().steps(replace(replies, weights=np.ones(len(replies.client_ids))))

    def _average(self, among: Labels, ids: Labels, labels: Labels, replies: Replies) -> None:
        """Set the community models, and the global model."""
        store, rows, part = self.last_models(among)
        groups = groups_of(labels, rows)
        weights = self.shares_of(ids)
        inside = [weights[labels == row] for row in range(len(groups))]
        models = store.combine(self.aggregator.rule, [*groups, rows], [*inside, weights], part)
        members = dict(zip(ids.tolist(), labels.tolist(), strict=True))
        now = self.state.communities = self.with_fallen(models[:-1], members, replies)
        near, whole = self._near(), models[-1]
        if not near.all() and self.aggregator.rule is weighted_mean:
            whole = weighted_mean(now.models, (near * now.sizes).astype(float))
        self.state.global_model = whole

    def _note_starts(self, among: Labels, ids: Labels) -> None:
        """Set the mean starts of the communities; nobody joins that of who fell back."""
        vectors, members = self.state.graph.vectors, self.state.communities.members
        rows = np.array([members[client] for client in ids.tolist()])
        groups = groups_of(self.without_fallen(ids, lambda stay: rows[stay]), among)
        equal = [np.ones(len(group)) for group in groups]
        part = slice(0, self.context.layout.size)
        self.state.before = vectors.combine(_plain_mean, groups, equal, part)

    def _labels(self, among: Labels, ids: Labels) -> Labels | None:
        """Return the communities (m,) of this round; None: there is one model, and it stays."""
        if self.awaits_contrast:
            found = self.labels_by_sums(ids)
            if found is not None:
                return self._told(found)
            if self.state.one:
                return None
        return self.without_fallen(ids, lambda stay: self._fitting(among[stay], ids[stay]))

    def _fitting(self, among: Labels, ids: Labels) -> Labels:
        """Return the old communities (m,) if they still fit, else new ones."""
        members = self.state.communities.members
        labels = np.array([members.get(client, -1) for client in ids.tolist()])
        old = labels >= 0
        old[old] = self._near()[labels[old]]
        if old.any():
            dunn = self._dunn(labels[old], among[old], ids[old])
            self.state.dunn = dunn if np.isfinite(dunn) else None
            if len(np.unique(labels[old])) > 1 and dunn >= 1:
                return self._joined(labels, among)
        return self._cluster(among)

    def _near(self) -> np.ndarray:
        """Return which communities (k,) are not far from all others, which would hide how far
        those are from each other."""
        now = self.state.communities
        return self.inside(now.models, now.sizes)

    def _dunn(self, labels: Labels, among: Labels, ids: Labels) -> float:
        """Return the Dunn index of communities (m,) in the distances in which they are found."""
        if not self.context.contrast or self.awaits_contrast:
            return dunn_index(self.state.graph.matrix(), labels, among)
        sums = self.state.sums
        known = np.isin(ids, sums.vectors.client_ids)
        if not known.any():
            return float("nan")
        similarity = sums.similarity(sums.vectors.rows_of(ids[known].tolist()))
        assert similarity is not None
        distance = 1.0 - similarity
        np.fill_diagonal(distance, 0.0)
        return dunn_index(distance, labels[known], np.arange(len(distance)))

    def _joined(self, labels: Labels, among: Labels) -> Labels:
        """Assign each newcomer to the community whose last step is nearest to its own."""
        new = labels < 0
        if new.any():
            vectors, part = self.state.graph.vectors, self.context.layout.direction
            nearness = dcfl_between(
                vectors.read(among[new], self.measure.starts),
                vectors.read(among[new], self.measure.ends),
                self.state.before[:, part],
                self.state.communities.models[: len(self.state.before), part],
            )
            labels = labels.copy()
            labels[new] = nearness.argmin(axis=1)
        # renumber without gaps: a community can have no member with a recent update
        return np.unique(labels, return_inverse=True)[1]

    def _cluster(self, among: Labels) -> Labels:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", NotConvergedWarning)
            if self.context.contrast and not self.awaits_contrast:
                ids = self.state.graph.vectors.ids_of(among)
                labels = labels_of_sums(self.state.sums, ids, self.state.communities.members)
            else:
                labels = self._apart(among)
        self.events += [Event("not converged", str(each.message)) for each in caught]
        return self._told(labels)

    def _apart(self, among: Labels) -> Labels:
        """Return the communities (m,), found without the clients that would merge them.

        By DCFL's distance a step towards others is near, however far its model is. A client with
        too long an update, nearer than the lower median to more than BETWEEN of those with ordinary
        ones, is a community by itself: as an exemplar it would bring all groups together.
        """
        graph = self.state.graph
        long = self.shares_of(graph.vectors.ids_of(among)) < 1
        others = len(among) - int(long.sum())
        if self.measure.kind != "complete" or not long.any() or others < screen.FEWEST:
            return graph.labels(among)
        distance = graph.values(among)
        np.fill_diagonal(distance, np.inf)
        median = np.sort(distance[np.ix_(~long, ~long)], axis=1)[:, (others - 2) // 2]
        alone = long.copy()
        alone[long] = (distance[np.ix_(long, ~long)] < median).mean(axis=1) > BETWEEN
        labels = len(among) + np.arange(len(among))
        labels[~alone] = graph.labels(among[~alone])
        return canonical(labels)

    def _told(self, labels: Labels) -> Labels:
        """Return the labels (m,) of new communities, after an event that tells of them."""
        self.events.append(clustering(labels, "clustered" if self._first else "reclustered"))
        return labels

    def outcome(self, server_round: int) -> Outcome:
        """Add the Dunn index of the communities before this round."""
        return replace(super().outcome(server_round), notes={"dunn": self.state.dunn})

    def view(self, server_round: int) -> View | None:
        """Return the communities after this round."""
        if self.state.one:
            return self.one_community()
        members = self.state.communities.members
        if not members:
            return None
        ids, labels = np.array(list(members), int), np.array(list(members.values()), int)
        found = any(event.kind == "clustered" for event in self.events)
        return self.shown(ids, labels, clustered=found)


def _plain_mean(vectors: Vectors, weights: np.ndarray) -> Vector:
    mean: Vector = vectors.mean(axis=0)
    return mean
