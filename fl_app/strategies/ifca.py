"""IFCA: several models, and every client takes the one that suits its own data best.

Ghosh et al., NeurIPS 2020, "An efficient framework for clustered federated learning",
algorithm 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from flwr.common import Parameters, Scalar

from fl_app.aggregation import Weighting
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.cohort import FitFailures, FitReplies, Rows
from fl_app.strategies.encoding import encode
from fl_app.strategies.outcome import CLUSTERED, Event, Outcome, View
from fl_app.strategies.replies import Replies
from fl_app.strategies.server_context import RULES, RuleName, ServerContext
from fl_app.strategies.state import Communities, MethodState
from fl_app.types import NonNegativeInt, Participation, PositiveInt, Vectors


@dataclass
class Trial:
    """What training from one set of first models came to."""

    loss: float
    """The usual training loss in the last round of the trial."""
    models: Vectors
    """The models after that round (k, d)."""
    choices: dict[int, int]
    """The model that each client chose when it last trained."""


@dataclass(kw_only=True)
class IfcaState(MethodState):
    """What IFCA must keep."""

    choices: dict[int, int] = field(default_factory=dict)
    """The model that each client chose when it last trained."""
    tried: list[Trial] = field(default_factory=list)
    """The trials that are over, while more are to come."""


class Ifca(CommunityStrategy):
    """`communities` models; a sampled client receives all, trains the best and says which.

    `average=models`: a model becomes the mean of those trained from it, by samples (the
    paper's option II), or with `rule=median` their median. `average=gradients`: it moves by
    the sum of its clients' updates over the number of all clients that replied (option I, of
    which one gradient step is the case E = 1 with one batch). A model that nobody chose stays
    as it is. With `restarts` the first (restarts + 1) * trial_rounds rounds try that many sets
    of first models one after another, and training goes on from the set with the least
    training loss in its last trial round.
    """

    state: IfcaState

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: Participation,
        communities: PositiveInt,
        average: Literal["models", "gradients"],
        restarts: NonNegativeInt,
        trial_rounds: PositiveInt,
        rule: RuleName,
        weighting: Weighting,
    ) -> None:
        super().__init__(
            context, participation=participation, rule=RULES[rule], weighting=weighting
        )
        self.count = communities
        self.by_gradients = average == "gradients"
        self.restarts, self.trial_rounds = restarts, trial_rounds
        self.state = IfcaState(communities=Communities(self._first_models(0)))

    def _first_models(self, trial: int) -> Vectors:
        fresh, initial = self.context.fresh, self.context.initial
        numbers = range(trial * self.count, (trial + 1) * self.count)
        if fresh is None:
            raise ValueError("IFCA needs ServerContext.fresh to draw its first models; give one")
        return np.stack([initial if number == 0 else fresh(number) for number in numbers])

    def attribute(self, client_ids: Sequence[int]) -> tuple[Vectors, list[Rows]]:
        """Return all models for every client."""
        return self.state.communities.models, [tuple(range(self.count))] * len(client_ids)

    def aggregate_fit(
        self,
        server_round: int,
        results: FitReplies,
        failures: FitFailures,
    ) -> tuple[Parameters, dict[str, Scalar]]:
        """Average what was trained from each model; after a trial, start anew or take the best."""
        replies = self.receive(server_round, results, failures)
        chosen = zip(replies.client_ids.tolist(), replies.starts.tolist(), strict=True)
        self.state.choices.update(chosen)
        if self.by_gradients:
            self._step(replies)
        else:
            self.aggregator.update(self.state.communities.models, replies)
        self._end_trial(server_round, replies.usual_loss)
        return encode(self.state.communities.models[0]), {"train_loss": replies.loss}

    def _step(self, replies: Replies) -> None:
        models = self.state.communities.models
        for row in np.unique(replies.starts):
            updates = replies.models[replies.starts == row] - models[row]
            models[row] += updates.sum(axis=0) / len(replies.starts)

    def _end_trial(self, server_round: int, loss: float) -> None:
        trial, left = divmod(server_round, self.trial_rounds)
        if not self.restarts or left or trial > self.restarts + 1:
            return
        models, choices = self.state.communities.models.copy(), dict(self.state.choices)
        self.state.tried.append(Trial(loss, models, choices))
        if trial <= self.restarts:
            self.state.communities, self.state.choices = Communities(self._first_models(trial)), {}
            return
        losses = [each.loss for each in self.state.tried]
        best = int(np.argmin(losses))
        kept = self.state.tried[best]
        self.state.communities, self.state.choices = Communities(kept.models), kept.choices
        self.state.tried = []
        self.events.append(Event("restarted", f"first models {best} of losses {losses}"))

    def outcome(self, server_round: int) -> Outcome:
        """Call the phase `clustered`: there are several models from the start."""
        return replace(super().outcome(server_round), phase=CLUSTERED)

    def view(self, server_round: int) -> View | None:
        """Return the models that the clients chose when they last trained."""
        if not self.state.choices:
            return None
        ids = sorted(self.state.choices)
        return View(np.array(ids), np.array([self.state.choices[client] for client in ids]), None)
