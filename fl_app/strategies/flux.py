"""FLUX: communities by descriptors of the clients' data, extracted by the model and sent once.

Fenoglio et al., NeurIPS 2025, "FLUX: Efficient descriptor-driven clustered federated learning under
arbitrary distribution shifts". We had its abstract and its public code, and not its text: where the
abstract leaves something open, this follows the code, and docs/methods/flux.md tells what is ours.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from flwr.common import Parameters
from flwr.server.client_manager import ClientManager
from pydantic import Field, PositiveFloat

from fl_app.aggregation import Weighting
from fl_app.client.latents import CLASS_LATENTS, LATENTS, MOMENTS
from fl_app.graph.client_graph import ClientGraph
from fl_app.graph.descriptors import DescriptorDistance, centroids, limits, nearest_rows, scaled
from fl_app.graph.detection import ByDensity
from fl_app.learner_reports import Report
from fl_app.records.serving import Descriptors
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.cohort import (
    Aggregated,
    FitFailures,
    FitInstructions,
    FitReplies,
    Offer,
    Rows,
)
from fl_app.strategies.encoding import encode
from fl_app.strategies.fallback import decide
from fl_app.strategies.graph_settings import GraphUse
from fl_app.strategies.graph_use import graph_of, view_of
from fl_app.strategies.outcome import View, clustering
from fl_app.strategies.replies import Replies
from fl_app.strategies.roster import roster
from fl_app.strategies.server_context import RULES, WEIGHTED, RuleName, ServerContext
from fl_app.strategies.state import Communities
from fl_app.strategies.trial import JudgedState, begin, beside, learn
from fl_app.types import (
    ClusterRound,
    Described,
    Fallback,
    Labels,
    Participation,
    PositiveInt,
    Vector,
    Vectors,
)
from fl_app.used_with import UsedWith, When

FIRST, LAST = 3, 0.8
"""With cluster_round=auto: the fewest rounds before the clustering, and its latest share."""
Rounds = Annotated[PositiveInt, Field(ge=2)]
"""Between two of which something is learnt."""
FARTHEST = 1e12
"""Larger moments are rejected; squares of this are finite in every precision."""
Share = Annotated[float, Field(gt=0, lt=1)]


@dataclass(kw_only=True)
class FluxState(JudgedState):
    """The state of FLUX in a checkpoint."""

    graph: ClientGraph
    """The scaled descriptors of the clients, and the distances between them."""
    reference: Vector
    """The model (d,) that extracts descriptors: that of all clients before the clustering."""
    low: np.ndarray
    """The value of each block of a descriptor (blocks,) that is scaled to 0."""
    high: np.ndarray
    """The value of each block of a descriptor (blocks,) that is scaled to 1."""
    described_at: int | None = None
    """The last round in which all clients sent descriptors; None: not yet."""
    losses: list[float] = field(default_factory=list)
    """The lower median of the training losses of each round before the clustering."""


class Flux(CommunityStrategy):
    """FedAvg for `cluster_round` rounds, then communities of descriptors, and FedAvg in each.

    In the round after `cluster_round` all clients train, and send moments of the latent features
    that the received model has of their samples: of all samples, and with `descriptor=classes` of
    those of each class. The server scales them and runs DBSCAN (`ByDensity`). The replies of this
    round are already averaged per community. A client that comes later trains the model of that
    time once, its descriptor joins the community with the nearest mean, and that model is not used.
    With `refresh`, all clients send descriptors again after that many rounds: communities are found
    anew, each continues the model of the nearest former one, and nothing else is learnt in that
    round. With `fallback`, each clustering is judged after some rounds, unless a refresh changes
    the communities before: see `fl_app.strategies.fallback`. Who sends a descriptor does not train
    the common model.
    """

    state: FluxState
    graph_use = GraphUse(vectors="whose distances need whole descriptors")
    used_with: ClassVar[UsedWith] = {
        **WEIGHTED,
        "stable_below": When("cluster_round", ("auto",)),
        "radius_scale": When("radius", ("knee",)),
    }
    asks = {LATENTS: Report(length=1, low=-FARTHEST, high=FARTHEST)}  # noqa: RUF012

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: Participation,
        cluster_round: ClusterRound,
        stable_below: Share,
        descriptor: Described,
        directions: PositiveInt,
        radius: PositiveFloat | Literal["knee"],
        radius_scale: PositiveFloat,
        refresh: Rounds | None,
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
        self.cluster_round, self.stable_below, self.refresh = cluster_round, stable_below, refresh
        self.directions = directions
        wanted = Report(length=MOMENTS * directions, low=-FARTHEST, high=FARTHEST)
        of_classes = {CLASS_LATENTS: replace(wanted, per=("classes",))}
        self.asks = {LATENTS: wanted} | (of_classes if descriptor == "classes" else {})
        parts = 1 + (context.classes or 1) * (descriptor == "classes")
        self.state = FluxState(
            communities=Communities.of(context.initial),
            graph=graph_of(
                context, DescriptorDistance(), ByDensity(radius=radius, scale=radius_scale),
                length=parts * MOMENTS * directions, whole=True,
            ),
            reference=context.initial.copy(),
            low=np.zeros(parts * MOMENTS),
            high=np.zeros(parts * MOMENTS),
        )  # fmt: skip
        self._all_describe = False

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> FitInstructions:
        """Select all clients if they describe their data, otherwise a sample and all new ones."""
        present, members = list(roster(client_manager).proxies()), self.state.communities.members
        self._all_describe = self._is_due(server_round)
        if self._all_describe:
            return self.instruct(server_round, present, client_manager)
        fresh = [client for client in present if self.clustered and client not in members]
        others = [client for client in present if client not in fresh]
        drawn = self.sampler.draw(server_round, others, "all")
        return self.instruct(server_round, sorted(fresh + drawn), client_manager)

    def asks_of(self, client_id: int) -> Collection[str]:
        """Return the descriptors if this client must send them with its next model."""
        new = self.clustered and client_id not in self.state.communities.members
        return self.asks if self._all_describe or new else ()

    def offer(self, server_round: int, client_ids: Sequence[int]) -> Offer:
        """Return each client's row; those that send descriptors get the model that makes them."""
        if not self.clustered:
            return super().offer(server_round, client_ids)
        now = self.state.communities
        last = len(now.models)
        own = {} if self._all_describe else now.members
        models = np.concatenate([now.models, self.state.reference[None, :]])
        rows: list[Rows] = [(own.get(client, last),) for client in client_ids]
        if self.state.common is None or self._all_describe:
            return models, rows, None
        return beside(self.state, models, rows)

    def aggregate_fit(
        self, server_round: int, results: FitReplies, failures: FitFailures
    ) -> Aggregated:
        """Find or join communities by new descriptors, then average the replies of each."""
        replies, due = self.receive(server_round, results, failures), self._is_due(server_round)
        members = self.state.communities.members
        learns = replies.where(replies.starts < len(self.state.communities.models))
        if not due and len(learns.client_ids):
            learn(self.state, learns, self.aggregator.rule, self.context.clip_update)
        if due:
            first = not self.clustered
            self._cluster(server_round, replies)
            if first:  # all trained the model from which each community starts
                learns = replace(replies, starts=self._rows(replies.client_ids))
        elif self.clustered:
            self._join(server_round, replies)
        else:
            self.state.losses.append(replies.usual_loss)
        self.aggregator.update(self.state.communities.models, learns)
        self._judge(server_round, new=due and not self._goes_on(members))
        return encode(self.state.communities.models[0]), {"train_loss": replies.loss}

    def _goes_on(self, before: Mapping[int, int]) -> bool:
        """Whether communities on trial are those `before`, which need not have the same rows."""
        after = self.state.communities.members
        pairs = {(row, after[client]) for client, row in before.items()}
        rows, found = {row for row, _ in pairs}, {row for _, row in pairs}
        one_to_one = len(pairs) == len(rows) == len(found)
        return self.state.common is not None and one_to_one and found == {*after.values()}

    def _judge(self, server_round: int, *, new: bool) -> None:
        """Begin the trial of new communities, or judge those on trial.

        A refresh that finds the same ones does not delay their verdict.
        """
        if not new:
            self.events += decide(self.state, server_round, self.context.rounds)
        elif self.judges and len(self.state.communities.models) > 1:
            begin(self.state, server_round)
        else:  # one community is nothing to judge
            self.state.common = None

    @property
    def clustered(self) -> bool:
        """Whether the communities are found."""
        return self.state.described_at is not None

    def _is_due(self, server_round: int) -> bool:
        """Whether all clients describe their data in this round."""
        last, done = self.state.described_at, server_round - 1
        if last is not None:
            return self.refresh is not None and server_round - last >= self.refresh
        if self.cluster_round != "auto":
            return done >= self.cluster_round
        losses = self.state.losses
        if done >= LAST * self.context.rounds:
            return bool(losses)
        least = self.stable_below * losses[0] if losses else 0.0
        return len(losses) >= FIRST and losses[-2] - losses[-1] < least

    def _cluster(self, server_round: int, replies: Replies) -> None:
        """Find the communities, whose models start from the nearest former ones."""
        state, first = self.state, not self.clustered
        if first:
            state.reference = state.communities.models[0].copy()
            state.low, state.high = limits(*self._blocks(replies))
        former = None if first else self._centroids()
        self._put(server_round, replies.client_ids, self._scaled(replies))
        ids, labels = state.graph.vectors.client_ids, state.graph.labels()
        state.communities.members = dict(zip(ids.tolist(), labels.tolist(), strict=True))
        rows = np.zeros(labels.max() + 1, int) if former is None else (
            nearest_rows(self._centroids(), former)
        )  # fmt: skip
        state.communities.models = state.communities.models[rows]
        state.evaluated = {}  # its rows are those of the models before
        state.described_at = server_round
        self.events.append(clustering(labels, "clustered" if first else "reclustered"))

    def _join(self, server_round: int, replies: Replies) -> None:
        """Let each client without a community join that with the nearest mean."""
        members = self.state.communities.members
        new = np.array([client not in members for client in replies.client_ids.tolist()])
        if new.any():
            fresh = replies.where(new)
            vectors = self._scaled(fresh)
            rows = nearest_rows(vectors, self._centroids())
            self._put(server_round, fresh.client_ids, vectors)
            members |= dict(zip(fresh.client_ids.tolist(), rows.tolist(), strict=True))

    def _blocks(self, replies: Replies) -> tuple[np.ndarray, np.ndarray]:
        """Return the descriptors in blocks (n, blocks, p), and which of them each client has.

        They are the mean and deviation of all samples, the means of the classes, and their
        deviations.
        """
        told = [replies.reports[name] for name in self.asks]
        blocks = np.concatenate([self._apart(each) for each in told], axis=1)
        has = np.ones(blocks.shape[:2], bool)
        if CLASS_LATENTS in self.asks:
            deviations = np.split(blocks[:, MOMENTS:], MOMENTS, axis=1)[1]
            has[:, MOMENTS:] = np.tile((deviations >= 0).all(axis=2), MOMENTS)
        return blocks, has

    def _apart(self, told: np.ndarray) -> np.ndarray:
        return told.reshape(len(told), -1, self.directions)

    def _scaled(self, replies: Replies) -> Vectors:
        return scaled(*self._blocks(replies), self.state.low, self.state.high)

    def _put(self, server_round: int, client_ids: Labels, vectors: Vectors) -> None:
        for client, vector in zip(client_ids.tolist(), vectors, strict=True):
            self.state.graph.put(client, vector, server_round)

    def _rows(self, client_ids: Labels) -> Labels:
        return np.array([self.state.communities.members[c] for c in client_ids.tolist()], int)

    def _centroids(self) -> Vectors:
        """Return the mean descriptor of each community (k, blocks * p)."""
        vectors = self.state.graph.vectors
        return centroids(vectors.read(vectors.order), self._rows(vectors.client_ids))

    def descriptors(self) -> Descriptors | None:
        """Return what places a client without labels after the run."""
        if not self.clustered:
            return None
        part = MOMENTS * self.directions  # of all samples, which need no labels
        return Descriptors(
            reference=self.state.reference,
            low=self.state.low[:MOMENTS].tolist(),
            high=self.state.high[:MOMENTS].tolist(),
            means=self._centroids()[:, :part].tolist(),
        )

    def view(self, server_round: int) -> View | None:
        """Return the communities, None before they are found."""
        if not self.clustered:
            return None
        graph = self.state.graph
        ids = graph.vectors.client_ids
        shown = server_round == self.state.described_at
        return view_of(self.context, graph, ids, self._rows(ids), clustered=shown)
