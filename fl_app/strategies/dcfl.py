"""DCFL: communities that are found anew whenever the old ones no longer fit.

Augello et al., PerCom Workshops 2023, "DCFL: dynamic clustered federated learning under
differential privacy settings", algorithm 1.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import numpy as np
from flwr.common import Parameters, Scalar
from pydantic import Field

from fl_app.graph.communities import NotConvergedWarning, affinity_propagation
from fl_app.graph.dcfl_distance import dcfl_between, dcfl_distance, dcfl_divergence
from fl_app.graph.similarity import euclidean_between, flic_similarity
from fl_app.graph.store import UpdateStore
from fl_app.graph.validity import dunn_index
from fl_app.graph.vector_backends import InMemory
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.cohort import FitFailures, FitReplies, Rows
from fl_app.strategies.encoding import encode
from fl_app.strategies.outcome import Event, Outcome, View
from fl_app.strategies.replies import Replies
from fl_app.strategies.server_context import RULES, ServerContext
from fl_app.strategies.state import Communities, MethodState
from fl_app.types import Labels, Matrix, Participation, PositiveInt, Vector, Vectors

Damping = Annotated[float, Field(ge=0.5, lt=1)]


@dataclass(kw_only=True)
class DcflState(MethodState):
    """What DCFL must keep."""

    global_model: Vector
    """The mean of the latest models of all clients that count (d,)."""
    before: Vectors
    """Where each community's members started from on average (k, d)."""
    starts: UpdateStore = field(default_factory=lambda: UpdateStore(InMemory()))
    """The model that each client received last: where its update vector starts."""
    ends: UpdateStore = field(default_factory=lambda: UpdateStore(InMemory()))
    """The model that each client returned last: where its update vector ends."""
    dunn: float | None = None
    """The Dunn index of the communities before the last round; None: not finite, or there were
    no communities."""


