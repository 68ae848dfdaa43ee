"""Methods that find communities anew in every round: their fallback to one model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from fl_app.aggregation import weighted_mean
from fl_app.graph.client_graph import ClientGraph
from fl_app.graph.vectors import ClientVectors
from fl_app.ingress import screen
from fl_app.records.history import FELL_BACK, UNDONE
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.catching_up import Steps, carried, catches_up, move, steps_of
from fl_app.strategies.cohort import Aggregated, Offer
from fl_app.strategies.encoding import encode
from fl_app.strategies.fallback import EARLIEST, decide
from fl_app.strategies.graph_use import add_updates, labels_of_sums, view_of
from fl_app.strategies.outcome import FEDERATED, Outcome, View
from fl_app.strategies.replies import Replies
from fl_app.strategies.state import Communities
from fl_app.strategies.trial import JudgedState, begin
from fl_app.strategies.turns import in_turns, learn_in_turns
from fl_app.types import CatchUp, Labels, Vector, Vectors, Weights

MOST_HEARD = 0.9
"""Share of the clients from which on communities are found among those that were heard of."""


@dataclass(kw_only=True)
class ChangingState(JudgedState):
    """The state of such a method in a checkpoint."""

    global_model: Vector
    """The model of all clients (d,)."""
    graph: ClientGraph
    """The last vector of each client, and their distances."""
    sums: ClientGraph
    """With contrast, the cumulated updates of each client, and their cosines; else empty."""
    judged: bool = False
    """Whether communities were or are on trial, which happens once."""
    one: bool = False
    """Whether they were undone; then there is one model, and none are found any more, except by
    contrast where these were of the method's own graph."""
    fallen: set[int] = field(default_factory=set)
    """The clients that fell back to the common model, whose community is the last one."""
    by_sums: bool = False
    """Whether the communities are those that contrast found."""
    moved: ClientVectors = field(default_factory=ClientVectors)
    """The last model (d,) of each client, which follows its community while the client is absent;
    without `catch_up` empty."""
    shares: dict[int, float] = field(default_factory=dict)
    """What is left of the weight of each client whose last update was too long."""


