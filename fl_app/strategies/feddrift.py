"""FedDrift: clients whose loss rises get models of their own, and models alike are merged.

Jothimurugesan, Hsieh, Wang, Joshi and Gibbons, AISTATS 2023, "Federated learning under distributed
concept drift".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from flwr.common import FitIns, Parameters, Scalar
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from pydantic import PositiveFloat

from fl_app.aggregation import Weighting, weighted_mean
from fl_app.graph.communities import agglomerative
from fl_app.graph.loss_distance import loss_distance
from fl_app.learner_reports import LARGEST, OFFERED, Report
from fl_app.strategies.alternating import Alternating, AlternatingState
from fl_app.strategies.cohort import FitFailures, FitReplies, Rows
from fl_app.strategies.encoding import encode
from fl_app.strategies.graph_settings import NO_GRAPH
from fl_app.strategies.outcome import CLUSTERED, FEDERATED, Event, Outcome
from fl_app.strategies.replies import Replies
from fl_app.strategies.server_context import RULES, RuleName, ServerContext
from fl_app.strategies.state import Communities
from fl_app.types import Fallback, Labels, Participation, PositiveInt, Vector, Vectors


@dataclass(kw_only=True)
class FedDriftState(AlternatingState):
    """The state of FedDrift in a checkpoint."""

    losses: dict[int, float] = field(default_factory=dict)
    """The least loss of each client over all models when it last trained."""
    used: list[int] = field(default_factory=lambda: [0])
    """The last round in which each model was trained."""


class FedDrift(Alternating):
    """Several models; a client trains the one with the least loss, until this loss rises.

    Each sampled client receives all models, reports their losses, and trains the best one. If its
    least loss is more than `delta` above that of its last training, its data have drifted. What it
    trained is then a new model, which nobody else has trained. From the next round on it is one of
    the models that all clients score. Two models are merged if the loss of neither rises by
    `merge_below` on the data of the other's clients, by complete linkage: see `loss_distance`. With
    `start=own` the first model that a client trains is its own. Beyond `most_models`, the one that
    nobody uses and that was not trained for longest is replaced; if all are used, the client stays
    where it is. With `fallback`, the models are judged once, from the first round on in which
    clients use several that all could score: see `fl_app.strategies.alternating`. If they are
    undone, no client gets a model of its own any more.
    """

    state: FedDriftState
    graph_use = NO_GRAPH
    asks = {OFFERED: Report(length=1, low=-LARGEST, high=LARGEST)}  # noqa: RUF012

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: Participation,
        delta: PositiveFloat,
        merge_below: PositiveFloat,
        start: Literal["one", "own"],
        most_models: PositiveInt,
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
        self.delta, self.merge_below = delta, merge_below
        self.starts_alone, self.most_models = start == "own", most_models
        self.state = FedDriftState(communities=Communities.of(context.initial))

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Ask the sampled clients for the losses of all models."""
        count = len(self.state.communities.models)
        self.asks = {OFFERED: replace(self.asks[OFFERED], length=count)}
        return super().configure_fit(server_round, parameters, client_manager)

    def to_train(self, client_ids: Sequence[int]) -> tuple[Vectors, list[Rows]]:
        """Return all models for every client."""
        models = self.state.communities.models
        return models, [tuple(range(len(models)))] * len(client_ids)

    def aggregate_fit(
        self,
        server_round: int,
        results: FitReplies,
        failures: FitFailures,
    ) -> tuple[Parameters, dict[str, Scalar]]:
        """Detect drifts, average the other replies, merge models, and add those of the drifted."""
        replies = self.receive(server_round, results, failures)
        if self.trains_common:
            return self.train_common(server_round, replies)
        replies = self.compare(replies)
        apart = self._drifted(replies)
        stay, now = replies.where(~apart), self.state.communities
        chosen = zip(stay.client_ids.tolist(), stay.starts.tolist(), strict=True)
        now.members.update(chosen)
        for row in np.unique(stay.starts).tolist():
            self.state.used[row] = server_round
        self.aggregator.update(now.models, stay)
        self._merge(stay)
        self.judge(server_round)
        if not self.state.one:
            self._isolate(server_round, replies.where(apart))
        return encode(self.state.communities.models[0]), {"train_loss": replies.loss}

    def _drifted(self, replies: Replies) -> np.ndarray:
        """Return which clients (n,) get a model of their own; store their least losses."""
        rows = np.arange(len(replies.client_ids))
        least = replies.reports[OFFERED][rows, replies.starts].tolist()
        found = []
        for client, loss in zip(replies.client_ids.tolist(), least, strict=True):
            last = self.state.losses.get(client)
            found.append(self.starts_alone if last is None else loss - last > self.delta)
            self.state.losses[client] = loss
        return np.array(found, bool)

    def _merge(self, replies: Replies) -> None:
        """Merge the models that are near by the losses of the clients that chose them."""
        models, distance = loss_distance(replies.reports[OFFERED], replies.starts)
        if len(models) < 2:
            return
        labels = agglomerative(distance, threshold=self.merge_below, linkage="complete")
        members = list(self.state.communities.members.values())
        counts = np.bincount(members, minlength=len(self.state.communities.models))
        into = np.arange(len(counts))
        for label in np.flatnonzero(np.bincount(labels) > 1):
            rows = models[labels == label]
            now = self.state.communities.models
            now[rows[0]] = weighted_mean(now[rows], counts[rows].astype(float))
            into[rows] = rows[0]
            self.events.append(Event("merged", f"models {rows.tolist()}"))
        self._keep(into)

    def _keep(self, into: Labels) -> None:
        """Keep the models (m,) that are merged into themselves, and renumber them."""
        now, rows = self.state.communities, np.flatnonzero(into == np.arange(len(into)))
        place = np.searchsorted(rows, into).tolist()
        members = {client: place[row] for client, row in now.members.items()}
        self.state.communities = Communities(now.models[rows], members)
        chosen = self.state.evaluated
        self.state.evaluated = {client: place[row] for client, row in chosen.items()}
        self.state.used = [self.state.used[row] for row in rows.tolist()]

    def _isolate(self, server_round: int, replies: Replies) -> None:
        """Make the models of drifted clients models of their own, as far as there is room."""
        now = self.state.communities
        for client in replies.client_ids.tolist():
            now.members.pop(client, None)
        placed = []
        for client, model in zip(replies.client_ids.tolist(), replies.models, strict=True):
            row = self._free_row()
            if row is None:
                continue
            if row == len(now.models):
                now.models = np.concatenate([now.models, now.models[:1]])
                self.state.used.append(server_round)
            now.models[row], self.state.used[row] = model, server_round
            self.replaced(row)
            now.members[client] = row
            placed.append(client)
        if placed:
            self.events.append(Event("isolated", f"clients {placed} with own models", placed))

    def _free_row(self) -> int | None:
        """Return the row of a new model; None: all of `most_models` are in use."""
        now, used = self.state.communities, self.state.used
        free = sorted(set(range(len(now.models))) - set(now.members.values()))
        oldest = min(free, key=used.__getitem__, default=None)
        full = len(now.models) >= self.most_models
        # a model that was never trained has nothing that could be of use again
        return oldest if full or (oldest is not None and not used[oldest]) else len(now.models)

    def outcome(self, server_round: int) -> Outcome:
        """Set the phase: `clustered` while clients use several models."""
        several = len(set(self.state.communities.members.values())) > 1
        return replace(super().outcome(server_round), phase=CLUSTERED if several else FEDERATED)

    def judge(self, server_round: int) -> None:
        """Begin or end the trial; there is nothing to judge once all models are merged."""
        state = self.state
        if state.common is not None and len(set(state.communities.members.values())) == 1:
            state.common, state.judged = None, False
        super().judge(server_round)

    def ready(self, server_round: int) -> bool:
        """Whether clients use several models; those of clients that drifted now are not among them.

        They come after it, and are merged with others at the earliest in the next round.
        """
        return len(set(self.state.communities.members.values())) > 1

    def first_common(self) -> Vector:
        """Return the mean (d,) of all models, weighted by their clients: they have one ancestor."""
        now = self.state.communities
        counts = np.bincount(list(now.members.values()), minlength=len(now.models))
        return weighted_mean(now.models, counts.astype(float))

    def choices(self) -> Mapping[int, int]:
        """Return the model of each client."""
        return self.state.communities.members
