"""Community discovery during training: communities of the clients' last models in every round.

Bettinelli et al., IEEE Big Data 2024, "Discovering communities with clustered federated
learning", algorithm 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from pydantic import NonNegativeFloat

from fl_app.aggregation import Weighting, sample_weights, weighted_mean
from fl_app.attribution import mixed, nearest_models, weighted_nearest
from fl_app.graph.similarity import ignored
from fl_app.strategies.changing import ChangingCommunities, ChangingState
from fl_app.strategies.cohort import Aggregated, FitFailures, FitReplies, Rows
from fl_app.strategies.encoding import encode
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
    groups_of,
    put_models,
    strayed,
)
from fl_app.strategies.outcome import View
from fl_app.strategies.replies import Replies
from fl_app.strategies.server_context import ServerContext
from fl_app.strategies.state import Communities
from fl_app.types import (
    Between,
    CatchUp,
    Fallback,
    Labels,
    Participation,
    PositiveInt,
    Vector,
    Vectors,
    Weights,
)
from fl_app.used_with import UsedWith, When


@dataclass(kw_only=True)
class DiscoveryState(ChangingState):
    """The state of community discovery in a checkpoint."""

    global_model: Vector
    """The plain mean of the community models (d,), without those far from all others, and without
    that of clients that fell back to the common one."""
    samples: dict[int, float] = field(default_factory=dict)
    """The training samples of each client, from its last reply."""
    round: int = 0
    """The last round in which communities were found."""


class CommunityDiscovery(ChangingCommunities):
    """Louvain on normalised similarities of the last models, after every round.

    A community's model is the mean of its members' last models with weights by `weighting`; the
    global model is the plain mean of the community models, without far ones, which the paper does
    not leave out. `attribution` selects what a client receives: `avg` its community's model; `1nn`
    the community model nearest to its last model; `wnn` the mean of the `neighbours` nearest ones
    with weights softmax(-beta * distance).
    Newcomers, and clients without a model from the last `max_age` rounds, get the global model.
    With `graph.contrast`, which the paper does not have, the communities are those of the clients'
    cumulated updates (`add_updates`), and splits that noise or common drift alone would give are
    not made (`significant`). Communities are found anew in every round, so that the threshold of
    significance grows with the rounds.
    """

    name = "communities"
    state: DiscoveryState
    graph_use = GraphUse(
        modularity=True, contrast=True, replaced=("exponent", "scale"),
        vectors="whose models are means of the clients' last models",
    )  # fmt: skip
    used_with: ClassVar[UsedWith] = dict.fromkeys(
        ("neighbours", "beta"), When("attribution", ("wnn",))
    )

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: Participation,
        attribution: Literal["avg", "1nn", "wnn"],
        neighbours: PositiveInt,
        beta: NonNegativeFloat,
        similarity: Similarity,
        exponent: Exponent,
        scale: Scale,
        weighting: Weighting,
        max_age: PositiveInt | None,
        catch_up: CatchUp,
        fallback: Fallback,
    ) -> None:
        super().__init__(
            context,
            participation=participation,
            rule=weighted_mean,
            weighting=weighting,
            fallback=fallback,
        )
        self.attribution = attribution
        self.neighbours, self.beta = neighbours, beta
        self.between, self.max_age = distance_named(similarity), max_age
        self.cohort.check = self.check
        if context.contrast or similarity == "cosine":
            self.cohort.unseen = np.arange(context.layout.size)  # a direction shows no length
        elif similarity == "trusted":
            self.cohort.unseen = ignored(context.layout)
        how = by_similarity(context, exponent=exponent, scale=scale)
        graph = graph_of_models(context, similarity, how, averaged=True)
        self.state = DiscoveryState(
            communities=Communities.of(context.initial),
            global_model=context.initial,
            graph=graph,
            sums=graph_of_sums(context, by_significance(context)),
            moved=self.catching_up(graph, catch_up),
        )
        self._found: tuple[int, Labels, Labels] | None = None
        self._first = 0

    def check(self, model: Vector, samples: int) -> None:
        """Raise ValueError for a model without a finite distance to itself."""
        check_distance(self.between, model, self.context.layout)

    def attribute(self, client_ids: Sequence[int]) -> tuple[Vectors, list[Rows]]:
        """Return community models, global model and mixtures (m, d), and each client's row."""
        if self.state.one or self._look() is None:
            return self.state.global_model[None, :], [(0,)] * len(client_ids)
        models = self.state.communities.models
        given = self._known_weights(client_ids)
        stock, rows = [models, self.state.global_model[None, :]], list[Rows]()
        count = len(models) + 1
        for client in client_ids:
            weights = given.get(client)
            if weights is None:
                rows.append((len(models),))
            elif weights.max() == 1.0:
                rows.append((int(weights.argmax()),))
            else:
                stock.append(mixed(weights, models)[None, :])
                rows.append((count,))
                count += 1
        return np.concatenate(stock), rows

    def mixtures(self, client_ids: Sequence[int]) -> Mapping[int, Weights]:
        """Return the weights (k,) of the clients that get more than one community's model."""
        found = not self.state.one and self._look() is not None
        given = self._known_weights(client_ids) if found else {}
        return {client: weights for client, weights in given.items() if weights.max() < 1.0}

    def _known_weights(self, client_ids: Sequence[int]) -> Mapping[int, Weights]:
        """Return the weights (k,) of the clients that belong to a community."""
        known = [client for client in client_ids if client in self.state.communities.members]
        return dict(zip(known, self._weights(known), strict=True)) if known else {}

    def _weights(self, client_ids: Sequence[int]) -> Between:
        """Return the weights of the k community models for each of n members (n, k)."""
        now, vectors = self.state.communities, self.state.graph.vectors
        given: Between = np.eye(len(now.models))[[now.members[client] for client in client_ids]]
        ids = np.array(client_ids, int)
        free = self.stays(ids)
        if self.attribution == "avg" or not free.any():
            return given
        models = now.models[: len(now.models) - bool(self.state.fallen)]
        last = vectors.read(vectors.rows_of(ids[free].tolist()))
        distance = self.between(last, models, self.context.layout)
        if self.attribution == "wnn":
            nearest = weighted_nearest(distance, neighbours=self.neighbours, beta=self.beta)
        else:
            nearest = np.eye(len(models))[nearest_models(distance)]
        given[free, : len(models)] = nearest
        return given

    def aggregate_fit(
        self, server_round: int, results: FitReplies, failures: FitFailures
    ) -> Aggregated:
        """Store the models, find the communities, and average within and over them."""
        every = self.receive(server_round, results, failures)
        replies = self.learn(every)
        if self.state.one and not self.awaits_contrast:
            return self.train_one(replies)
        if len(replies.client_ids):
            self._find(server_round, replies)
        self.judge(server_round)
        return encode(self.state.global_model), {"train_loss": every.loss}

    def _find(self, server_round: int, replies: Replies) -> None:
        """Store the models, and find the communities."""
        everything, odd = slice(0, self.context.layout.size), self._odd(replies)
        put_models(self.state.graph, server_round, replies, odd, everything)
        self.follow(server_round, replies)
        self.cumulate(server_round, replies)
        self.weigh_long(replies)
        heard = zip(replies.client_ids.tolist(), replies.samples.tolist(), strict=True)
        self.state.samples.update(heard)
        gathers = self.gathers(server_round)
        if gathers or not self.state.round:
            self._first = server_round + gathers
        among = self.state.graph.vectors.fresh(server_round, self.max_age)
        labels = np.zeros(len(among), int) if gathers else self._labels(among)
        if labels is None:
            self.train_one(replies)
            return
        self.state.round = server_round
        self._discover(among, labels, replies)

    def _odd(self, replies: Replies) -> set[int]:
        """Return the clients that set no scale of distances unless they are in it.

        Those with odd updates or in a far community, from where their updates are ordinary ones,
        and those that strayed from the global model.
        """
        now, layout = self.state.communities, self.context.layout
        odd = strayed(self.between, replies, self.state.global_model, layout)
        inside = self.inside(now.models, now.sizes)
        far = {client for client, row in now.members.items() if not inside[row]}
        return odd | far | self.cohort.odd_updates.keys()

    def _look(self) -> tuple[Labels, Labels] | None:
        """Return rows (m,) and communities (m,) of the last round; after a restart from members."""
        now, members = self.state.round, self.state.communities.members
        if now and (self._found is None or self._found[0] != now):
            among = self.state.graph.vectors.fresh(now, self.max_age)
            ids = self.state.graph.vectors.ids_of(among)
            self._found = now, among, np.array([members[client] for client in ids.tolist()], int)
        return self._found[1:] if self._found is not None else None

    def _labels(self, among: Labels) -> Labels | None:
        """Return the communities (m,) of these clients; None: there is one model, and it stays."""
        graph = self.state.graph
        ids = graph.vectors.ids_of(among)
        labels = self.labels_by_sums(ids)
        if labels is None and not self.state.one:
            return self.without_fallen(ids, lambda stay: graph.labels(among[stay]))
        return labels

    def _discover(self, among: Labels, labels: Labels, replies: Replies) -> None:
        """Set the models and members of communities (m,) of these clients."""
        ids = self.state.graph.vectors.ids_of(among)
        samples = np.array([self.state.samples[client] for client in ids.tolist()])
        weights = sample_weights(samples, how=self.weighting, cap=self.context.sample_cap)
        shares = groups_of(labels, np.arange(len(among)))
        for inside in shares:
            self.aggregator.watch(ids[inside], weights[inside])
        weights *= self.shares_of(ids)
        store, rows, part = self.last_models(among)
        models = store.combine(
            self.aggregator.rule,
            groups_of(labels, rows),
            [weights[inside] for inside in shares],
            part,
        )
        members = dict(zip(ids.tolist(), labels.tolist(), strict=True))
        self.state.communities = self.with_fallen(models, members, replies)
        if not len(models):  # of who did not fall back, all models are too old
            return
        before = self.state.global_model
        sizes = np.bincount(labels[labels >= 0])
        after = weighted_mean(models, self.inside(models, sizes).astype(float))
        self.state.global_model = after
        length = float(np.linalg.norm(after))
        self.aggregator.step = float(np.linalg.norm(after - before)) / length if length else None

    def view(self, server_round: int) -> View | None:
        """Return the communities found in this round."""
        if self.state.one:
            return self.one_community()
        found = self._look()
        if found is None:
            return None
        ids = self.state.graph.vectors.ids_of(found[0])
        first = server_round == self._first
        return self.shown(ids, found[1], clustered=first)
