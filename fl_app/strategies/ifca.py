"""IFCA: several models; every client trains the one with the least loss on its data.

Ghosh et al., NeurIPS 2020, "An efficient framework for clustered federated learning",
algorithm 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from fl_app.aggregation import Weighting
from fl_app.records.history import FELL_BACK
from fl_app.rng import generator
from fl_app.strategies.alternating import Alternating, AlternatingState
from fl_app.strategies.cohort import Aggregated, FitFailures, FitReplies, Rows
from fl_app.strategies.encoding import encode
from fl_app.strategies.from_sums import FromSums
from fl_app.strategies.graph_settings import NO_SUSPECTS
from fl_app.strategies.outcome import CLUSTERED, Event, Outcome
from fl_app.strategies.replies import Replies
from fl_app.strategies.server_context import RULES, RuleName, ServerContext
from fl_app.strategies.state import Communities
from fl_app.types import Fallback, NonNegativeInt, Participation, PositiveInt, Vectors
from fl_app.used_with import UsedWith, When

AVERAGES = When("average", ("models",), otherwise=When("fallback", (True,)))
"""A step by gradients has neither rule nor weights; the common model of a fallback has both."""


@dataclass
class Trial:
    """The result of training from one set of initial models."""

    loss: float
    """The lower median of the training losses in the last round of the trial."""
    models: Vectors
    """The models after that round (k, d)."""
    choices: dict[int, int]
    """The model that each client chose when it last trained."""


@dataclass(kw_only=True)
class IfcaState(AlternatingState):
    """The state of IFCA in a checkpoint."""

    choices: dict[int, int] = field(default_factory=dict)
    """The model that each client chose when it last trained."""
    tried: list[Trial] = field(default_factory=list)
    """The completed trials, empty after the last one."""
    searched: int = 0
    """In how many rounds initial models on trial were trained; skipped rounds do not count."""


class Ifca(Alternating, FromSums):
    """`communities` models; a sampled client receives all and trains the one with least loss.

    `average=models`: a model becomes the mean of the models trained from it, weighted by
    `weighting` (option II of the paper), or with `rule=median` their median. `average=gradients`:
    a model moves by the sum of its clients' updates divided by the number of all replies
    (option I; a single gradient step is the case of one epoch with one batch). A model that no
    client chose in a round does not change. With `unchosen=restart`, a model that is no client's
    last choice starts anew from the model of one client; the paper does not define this case.
    Otherwise all clients can come to choose the same model, by chance or because of two liars, and
    IFCA is then FedAvg. With `restarts`, the first (restarts + 1) * trial_rounds rounds try
    restarts + 1 sets of initial models one after another; training continues from the set with
    the least training loss in its last trial round. A skipped round does not count, and a set for
    which no rounds are left is not tried. With `fallback`, the models are judged after this
    search: see `fl_app.strategies.alternating`.
    """

    state: IfcaState
    graph_use = NO_SUSPECTS
    used_with: ClassVar[UsedWith] = {
        "trial_rounds": When("restarts", unless=(0,)),
        "rule": AVERAGES,
        "weighting": (AVERAGES, When("rule", ("mean",))),
    }
    compares = True
    judged_whole = False
    recalls = True
    sums_suffice: ClassVar[Mapping[str, Sequence[Any]]] = {
        "average": ("models",),
        "rule": ("mean",),
        "weighting": ("samples", "uniform"),
        "unchosen": ("keep",),
        "restarts": (0,),
    }

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: Participation,
        communities: PositiveInt,
        average: Literal["models", "gradients"],
        restarts: NonNegativeInt,
        trial_rounds: PositiveInt,
        unchosen: Literal["restart", "keep"],
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
        self.count = communities
        self.by_gradients = average == "gradients"
        self.restarts, self.trial_rounds = restarts, trial_rounds
        self.search = (restarts + 1) * trial_rounds if restarts else 0
        self.restarts_unchosen = unchosen == "restart"
        self.state = IfcaState(communities=Communities(self._first_models(0)))

    def _first_models(self, trial: int) -> Vectors:
        fresh, initial = self.context.fresh, self.context.initial
        numbers = range(trial * self.count, (trial + 1) * self.count)
        if fresh is None:
            raise ValueError("ServerContext.fresh must be given for IFCA, got None; give one")
        return np.stack([initial if number == 0 else fresh(number) for number in numbers])

    def attribute(self, client_ids: Sequence[int]) -> tuple[Vectors, list[Rows]]:
        """Return all models for every client."""
        models = self.state.communities.models
        return models, [tuple(range(len(models)))] * len(client_ids)

    def to_train(self, client_ids: Sequence[int]) -> tuple[Vectors, list[Rows]]:
        """Return all models for every client; initial ones if a trial begins."""
        return self._starts(), self.attribute(client_ids)[1]

    def _starts(self) -> Vectors:
        """Return the models (k, d) from which clients train in this round.

        Those of the last trial stay in the state until the first round of the next one succeeds,
        so that a run cannot end with models that nobody has trained.
        """
        trial, done = divmod(self.state.searched, self.trial_rounds)
        begins = self.searching and not done
        return self._first_models(trial) if begins else self.state.communities.models

    @property
    def searching(self) -> bool:
        """Whether sets of initial models are on trial."""
        return self.state.searched < self.search

    def aggregate_fit(
        self, server_round: int, results: FitReplies, failures: FitFailures
    ) -> Aggregated:
        """Average the replies of each model; after a trial, restart or select the best trial."""
        every = self.receive(server_round, results, failures)
        if self.trains_common:
            return self.train_common(server_round, every)
        replies = self.compare(every)
        self._begin_trial()
        chosen = dict(zip(replies.client_ids.tolist(), replies.starts.tolist(), strict=True))
        self.state.choices |= chosen
        self.chose(chosen)  # so that an older choice of an evaluation is not their last one
        if self.by_gradients:
            self._step(replies)
        else:
            self.aggregator.update(self.state.communities.models, replies)
        if self.restarts_unchosen and len(replies.starts):
            self._restart_unchosen(server_round, replies)
        self._end_trial(server_round, replies)
        self.judge(server_round)
        return encode(self.state.communities.models[0]), {"train_loss": every.loss}

    def _step(self, replies: Replies) -> None:
        models = self.state.communities.models
        for row in np.unique(replies.starts):
            updates = replies.models[replies.starts == row] - models[row]
            models[row] += updates.sum(axis=0) / len(replies.starts)

    def _restart_unchosen(self, server_round: int, replies: Replies) -> None:
        """Restart each model that is no client's last choice from the model of one client.

        The client is drawn from those of the model with most replies. Its model fits its group
        better than their mean does, so that the group chooses it in the next round.
        """
        crowd = np.flatnonzero(replies.starts == np.bincount(replies.starts).argmax())
        models = self.state.communities.models
        for row in sorted({*range(len(models))} - {*self.state.choices.values()}):
            draw = generator(self.context.seed, round=server_round, client=row, purpose="unchosen")
            taken = draw.choice(crowd)
            models[row] = replies.models[taken]
            self.replaced(row)
            detail = f"model {row} from client {replies.client_ids[taken]}, as nobody chose it"
            self.events.append(Event("restarted", detail))

    @property
    def wants_loss(self) -> bool:
        """Whether initial models may be on trial, which are compared by the loss."""
        return self.restarts > 0 and not self.state.judged

    def chosen(self, client_id: int) -> int | None:
        """Return the model that a client chose when it last trained."""
        return self.state.choices.get(client_id)

    def _begin_trial(self) -> None:
        starts = self._starts()
        if starts is not self.state.communities.models:
            self._set(starts, {})

    def _set(self, models: Vectors, choices: dict[int, int]) -> None:
        self.state.communities, self.state.choices = Communities(models), choices
        self.state.evaluated = {}  # its rows are those of the models before

    def _end_trial(self, server_round: int, replies: Replies) -> None:
        """Count a round of a trial; select the best one once no further one can be completed."""
        state = self.state
        if not self.searching:
            return
        state.searched += 1
        done = state.searched % self.trial_rounds
        if not done:
            models, choices = state.communities.models.copy(), dict(state.choices)
            state.tried.append(Trial(replies.usual_loss, models, choices))
        needed, left = self.trial_rounds - done, self.context.rounds - server_round
        if state.tried and (not self.searching or needed > left):
            self._select()

    def _select(self) -> None:
        """Continue from the trial with the least loss."""
        losses = [each.loss for each in self.state.tried]
        best = int(np.argmin(losses))
        chosen = self.state.tried[best]
        self._set(chosen.models, chosen.choices)
        self.state.tried, self.state.searched = [], self.search
        self.events.append(Event("restarted", f"initial models {best}; training losses {losses}"))

    def outcome(self, server_round: int) -> Outcome:
        """Set the last choices, and the phase: there are several models from the start."""
        choices = dict(self.users())
        return replace(super().outcome(server_round), phase=CLUSTERED, choices=choices)

    def ready(self, server_round: int) -> bool:
        """Whether a trial may begin: the initial models are found, and clients use several."""
        return not self.searching and super().ready(server_round)

    def judge(self, server_round: int) -> None:
        """Judge the models; if the common one replaces some, clients choose from what there is."""
        super().judge(server_round)
        if any(event.kind == FELL_BACK for event in self.events):
            now = self.state.communities
            self.state.choices, now.members = now.members, {}

    def choices(self) -> Mapping[int, int]:
        """Return the model that each client chose when it last trained."""
        return self.state.choices