class ChangingCommunities(CommunityStrategy):
    """With `fallback`, the communities are judged after the first round with several.

    They are on trial by turns: `fl_app.strategies.turns`. If they are undone, one model is trained
    from then on: see `fl_app.strategies.fallback`. Clients
    that fall back train the common model, and communities are then found among the others.
    Updates are not shortened (`engine.clip_update`), since far models form communities of their
    own. In a model of all clients they are, and communities that are far from all others do not
    count in the global model. A model that is not far enough for that weighs less in the mean of
    its community, by the factor by which its update would be shortened. The papers have no such
    defence.
    With `catch_up`, last models of absent clients follow their communities, and these are found
    once most clients were heard of: `fl_app.strategies.catching_up`.
    With `contrast=both`, the communities are those of the method's own graph until contrast finds
    several, also after the first ones were undone. These are then judged anew.
    """

    state: ChangingState
    compares = False
    clips_updates = False
    _joint: Labels = np.empty(0, int)
    """The clients that trained the common model in this round."""
    _steps: Steps = MappingProxyType({})
    """How far members move that are absent in this round, if models catch up."""
    catches_up = False
    """Whether the last models of absent clients move along with their communities."""

    def weigh_long(self, replies: Replies) -> None:
        """Store the `shares` of the clients that replied."""
        heard = {*replies.client_ids.tolist()}
        others = {client: s for client, s in self.state.shares.items() if client not in heard}
        self.state.shares = others | self.cohort.shares

    def shares_of(self, client_ids: Labels) -> Weights:
        """Return what is left of the weights of clients (n,), 1 for most."""
        return np.array([self.state.shares.get(client, 1.0) for client in client_ids.tolist()])

    def catching_up(self, graph: ClientGraph, catch_up: CatchUp) -> ClientVectors:
        """Return an empty store for the last models that catch up, and note whether any do."""
        self.catches_up = catches_up(catch_up, graph.vectors, judges=self.judges)
        if not self.catches_up:
            return ClientVectors()
        size = self.context.layout.size
        return ClientVectors(self.context.vector_backend(length=size, whole=True))

    def gathers(self, server_round: int) -> bool:
        """Whether so few clients were heard of that all train one model, if models catch up.

        Those are `1 - (1 - participation)^round` of them, on average. After EARLIEST of the rounds
        communities are found anyway. Found ones stay if a resumed run has more rounds.
        """
        heard = 1.0 - (1.0 - self.sampler.participation) ** server_round
        early = server_round < EARLIEST * self.context.rounds
        found = self.state.one or len(self.state.communities.models) > 1
        return self.catches_up and early and heard < MOST_HEARD and not found

    def follow(self, server_round: int, replies: Replies) -> None:
        """Move members that did not train their community's model along with those that did.

        In the graph too while the server `gathers`: all train one model, and those who trained it
        in the same round would else be near to each other. Later, clients that are in a community
        by mistake would come nearer to it by that.
        """
        moved, heard = self.state.moved, replies.client_ids.tolist()
        members = self.state.communities.members
        if self.catches_up:
            absent = members.keys() - {*heard, *self._joint.tolist()}
            self._complete()
            move(moved, absent, members, self._steps)
            if self.gathers(server_round):
                move(self.state.graph.vectors, absent, members, self._steps)
            for client, model in zip(heard, replies.models, strict=True):
                moved.put(client, model, server_round)
        joint, vectors = self._joint.tolist(), self.state.graph.vectors
        for client, vector in carried(vectors, joint, heard, members, self.aggregator.rule).items():
            self.state.graph.put(client, vector, server_round)
            if self.catches_up:
                moved.put(client, vector[-self.context.layout.size :], server_round)

    def _complete(self) -> None:
        """Take the models of the graph that are not in the store, as after a resume with it."""
        vectors, moved, size = self.state.graph.vectors, self.state.moved, self.context.layout.size
        missing = np.setdiff1d(vectors.client_ids, moved.client_ids).tolist()
        for row, client in zip(vectors.rows_of(missing).tolist(), missing, strict=True):
            moved.put(client, vectors.read(np.array([row]))[0, -size:], 0)

    def last_models(self, among: Labels) -> tuple[ClientVectors, Labels, slice | None]:
        """Return where the last models of these rows of the graph (m,) are: rows and columns."""
        vectors, size = self.state.graph.vectors, self.context.layout.size
        if not self.catches_up:
            return vectors, among, slice(vectors.length - size, vectors.length)
        moved = self.state.moved
        return moved, moved.rows_of(vectors.ids_of(among).tolist()), None

    def inside(self, models: Vectors, sizes: Labels) -> np.ndarray:
        """Return which models (k, d) of communities of these sizes (k,) count in the global one."""
        multiple = self.context.clip_update
        if multiple is None:
            return np.ones(len(models), bool)
        return ~screen.outside(models, sizes, multiple=multiple)

    def offer(self, server_round: int, client_ids: Sequence[int]) -> Offer:
        """Return each client's row; while the communities are on trial, also the common model."""
        if self.state.common is None:
            return super().offer(server_round, client_ids)
        share = self.sampler.participation
        return in_turns(self.state, server_round, *self.attribute(client_ids), share)

    def learn(self, replies: Replies) -> Replies:
        """Train the common model while the communities are on trial; return the other replies."""
        context, last = self.context, len(self.cohort.sent) - 1
        mine = learn_in_turns(self.state, replies, last, self.aggregator.rule, context.clip_update)
        self._joint = np.setdiff1d(replies.client_ids, mine.client_ids)
        absent = self.state.communities.members.keys() - {*replies.client_ids.tolist()}
        self._steps = {}
        if self.catches_up and absent:
            bounded = replace(replies, models=self.cohort.bounded(replies.models))
            self._steps = self.steps(bounded.where(np.isin(replies.client_ids, mine.client_ids)))
        return mine

    def steps(self, replies: Replies) -> Steps:
        """Return how far absent members move, by steps with weights as in the means of models."""
        sent, members = self.cohort.sent, self.state.communities.members
        return steps_of(replies, sent, members, self.aggregator.rule, replies.weights)

    def cumulate(self, server_round: int, replies: Replies) -> None:
        """With contrast, add the clients' updates to the sums.

        The common drift is that of all clients, whichever model they received. The direction in
        which a community moves as a whole stays; without groups, it leads back to the others.
        Models of communities that contrast did not find can move apart without groups, and it would
        find these by that. So each of them has its own common drift.
        """
        context, labels = self.context, np.zeros(len(replies.client_ids), int)
        if not context.contrast:
            return
        if self.awaits_contrast and not self.state.one:
            members = self.state.communities.members
            labels = np.array([members.get(c, -1) for c in replies.client_ids.tolist()], int)
        add_updates(self.state.sums, context, server_round, replies, self.cohort.sent, labels)

    @property
    def awaits_contrast(self) -> bool:
        """Whether the communities are of the method's own graph until contrast finds several."""
        return self.context.or_own and not self.state.by_sums

    def labels_by_sums(self, client_ids: Labels) -> Labels | None:
        """Return the communities (m,) of clients that contrast finds, or keeps: `labels_of_sums`.

        None: the method's own graph is to be asked.
        """
        if not self.context.contrast:
            return None
        sums = self.state.sums
        if not self.awaits_contrast:
            members = self.state.communities.members
            return self.without_fallen(
                client_ids, lambda stay: labels_of_sums(sums, client_ids[stay], members)
            )
        labels = labels_of_sums(sums, client_ids, {})
        if not labels.any():
            return None
        self.state.by_sums, self.state.one, self.state.judged = True, False, False
        self.state.fallen = set()
        return labels

    def without_fallen(self, client_ids: Labels, find: Callable[[np.ndarray], Labels]) -> Labels:
        """Return the communities (m,) of clients: -1 of those that fell back to the common model.

        `find` returns those of the others, for which its argument (m,) is true.
        """
        stay, labels = self.stays(client_ids), np.full(len(client_ids), -1)
        if stay.any():
            labels[stay] = find(stay)
        return labels

    def stays(self, client_ids: Labels) -> np.ndarray:
        """Return which clients (m,) did not fall back."""
        return ~np.isin(client_ids, list(self.state.fallen))

    def with_fallen(
        self, models: Vectors, members: Mapping[int, int], replies: Replies
    ) -> Communities:
        """Return communities (k, d) with that of the clients that fell back, which train it.

        These have -1 in `members`.
        """
        if not self.state.fallen:
            return Communities(models, dict(members))
        common, mine = self.state.communities.models[-1], ~self.stays(replies.client_ids)
        if mine.any():
            short = replace(replies, models=self.cohort.bounded(replies.models)).where(mine)
            common = self.aggregator.aggregate(short.client_ids, short.models, short.weights)
        last = dict.fromkeys(self.state.fallen, len(models))
        return Communities(
            np.concatenate([models, common[None, :]]), dict(sorted({**members, **last}.items()))
        )

    def shown(self, client_ids: Labels, labels: Labels, *, clustered: bool) -> View:
        """Return the view of communities (n,) in the graph in which they were found."""
        by_sums = self.context.contrast and not self.awaits_contrast
        graph = self.state.sums if by_sums else self.state.graph
        return view_of(self.context, graph, client_ids, labels, clustered=clustered)

    def judge(self, server_round: int) -> None:
        """Begin the trial of the first communities, or end it."""
        state = self.state
        if self.judges and not state.judged and len(state.communities.models) > 1:
            now = state.communities
            weights = self.inside(now.models, now.sizes) * now.sizes
            common = weighted_mean(now.models, weights.astype(float))
            begin(state, server_round, common=common if state.common is None else None)
            state.judged = True
        found = decide(state, server_round, self.context.rounds, apart=True)
        for event in found:
            if event.kind == UNDONE:
                state.one, state.global_model = True, state.communities.models[0]
            if event.kind == FELL_BACK:
                state.fallen = set(event.clients)
        self.events += found

    def train_one(self, replies: Replies) -> Aggregated:
        """Train the one model after the communities were undone."""
        short = replace(replies, models=self.cohort.bounded(replies.models))
        self.aggregator.update(self.state.communities.models, short)
        self.state.global_model = self.state.communities.models[0]
        return encode(self.state.global_model), {"train_loss": replies.loss}

    def outcome(self, server_round: int) -> Outcome:
        """Say that one model is trained while the server gathers."""
        found = super().outcome(server_round)
        return replace(found, phase=FEDERATED) if self.gathers(server_round) else found

    def one_community(self) -> View:
        """Return all known clients in one community."""
        ids = np.array(sorted(self.state.communities.members), int)
        return View(ids, np.zeros(len(ids), int), None)
