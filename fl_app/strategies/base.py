"""The base class of all strategies: Flower's methods, delegated to single-purpose objects."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from flwr.common import EvaluateIns, Parameters, Scalar
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy

from fl_app.aggregation import Rule, Weighting, sample_weights
from fl_app.client.private_losses import TOLD
from fl_app.learner_reports import HELD_OUT, WRONG_ADDS, Report
from fl_app.strategies import abilities
from fl_app.strategies.cohort import Cohort, FitFailures, FitInstructions, FitReplies, Offer, Rows
from fl_app.strategies.community_aggregator import CommunityAggregator
from fl_app.strategies.encoding import encode
from fl_app.strategies.graph_settings import GraphUse
from fl_app.strategies.model_evaluation import EvaluateFailures, EvaluateReplies, ModelEvaluation
from fl_app.strategies.outcome import CLUSTERED, FEDERATED, Event, Outcome, View
from fl_app.strategies.rejections import Rejections
from fl_app.strategies.replies import Replies, TooFewRepliesError
from fl_app.strategies.roster import roster
from fl_app.strategies.sampling import CohortSampler, draw_at_most
from fl_app.strategies.server_context import ServerContext
from fl_app.strategies.state import NORMS, Communities, MethodState
from fl_app.strategies.trial import LOSSES
from fl_app.types import Fallback, Vectors


class CommunityStrategy(Strategy, ABC):
    """A Flower Strategy over communities of clients, each with its own model.

    A method stores everything that must survive a crash in `state`, and appends the events of a
    round to `events`. What only some methods have is in `abilities`, and for secure sums in
    `FromSums`. `name` is its name in a summary; None: the name of the class.

    A method of conf states its settings there. One of a user's that passes no `weighting` weighs
    clients by their samples without a cap, as McMahan et al. (FedAvg) do, and one that passes no
    `fallback` leaves its communities as it found them.
    """

    name: str | None = None
    model_kind: ClassVar[str] = "network"
    """What the entries of a model are; the client's learner must have the same."""
    screens_direction = False
    """Whether only the layout's direction is screened; see `Cohort`."""
    clusters_points = False
    """Whether the method clusters data points instead of clients; figures then show points."""
    trains_clients = True
    """Whether clients train at all, so that an attack can have an effect."""
    needs_masks: ClassVar[bool] = False
    """Whether the method learns from secure sums alone, and not from replies."""
    shared: ClassVar[Mapping[str, Any]] = {"weighting": Weighting}
    """Settings of every method by name, set as attributes unless the constructor has them."""
    graph_use: ClassVar[GraphUse | None] = None
    """Which settings of the graph have an effect; None: unknown."""
    clips_updates = True
    """Whether `engine.clip_update` applies; False if a far model is a community by itself."""
    asks: Mapping[str, Report] = MappingProxyType({})
    """What clients tell beside their models, by name; a constructor may set it too."""
    simulation_only = False
    """Whether the server needs data that only a simulation has."""
    reads_scores: ClassVar[bool] = False
    """Whether the method itself uses the clients' scores. Else they may come with the replies of
    the next round, before these are aggregated, and `aggregate_evaluate` is then not called."""
    compares: ClassVar[bool] = True
    """Whether clients that train may receive several models, and choose by their losses. With a
    privacy the choice then has a share of the budget; if False, they get what they chose before."""
    judged_freely: ClassVar[bool] = True
    """Whether the trial of a split costs no round and tells the server nothing that it must not
    know. Then `fallback=auto` judges."""
    counts_wrong: ClassVar[bool] = False
    """Whether wrong answers add to the losses that clients compare in the trial of a split."""

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: float,
        rule: Rule,
        weighting: Weighting = "samples",
        fallback: Fallback = "auto",
    ) -> None:
        self.context = context
        free = self.judged_freely and not context.private
        self.judges = fallback is True or (fallback == "auto" and free)
        self.weighting: Weighting = weighting
        self.state = MethodState(communities=Communities.of(context.initial))
        self.events: list[Event] = []
        self.rejections = Rejections()
        self.sampler = CohortSampler(context.seed, participation)
        self.cohort = Cohort(
            context.layout,
            self.rejections,
            largest_update=context.largest_update,
            clip_update=context.clip_update,
            clips=self.clips_updates,
            screens_direction=self.screens_direction,
            least_loss=context.least_loss,
        )
        self.aggregator = CommunityAggregator(rule, context.layout)
        self.evaluation = ModelEvaluation(
            self.rejections,
            metrics=context.metrics,
            has_accuracy=context.has_accuracy,
            private=context.private,
            least_loss=context.least_loss,
            chose=self.chose,
        )
        self._viewed: tuple[int, View | None] | None = None

    @abstractmethod
    def view(self, server_round: int) -> View | None:
        """Return the communities after `server_round`, None if there are none to show."""

    def attribute(self, client_ids: Sequence[int]) -> tuple[Vectors, list[Rows]]:
        """Return models (m, d), and the rows that each client receives."""
        now = self.state.communities
        return now.models, [now.rows_for(client) for client in client_ids]

    def chose(self, rows: Mapping[int, int]) -> None:
        """Store the row of the model that clients chose in an evaluation, or as newcomers."""
        self.state.evaluated |= rows

    def replaced(self, row: int) -> None:
        """Forget who chose the model of a row in an evaluation, since another one replaces it."""
        chosen = self.state.evaluated
        self.state.evaluated = {client: each for client, each in chosen.items() if each != row}

    def outcome(self, server_round: int) -> Outcome:
        """Return the outcome of a round; a method adds its own values.

        Round 0, before the first round, has no view.
        """
        if self._viewed is None or self._viewed[0] != server_round:
            self._viewed = server_round, self.view(server_round) if server_round else None
        state = self.state
        return Outcome(
            models=state.communities.models,
            members=state.communities.members,
            global_model=state.global_model,
            removed=state.removed,
            phase=CLUSTERED if state.communities.members else FEDERATED,
            view=self._viewed[1],
            events=self.events,
            cohort=self.cohort.client_ids,
            rejected=self.rejections.by_client,
            dominance=self.aggregator.dominance,
            odd_updates=self.cohort.odd_updates,
            metrics=self.cohort.metrics,
            training_s=self.cohort.training_s,
            scores=self.evaluation.scores,
            step=self.aggregator.step,
            notes=self.aggregator.notes,
        )

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters:
        """Return the server's initial model, so that all engines start from the same model."""
        return encode(self.context.initial)

    def evaluate(
        self, server_round: int, parameters: Parameters
    ) -> tuple[float, dict[str, Scalar]] | None:
        """Return None, since the server has no data."""
        return None

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> FitInstructions:
        """Sample from all clients; each receives the models of `attribute`."""
        present = list(roster(client_manager).proxies())
        cohort = self.sampler.draw(server_round, present, "all")
        return self.instruct(server_round, cohort, client_manager)

    def instruct(
        self,
        server_round: int,
        cohort: Sequence[int],
        client_manager: ClientManager,
        task: Mapping[str, Scalar] | None = None,
    ) -> FitInstructions:
        """Begin a round: send each client of the cohort its model, or several to choose from.

        `task` has further settings for the clients by name.
        """
        self.events, self._viewed = [], None
        self.rejections.begin(server_round)
        self.aggregator.begin()
        self.evaluation.begin()
        models, rows, compared = self.offer(server_round, cohort)
        private: dict[str, Scalar] = {}
        if self.context.private:
            private[TOLD] = self.cohort.tells_loss = abilities.wants_loss(self)
            if not self.compares:
                last = abilities.decided(self, cohort, rows, self.state.evaluated)
                rows = [row or every[:1] for row, every in zip(last, rows, strict=True)]
        offers = list(zip(cohort, rows, strict=True))
        config = {"round": server_round, **private, **(task or {})}
        sizes = self.context.classes, self.context.inputs
        sized = {name: each.sized(*sizes) for name, each in self.asks.items()}
        held_out = {} if compared is None else {HELD_OUT: LOSSES}
        if compared is not None and self.counts_wrong:
            config[WRONG_ADDS] = True
        names = abilities.asked_of(self, cohort, self.asks)
        reports = [{name: sized[name] for name in each} | held_out for each in names]
        return self.cohort.ask(models, offers, roster(client_manager), config, reports, compared)

    def offer(self, server_round: int, client_ids: Sequence[int]) -> Offer:
        """Return models (m, d), and the rows that each client receives for training.

        Last the rows (n,) of the models that they compare with theirs on samples that they hold
        out; None: they compare nothing. Their losses come back as the report HELD_OUT.
        """
        return *self.attribute(client_ids), None

    def receive(self, server_round: int, results: FitReplies, failures: FitFailures) -> Replies:
        """Return the valid replies; record the others as rejected.

        Raises TooFewRepliesError before the state changes.
        """
        self.cohort.former = self.state.norms
        answers, models = self.cohort.receive(results, failures)
        if not self.cohort.asked:
            raise TooFewRepliesError(
                f"round {server_round} must have a client that can train, got none: all that "
                "belong to a community are absent"
            )
        if len(answers) < self.context.min_success:
            raise TooFewRepliesError(
                f"round {server_round} must have at least engine.min_success="
                f"{self.context.min_success} valid replies, got {len(answers)} of "
                f"{len(self.cohort.asked)}; rejected: {self.rejections}"
            )
        self.state.norms = [*self.state.norms, *self.cohort.norms][-NORMS:]
        samples = np.array([answer.samples for answer in answers], float)
        weights = sample_weights(samples, how=self.weighting, cap=self.context.sample_cap)
        return Replies.of(answers, models, weights)

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """Send every client its model, or several to choose from, and the global model.

        The loop decides after which rounds clients evaluate. With a privacy, a client with a choice
        scores what it chose before, or nothing.
        """
        known, context = roster(client_manager), self.context
        client_ids = self.to_evaluate(server_round, list(known.proxies()))
        models, rows = self.attribute(client_ids)
        choosing = {c for c, each in zip(client_ids, rows, strict=True) if len(each) > 1}
        if context.private:
            rows = abilities.decided(self, client_ids, rows, self.state.evaluated)
        offers = list(zip(client_ids, rows, strict=True))
        return self.evaluation.ask(
            server_round, models, offers, known, self.state.global_model, choosing=choosing
        )

    def to_evaluate(self, server_round: int, client_ids: Sequence[int]) -> list[int]:
        """Return which clients evaluate, at most `records.evaluate_at_most`."""
        context = self.context
        return draw_at_most(
            context.evaluate_at_most, client_ids, seed=context.seed, server_round=server_round
        )

    def aggregate_evaluate(
        self, server_round: int, results: EvaluateReplies, failures: EvaluateFailures
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Store each client's accuracy; of several models, that with its least training loss."""
        self.evaluation.receive(results, failures)
        return None, self.evaluation.scores.metrics