class Dcfl(CommunityStrategy):
    """Affinity propagation on the distances of update vectors, when the Dunn index says so.

    An update vector goes from the model a client received to the one it returned; the latest
    of each client counts for `max_age` rounds (the paper leaves partial participation open).
    Communities are found anew while there is one alone or the index of the present ones is
    below 1. A community's model is the plain mean (`rule`: or the median) of its members'
    latest models, the global model that of all. A newcomer trains the global model first, then
    joins the community whose last step lies nearest to its own, and then trains that one's.
    `distance` takes parts of the paper's own, for its ablation.
    """

    state: DcflState

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: Participation,
        distance: Literal["complete", "divergence", "cosine", "euclidean"] = "complete",
        damping: Damping = 0.5,
        preference: float | None = None,
        max_age: PositiveInt | None = None,
        rule: Literal["mean", "median"] = "mean",
    ) -> None:
        super().__init__(context, participation=participation, rule=RULES[rule])
        self.kind = distance
        self.damping, self.preference = damping, preference
        self.max_age = max_age
        self.state = DcflState(
            communities=Communities.of(context.initial),
            global_model=context.initial,
            before=context.initial[None, :].copy(),
        )
        self.found: tuple[Labels, Matrix] | None = None

    def attribute(self, client_ids: Sequence[int]) -> tuple[Vectors, list[Rows]]:
        """Return community models and the global one (k + 1, d), and each client's row."""
        models, members = self.state.communities.models, self.state.communities.members
        stock = np.concatenate([models, self.state.global_model[None, :]])
        return stock, [(members.get(client, len(models)),) for client in client_ids]

    def aggregate_fit(
        self,
        server_round: int,
        results: FitReplies,
        failures: FitFailures,
    ) -> tuple[Parameters, dict[str, Scalar]]:
        """Keep the update vectors, find communities where the old ones fail, average inside."""
        sent = np.concatenate([self.state.communities.models, self.state.global_model[None, :]])
        replies = self.receive(server_round, results, failures)
        self._remember(server_round, replies, sent)
        ids, starts, ends = self._fresh(server_round)
        distance = self._distance(starts, ends)
        labels = self._labels(ids, distance, starts, ends)
        count = int(labels.max()) + 1
        self.state.before = self._steps_from(count, labels, starts)
        models = np.stack([self._middle(ends[labels == row]) for row in range(count)])
        self.state.communities = Communities(
            models, dict(zip(ids.tolist(), labels.tolist(), strict=True))
        )
        self.state.global_model = self._middle(ends)
        self.found = ids, distance
        return encode(self.state.global_model), {"train_loss": replies.loss}

    def _middle(self, models: Vectors) -> Vector:
        """Return the plain mean, or the median, (d,) of models (m, d)."""
        return self.aggregator.rule(models, np.ones(len(models)))

    def _remember(self, server_round: int, replies: Replies, sent: Vectors) -> None:
        received = zip(
            replies.client_ids.tolist(), replies.starts.tolist(), replies.models, strict=True
        )
        for client, row, model in received:
            self.state.starts.put(client, sent[row], server_round)
            self.state.ends.put(client, model, server_round)

    def _fresh(self, server_round: int) -> tuple[Labels, Vectors, Vectors]:
        """Return ids (m,), starts and ends (m, d) of the update vectors that count."""
        ids, ends = self.state.ends.updates()
        starts = self.state.starts.updates()[1]
        young = self.state.ends.fresh(server_round, self.max_age)
        return ids[young], starts[young], ends[young]

    def _distance(self, starts: Vectors, ends: Vectors) -> Matrix:
        part = self.context.layout.direction
        starts, ends = starts[:, part], ends[:, part]
        if self.kind == "complete":
            return dcfl_distance(starts, ends)
        if self.kind == "divergence":
            return dcfl_divergence(starts, ends)
        if self.kind == "cosine":
            distance: Matrix = 2.0 - flic_similarity(ends - starts)
        else:
            distance = euclidean_between(ends, ends, self.context.layout)
        np.fill_diagonal(distance, 0.0)
        return distance

    def _labels(self, ids: Labels, distance: Matrix, starts: Vectors, ends: Vectors) -> Labels:
        """Return the communities (m,) of this round: the old ones while they fit."""
        members = self.state.communities.members
        labels = np.array([members.get(client, -1) for client in ids.tolist()])
        old = labels >= 0
        if old.any():
            dunn = dunn_index(distance[np.ix_(old, old)], labels[old])
            self.state.dunn = dunn if np.isfinite(dunn) else None
            if len(np.unique(labels[old])) > 1 and dunn >= 1:
                return self._joined(labels, starts, ends)
        return self._cluster(distance)

    def _joined(self, labels: Labels, starts: Vectors, ends: Vectors) -> Labels:
        """Give each newcomer the community whose last step is nearest to its own."""
        new = labels < 0
        if new.any():
            part = self.context.layout.direction
            models = self.state.communities.models
            nearness = dcfl_between(
                starts[new][:, part],
                ends[new][:, part],
                self.state.before[:, part],
                models[:, part],
            )
            labels = labels.copy()
            labels[new] = nearness.argmin(axis=1)
        # a community whose members are all too old is gone: rows have no holes
        return np.unique(labels, return_inverse=True)[1]

    def _cluster(self, distance: Matrix) -> Labels:
        level: float | Literal["median"] = "median" if self.preference is None else self.preference
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", NotConvergedWarning)
            labels = affinity_propagation(
                distance, damping=self.damping, preference=level, seed=self.context.seed
            )
        self.events += [Event("not converged", str(each.message)) for each in caught]
        sizes = np.bincount(labels).tolist()
        kind = "reclustered" if self.state.communities.members else "clustered"
        self.events.append(Event(kind, f"{len(sizes)} communities of sizes {sizes}"))
        return labels

    @staticmethod
    def _steps_from(count: int, labels: Labels, starts: Vectors) -> Vectors:
        """Return where each community's members started from on average (k, d)."""
        return np.stack([starts[labels == row].mean(axis=0) for row in range(count)])

    def outcome(self, server_round: int) -> Outcome:
        """Add the Dunn index of the communities as they were before this round."""
        return replace(super().outcome(server_round), notes={"dunn": self.state.dunn})

    def view(self, server_round: int) -> View | None:
        """Return the communities after this round."""
        if self.found is None:
            return None
        ids, distance = self.found
        labels = np.array([self.state.communities.members[client] for client in ids.tolist()])
        return View(ids, labels, None, distance)
