"""FedDrift: clients whose loss rises get models of their own, and models alike are merged.

Jothimurugesan, Hsieh, Wang, Joshi and Gibbons, AISTATS 2023, "Federated learning under distributed
concept drift".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from flwr.common import Parameters
from flwr.server.client_manager import ClientManager
from pydantic import PositiveFloat

from fl_app.aggregation import Weighting, weighted_mean
from fl_app.graph.communities import agglomerative
from fl_app.graph.loss_distance import loss_distance
from fl_app.learner_reports import LARGEST, OFFERED, Report
from fl_app.strategies.alternating import Alternating, AlternatingState
from fl_app.strategies.cohort import Aggregated, FitFailures, FitInstructions, FitReplies, Rows
from fl_app.strategies.encoding import encode
from fl_app.strategies.graph_settings import NO_GRAPH
from fl_app.strategies.outcome import CLUSTERED, FEDERATED, Event, Outcome
from fl_app.strategies.replies import Replies
from fl_app.strategies.roster import Roster, roster
from fl_app.strategies.server_context import RULES, WEIGHTED, RuleName, ServerContext
from fl_app.strategies.state import Communities
from fl_app.types import Fallback, Labels, Participation, PositiveInt, Vectors
from fl_app.used_with import UsedWith


@dataclass(kw_only=True)
class FedDriftState(AlternatingState):
    """The state of FedDrift in a checkpoint."""

    losses: dict[int, float] = field(default_factory=dict)
    """The least loss of each client over all models when it last trained."""
    used: list[int] = field(default_factory=lambda: [0])
    """The last round in which each model was trained."""
    alone: dict[int, int] = field(default_factory=dict)
    """The client of each model that nobody else has trained; others are missing."""


class FedDrift(Alternating):
    """Several models; a client trains the one with the least loss, until this loss rises.

    Each sampled client receives all models, reports their losses, and trains the best one. If its
    least loss is more than `delta` above that of its last training, its data have drifted. What it
    trained is then a new model, which nobody else has trained. From the next round on it is one of
    the models that all clients score. Two models are merged if the loss of neither rises by
    `merge_below` on the data of the other's clients, by complete linkage: see `loss_distance`. With
    `start=own` the first model that a client trains is its own. A model that only this client has
    trained is replaced by its next one, so that nobody can have several. Beyond `most_models`, one
    that nobody uses, or only clients that have left, is replaced: first those that only one client
    has trained, then the one that was not trained for longest. If all are used, the client goes on
    with the model that it chose. With `fallback`, the models are judged once, from the first round
    on in which clients use several that all could score: see `fl_app.strategies.alternating`. If
    they are undone, no client gets a model of its own any more.
    """

    state: FedDriftState
    graph_use = NO_GRAPH
    used_with: ClassVar[UsedWith] = WEIGHTED
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
        self._known: Roster | None = None
        self.state = FedDriftState(communities=Communities.of(context.initial))

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> FitInstructions:
        """Ask the sampled clients for the losses of all models."""
        self._known = roster(client_manager)
        count = len(self.state.communities.models)
        self.asks = {OFFERED: replace(self.asks[OFFERED], length=count)}
        return super().configure_fit(server_round, parameters, client_manager)

    def to_train(self, client_ids: Sequence[int]) -> tuple[Vectors, list[Rows]]:
        """Return all models for every client."""
        models = self.state.communities.models
        return models, [tuple(range(len(models)))] * len(client_ids)

    def aggregate_fit(
        self, server_round: int, results: FitReplies, failures: FitFailures
    ) -> Aggregated:
        """Detect drifts, average the other replies, merge models, and add those of the drifted."""
        replies = self.receive(server_round, results, failures)
        if self.trains_common:
            return self.train_common(server_round, replies)
        replies = self.compare(replies)
        apart = self._drifted(replies)
        merges = self._alike(replies.where(~apart))
        apart = self._with_room(replies, apart, merges)
        stay, now = replies.where(~apart), self.state.communities
        chosen = zip(stay.client_ids.tolist(), stay.starts.tolist(), strict=True)
        now.members.update(chosen)
        for client, row in now.members.items():
            if self.state.alone.get(row, client) != client:
                del self.state.alone[row]
        for row in np.unique(stay.starts).tolist():
            self.state.used[row] = server_round
        self.aggregator.update(now.models, stay)
        self._merge(merges)
        self.judge(server_round)
        if not self.state.one:
            self._isolate(server_round, replies.where(apart))
        return encode(self.state.communities.models[0]), {"train_loss": replies.loss}

    def _drifted(self, replies: Replies) -> np.ndarray:
        """Return which clients (n,) should get a model of their own; store their least losses."""
        rows = np.arange(len(replies.client_ids))
        least = replies.reports[OFFERED][rows, replies.starts].tolist()
        found = []
        for client, loss in zip(replies.client_ids.tolist(), least, strict=True):
            last = self.state.losses.get(client)
            found.append(self.starts_alone if last is None else loss - last > self.delta)
            self.state.losses[client] = loss
        return np.array(found, bool)

    def _with_room(self, replies: Replies, apart: np.ndarray, merges: Labels) -> np.ndarray:
        """Return which of the clients `apart` (n,) get models of their own, the first of them.

        A client without room goes on with the model that it chose, which is then in use.
        """
        places, ids = np.flatnonzero(apart), set(replies.client_ids[apart].tolist())
        members = self.state.communities.members | dict(
            zip(replies.client_ids.tolist(), replies.starts.tolist(), strict=True)
        )
        others = {client: row for client, row in members.items() if client not in ids}
        used = {int(merges[row]) for row in self._rows_in_use(others)}
        most, count = max(self.most_models, len(np.unique(merges))), len(places)
        while count > max(0, most - len(used)):
            count -= 1
            used.add(int(merges[replies.starts[places[count]]]))
        if count < len(places):
            left_out = replies.client_ids[places[count:]].tolist()
            detail = f"clients {left_out} get no own models, as all {most} are in use"
            self.events.append(Event("no room", detail, left_out))
        found = np.zeros_like(apart)
        found[places[:count]] = True
        return found

    def _rows_in_use(self, members: Mapping[int, int]) -> set[int]:
        """Return the rows of clients that have not left."""
        left = frozenset() if self._known is None else self._known.absent
        return {row for client, row in members.items() if client not in left}

    def _alike(self, replies: Replies) -> Labels:
        """Return the model into which each model (m,) is to be merged, most often itself.

        Models are merged that are near by the losses of the clients that chose them.
        """
        into = np.arange(len(self.state.communities.models))
        models, distance = loss_distance(replies.reports[OFFERED], replies.starts)
        if len(models) < 2:
            return into
        labels = agglomerative(distance, threshold=self.merge_below, linkage="complete")
        for label in np.unique(labels):
            rows = models[labels == label]
            into[rows] = rows[0]
        return into

    def _merge(self, into: Labels) -> None:
        """Merge models (m,), with the weights of their clients."""
        now = self.state.communities
        sizes = now.sizes.astype(float)
        for first in np.flatnonzero(np.bincount(into) > 1):
            rows = np.flatnonzero(into == first)
            now.models[first] = weighted_mean(now.models[rows], sizes[rows])
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
        from_one = set(np.flatnonzero(np.bincount(into) == 1).tolist())
        alone = self.state.alone.items()
        self.state.alone = {place[row]: client for row, client in alone if row in from_one}

    def _isolate(self, server_round: int, replies: Replies) -> None:
        """Make the models of drifted clients models of their own."""
        now, isolated = self.state.communities, replies.client_ids.tolist()
        for client in isolated:
            now.members.pop(client, None)
        for client, model in zip(isolated, replies.models, strict=True):
            row = self._free_row(client)
            assert row is not None  # as `_with_room` has found
            if row == len(now.models):
                now.models = np.concatenate([now.models, now.models[:1]])
                self.state.used.append(server_round)
            now.models[row], self.state.used[row] = model, server_round
            self.replaced(row)
            now.members[client], self.state.alone[row] = row, client
        if isolated:
            self.events.append(Event("isolated", f"clients {isolated} with own models", isolated))

    def replaced(self, row: int) -> None:
        """Forget who used the model of a row: clients that have left, or only evaluated it."""
        super().replaced(row)
        members = self.state.communities.members
        for client in [client for client, each in members.items() if each == row]:
            del members[client]

    def _free_row(self, client: int) -> int | None:
        """Return the row of a client's new model; None: all of `most_models` are in use."""
        now, used, alone = self.state.communities, self.state.used, self.state.alone
        free = sorted(set(range(len(now.models))) - self._rows_in_use(now.members))
        own = [row for row in free if alone.get(row) == client]
        # a model that was never trained has nothing that could be of use again
        if replaced := own or [row for row in free if not used[row]]:
            return replaced[0]
        if len(now.models) < self.most_models:
            return len(now.models)
        return min(free, key=lambda row: (row not in alone, used[row]), default=None)

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

    def first_common(self) -> None:
        """Return None: it is the mean of all models, since they have one ancestor."""

    def choices(self) -> Mapping[int, int]:
        """Return the model of each client."""
        return self.state.communities.members
