"""FedGWC: recursive spectral clustering by how clients' losses compare with those of a cohort.

Licciardi, Leo, Fani, Caputo and Ciccone, ICML 2025, "Interaction-aware Gaussian weighting for
clustered federated learning".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np
from flwr.common import Parameters
from flwr.server.client_manager import ClientManager
from pydantic import Field, PositiveFloat

from fl_app.aggregation import Weighting
from fl_app.client.loss_trajectory import TRAJECTORY
from fl_app.graph.gaussian_rewards import affinity, gaussian_rewards
from fl_app.graph.interactions import Interactions
from fl_app.graph.spectral import spectral_parts
from fl_app.learner_reports import LARGEST, Report
from fl_app.rng import torch_seed
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.cohort import Aggregated, FitFailures, FitInstructions, FitReplies, Offer
from fl_app.strategies.encoding import encode
from fl_app.strategies.fallback import settle
from fl_app.strategies.graph_settings import NO_GRAPH
from fl_app.strategies.outcome import CLUSTERED, FEDERATED, Event, Outcome, View
from fl_app.strategies.replies import Replies
from fl_app.strategies.roster import roster
from fl_app.strategies.server_context import RULES, WEIGHTED, RuleName, ServerContext
from fl_app.strategies.state import Communities
from fl_app.strategies.trial import SettledState, begin, beside, learn
from fl_app.types import Fallback, Labels, Participation, PositiveInt
from fl_app.used_with import UsedWith

ENOUGH = 0.5
"""A client is placed by a split if it has met this share of the other clients of its cluster."""


@dataclass(kw_only=True)
class FedGwcState(SettledState):
    """The state of FedGWC in a checkpoint."""

    interactions: Interactions = field(default_factory=Interactions)
    """The mean rewards of clients in rounds with each other client of their cluster."""
    calm: dict[int, int] = field(default_factory=dict)
    """In how many rounds in a row the mean rewards of each cluster changed little."""
    tests: dict[int, int] = field(default_factory=dict)
    """How often each cluster was tested and not split."""


class FedGwc(CommunityStrategy):
    """Clients report how their loss ran; clusters are split by the rewards for typical losses.

    A round of a cluster rewards each client whose losses are near the mean of the cohort. The
    interaction matrix has the mean reward of each client in rounds with each other one. When it
    changes by less than `tolerance` for as many rounds as the cluster has cohorts, spectral
    clustering of the affinity between its rows splits the cluster, if the Davies-Bouldin index of
    the parts is below `split_below`. If not, the next test needs twice as many such rounds, since
    one of many tests would find parts in noise. All parts go on from the cluster's model, with new
    matrices.
    A client without a cluster chooses the model with the least loss, and so does a client that has
    met fewer than ENOUGH of its cluster at a split. With `fallback` the clusters are judged some
    rounds after a split; if they are undone, or left by clients, no further split is made.
    """

    state: FedGwcState
    graph_use = NO_GRAPH
    used_with: ClassVar[UsedWith] = WEIGHTED
    asks = {TRAJECTORY: Report(length=1, low=-LARGEST, high=LARGEST)}  # noqa: RUF012

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: Participation,
        steps: PositiveInt,
        alpha: Participation | None,
        tolerance: PositiveFloat,
        beta: PositiveFloat,
        most_parts: Annotated[int, Field(ge=2, le=100)],
        split_below: PositiveFloat,
        fewest: Annotated[int, Field(ge=3)],
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
        self.asks = {TRAJECTORY: replace(self.asks[TRAJECTORY], length=steps)}
        self.alpha, self.tolerance, self.beta = alpha, tolerance, beta
        self.most_parts, self.split_below, self.fewest = most_parts, split_below, fewest
        self.state = FedGwcState(communities=Communities.of(context.initial))
        self.change: dict[int, float] = {}

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> FitInstructions:
        """Sample in each cluster, and among the clients without one."""
        self.change = {}  # which a round that is skipped has none of
        present, members = roster(client_manager).proxies(), self.state.communities.members
        cohort: list[int] = []
        for row in range(-1, len(self.state.communities.models)):
            pool = [client for client in present if members.get(client, -1) == row]
            cohort += self.sampler.draw(server_round, pool, f"pool {row + 1}")
        return self.instruct(server_round, sorted(cohort), client_manager)

    def offer(self, server_round: int, client_ids: Sequence[int]) -> Offer:
        """Return each client's rows; while a split is on trial, also the common model."""
        if self.state.common is None:
            return super().offer(server_round, client_ids)
        return beside(self.state, *self.attribute(client_ids))

    def aggregate_fit(
        self, server_round: int, results: FitReplies, failures: FitFailures
    ) -> Aggregated:
        """Average in each cluster, reward its clients, and split it once its rewards are known."""
        replies = self.receive(server_round, results, failures)
        now = self.state.communities
        heard = zip(replies.client_ids.tolist(), replies.starts.tolist(), strict=True)
        now.members.update(heard)
        learn(self.state, replies, self.aggregator.rule, self.context.clip_update)
        self.aggregator.update(now.models, replies)
        count = len(now.models)
        for row in range(0 if self.state.settled else count):
            mine = replies.where(replies.starts == row)
            if len(mine.client_ids) > 1:
                self._reward(row, mine)
                self._split(server_round, row, len(mine.client_ids))
        if self.judges and len(self.state.communities.models) > count:
            begin(self.state, server_round)
        else:
            self.events += settle(self.state, server_round, self.context.rounds)
        return encode(self.state.communities.models[0]), {"train_loss": replies.loss}

    def _reward(self, row: int, replies: Replies) -> None:
        """Add the rewards of one cluster's cohort to the interaction matrix."""
        rewards = gaussian_rewards(replies.reports[TRAJECTORY])
        clients = replies.client_ids.tolist()
        self.change[row] = self.state.interactions.meet(clients, rewards, self.alpha)
        is_calm = self.change[row] < self.tolerance
        self.state.calm[row] = self.state.calm.get(row, 0) + 1 if is_calm else 0

    def _split(self, server_round: int, row: int, cohort: int) -> None:
        """Split a cluster of whose clients a `cohort` trained, if its rewards are known."""
        members = self.state.communities.members
        mine = sorted(client for client, place in members.items() if place == row)
        tests = self.state.tests.get(row, 0)
        wanted = max(1, round(len(mine) / cohort)) * 2**tests
        if len(mine) < self.fewest or self.state.calm[row] < wanted:
            return
        self.state.calm[row], self.state.tests[row] = 0, tests + 1
        rewards, met = self.state.interactions.among(mine)
        known = np.flatnonzero(met.mean(axis=1) * len(mine) >= ENOUGH * (len(mine) - 1))
        seed = torch_seed(self.context.seed, purpose="split", round=server_round, client=row)
        labels = spectral_parts(
            affinity(rewards[np.ix_(known, known)], met[np.ix_(known, known)], beta=self.beta),
            most=self.most_parts,
            below=self.split_below,
            seed=seed,
        )
        if labels.any():
            self._part(row, mine, known, labels)

    def _part(self, row: int, mine: list[int], known: Labels, labels: Labels) -> None:
        """Give each part (m,) of the known clients of a cluster a copy of its model."""
        now = self.state.communities
        first = len(now.models)
        models = np.repeat(now.models[row][None, :], labels.max(), axis=0)
        placed = {
            mine[place]: row if label == 0 else first + label - 1
            for place, label in zip(known.tolist(), labels.tolist(), strict=True)
        }
        others = {client: place for client, place in now.members.items() if client not in mine}
        members = dict(sorted({**others, **placed}.items()))
        self.state.communities = Communities(np.concatenate([now.models, models]), members)
        self.state.interactions.forget(mine)
        self.state.tests[row] = 0
        sizes = np.bincount(labels).tolist()
        self.events.append(Event("clustered", f"cluster {row} into parts of sizes {sizes}", mine))

    def outcome(self, server_round: int) -> Outcome:
        """Add the change of each cluster's rewards; the phase is `federated` until a split."""
        notes: Mapping[str, object] = {
            "change": {str(row): change for row, change in self.change.items()}
        }
        phase = CLUSTERED if len(self.state.communities.models) > 1 else FEDERATED
        return replace(super().outcome(server_round), phase=phase, notes=notes)

    def view(self, server_round: int) -> View | None:
        """Return the clusters, None before the first round."""
        members = self.state.communities.members
        if not members:
            return None
        ids = sorted(members)
        return View(np.array(ids), np.array([members[client] for client in ids]), None)
