"""What every kind of differential privacy for clients has: its budget, and how losses leave."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, sqrt
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat
from torch import nn

from fl_app.client import accountant
from fl_app.client.accountant import Release
from fl_app.client.draws import Draws
from fl_app.client.learner import learner_of
from fl_app.client.private_entries import PrivateEntries, trainable_entries
from fl_app.client.training import Settings
from fl_app.client.training_plan import TrainingPlan
from fl_app.learner_reports import HELD_OUT_PARTS
from fl_app.params import FlatModule
from fl_app.types import Randomness, Vector

Delta = Annotated[float, Field(gt=0, lt=1)]
Epsilon = Annotated[float, Field(gt=0, allow_inf_nan=True)]  # infinite: only clipping
Noise = Annotated[float, Field(ge=0, le=1e6)]
LossShare = Annotated[float, Field(gt=0, lt=1)]
Shape = tuple[int, ...]
USELESS = 0.5
"""Largest deviation of the noise on a loss, as a share of its bound, that leaves it of use."""


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """A kind of privacy; this base class protects nothing."""

    kind = "none"
    of_samples = False
    """Whether the training itself is private, sample by sample."""

    @property
    def adaptive(self) -> bool:
        """Whether the bound on updates, and with it the noise, changes from round to round."""
        return False

    def check(
        self, module: nn.Module, settings: Settings, shape: Shape, *, tokens: bool, deployed: bool
    ) -> None:
        """Raise ValueError for settings that contradict each other or other settings.

        `module` is the network, which may be unusable afterwards; `shape` is that of one input,
        of integers if they are `tokens`; `deployed`: whether server and clients are different
        machines.
        """
        return

    def entries(self, flat: FlatModule, shape: Shape, *, tokens: bool) -> PrivateEntries:
        """Return which entries of the model are hidden; the others are sent as received.

        `flat` is the network, which may be unusable afterwards; `shape` is that of one input, of
        integers if they are `tokens`.
        """
        return trainable_entries(flat.layout)

    def release(self, plan: TrainingPlan) -> Release | None:
        """Return the release of a client in one round, for the accountant; None: no privacy."""
        return None

    @property
    def limit(self) -> float:
        """The epsilon at which a client stops training."""
        return inf

    @property
    def keyed(self) -> bool:
        """Whether a client's draws come from the run's seed: see `Draws`."""
        return True

    def protect(
        self, update: Vector, plan: TrainingPlan, task: Mapping[str, Any], draws: Draws
    ) -> tuple[Vector, dict[str, float]]:
        """Return the update (e,) of the hidden entries to send, and the metrics sent with it."""
        return update, {}


@dataclass(frozen=True, kw_only=True)
class Budgeted(Privacy):
    """Common settings of both kinds of privacy.

    `randomness=seed` draws noise and batches from the run's seed, so that the run can be repeated.
    The server knows this seed and can remove the noise, so this is only for experiments. `system`
    uses the system's entropy, and runs differ.
    A `noise_multiplier` sets the noise; then the run stops at `epsilon`, unless it is null, and a
    noise that costs more than `epsilon` in one round is refused. Without it, `epsilon` and `delta`
    determine the noise: with `budget=run` they hold for all rounds of a client together; with
    `budget=round` they hold for each of its rounds. In this case the run costs more; its cost is
    reported, and it never stops early.
    With a method that asks for losses on training data in each round, `loss_share` of the budget is
    for these losses, each clipped to [0, `loss_bound`].
    """

    epsilon: Epsilon | None
    delta: Delta
    budget: Literal["run", "round"]
    noise_multiplier: Noise | None
    clip: PositiveFloat
    loss_share: LossShare
    loss_bound: PositiveFloat
    randomness: Randomness

    def check(
        self, module: nn.Module, settings: Settings, shape: Shape, *, tokens: bool, deployed: bool
    ) -> None:
        """Raise ValueError for undefined noise, noise known to the server, or centroids."""
        if self.epsilon is None and self.noise_multiplier is None:
            raise ValueError(
                "privacy needs privacy.epsilon or privacy.noise_multiplier, got null for both; "
                "give privacy.epsilon=10"
            )
        learner = learner_of(module, settings.learner)
        why = learner.no_privacy
        if why is None and learner.scores_training_data:
            why = "its clients are scored on their training data, without noise"
        if why:
            raise ValueError(
                f"privacy must be none with this network, got {self.kind}: {why}; remove it"
            )
        if deployed and self.keyed:
            raise ValueError(
                "privacy.randomness must be system with engine=deployment, got seed: the server "
                "knows the seed and could remove the noise; give privacy.randomness=system"
            )

    @property
    def limit(self) -> float:
        """The epsilon at which a client stops training."""
        return self.epsilon if self.epsilon is not None and self.budget == "run" else inf

    @property
    def keyed(self) -> bool:
        """Whether a client's draws come from the run's seed: see `Draws`."""
        return self.randomness == "seed"

    def round_cost(self, plan: TrainingPlan) -> float:
        """Return the epsilon that a client spends in its first round."""
        update = self.release(plan)
        once = [] if update is None else [update]
        return accountant.spent(once + [self.loss_release(plan)] * plan.losses, self.delta)

    def check_cost(self, cost: float, of_whom: str = "") -> None:
        """Raise ValueError if one round costs more epsilon than there is, whatever the budget."""
        if self.epsilon is None or cost <= self.epsilon:
            return
        raise ValueError(
            f"privacy.noise_multiplier={self.noise_multiplier:g} costs epsilon {cost:.3g} in one "
            f"round{of_whom}, but privacy.epsilon={self.epsilon:g} is less; use more noise, a "
            "larger epsilon, or epsilon=null"
        )

    def loss_release(self, plan: TrainingPlan) -> Release:
        """Return the release of one answer with losses, for the accountant."""
        epsilon, answers = self.epsilon, self._answers(plan)
        if self.noise_multiplier is not None:
            updates = [self.release(plan)] * self._rounds(plan)
            epsilon = accountant.spent([each for each in updates if each], self.delta)
        assert epsilon is not None
        share = self.loss_share
        noise = accountant.loss_noise(epsilon, self.delta, share=share, answers=answers)
        return Release(noise_multiplier=noise, losses=True)

    def loss_deviation(self, plan: TrainingPlan, models: int, samples: int) -> float:
        """Return the standard deviation of the noise on each of the losses of `models` models.

        `z sqrt(models) s`: one answer has a loss for each of them, on `samples` samples, and the
        data that privacy hides change each by at most s.
        """
        sensitivity = self.loss_bound / (samples if self.of_samples else 1)
        return self.loss_release(plan).noise_multiplier * sqrt(models) * sensitivity

    def part_deviation(self, plan: TrainingPlan, samples: int) -> float:
        """Return the deviation of the noise on the losses of two models on a held-out part.

        The part has `samples` samples. One sample is in one part alone, and changes two losses;
        other data of a client change those on all parts.
        """
        return self.loss_deviation(plan, 2 if self.of_samples else 2 * HELD_OUT_PARTS, samples)

    def trial_deviation(self, plan: TrainingPlan, samples: int) -> float:
        """Return the deviation of the noise on the mean over the parts of a model's losses.

        `samples` samples are held out, in HELD_OUT_PARTS parts of one size.
        """
        part = max(1, samples // HELD_OUT_PARTS)
        return self.part_deviation(plan, part) / sqrt(HELD_OUT_PARTS)

    def hides_losses(self, plan: TrainingPlan, models: int) -> bool:
        """Whether noise hides the differences of losses, so that an answer would be of no use.

        That is if its deviation exceeds USELESS of the bound.
        """
        return self.loss_deviation(plan, models, plan.samples) > USELESS * self.loss_bound

    def _rounds(self, plan: TrainingPlan) -> int:
        return plan.rounds_of_one if self.budget == "run" else 1

    def _answers(self, plan: TrainingPlan) -> int:
        """Return how many answers with losses are planned: one a round, and one as a newcomer."""
        return self._rounds(plan) + 1 if plan.losses and self.budget == "run" else 1
