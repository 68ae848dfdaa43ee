"""The kinds of differential privacy for clients.

The kind of privacy is a setting of the run that server and clients know. Clients apply it, and
the server computes the spent budget of each client from it. The operations are in
fl_app.client.local_dp, and DP-SGD is in fl_app.client.private_training.

Both kinds hide every entry of the model that a client changes: see fl_app.client.private_entries.
A loss on training data leaves a client only if the method needs it, clipped and with noise, and is
part of the budget: see fl_app.client.private_losses. Neither kind hides the number of samples, nor
loss, accuracy and metrics on test data.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Annotated, Any, ClassVar

from pydantic import Field, PositiveFloat
from torch import nn

from fl_app.client import accountant, local_dp
from fl_app.client.accountant import Release
from fl_app.client.draws import Draws
from fl_app.client.learner import learner_of
from fl_app.client.normalisation import local_names
from fl_app.client.privacy_base import Budgeted, Privacy, Shape
from fl_app.client.private_entries import PrivateEntries, learnt_entries
from fl_app.client.training import Settings
from fl_app.client.training_plan import TrainingPlan
from fl_app.params import FlatModule
from fl_app.types import Vector
from fl_app.used_with import UsedWith, When

__all__ = ["BOUND", "FITTING", "Budgeted", "LocalDp", "NoPrivacy", "Privacy", "SampleDp"]

Quantile = Annotated[float, Field(gt=0, lt=1)]
BOUND, FITTING = "clip_bound", "fitting"
"""Names in the messages: the clip bound of the round, and whether an update was within it."""


@dataclass(frozen=True, kw_only=True)
class NoPrivacy(Privacy):
    """Updates are sent unchanged."""


@dataclass(frozen=True, kw_only=True)
class LocalDp(Budgeted):
    """Local differential privacy of a client's whole update, also against the server.

    The client clips its update to `clip` and adds Gaussian noise with standard deviation
    `noise_multiplier * clip` to every entry before it sends the update, including running
    statistics of normalisation layers. Buffers that training does not change are sent as received.
    An observer of the messages, including the server, can distinguish the update from any other
    possible update only within (epsilon, delta). The sensitivity is twice the bound, the largest
    distance between two updates within the bound. Partial participation gives no additional
    privacy, because the server knows which clients participate; it only means fewer rounds.

    `quantile` adapts the bound so that this share of the updates is within it (Andrew et al.,
    NeurIPS 2021): a client also reports whether its update was within the bound, with noise of
    deviation `noise_multiplier`. The noise is proportional to the bound, so that a server that
    sends a wrong bound reduces accuracy, but not privacy.

    A malicious client that attacks sends its forged update without clipping and noise; other
    participants cannot detect this. In rounds in which it does not attack it is protected like an
    honest client.
    """

    kind = "local_dp"
    used_with: ClassVar[UsedWith] = {"rate": When("quantile", unless=(None,))}

    quantile: Quantile | None
    rate: PositiveFloat

    def check(
        self, module: nn.Module, settings: Settings, shape: Shape, *, tokens: bool, deployed: bool
    ) -> None:
        """Also raise ValueError for an unsuitable buffer, or a budget below one round's cost."""
        super().check(module, settings, shape, tokens=tokens, deployed=deployed)
        local = local_names(module, settings.batch_norm)
        self.entries(FlatModule(module, local=local), shape, tokens=tokens)
        if self.noise_multiplier is None:
            return
        once = [accountant.whole_update(self.noise_multiplier, adaptive=self.adaptive)]
        self.check_cost(accountant.spent(once, self.delta))

    def entries(self, flat: FlatModule, shape: Shape, *, tokens: bool) -> PrivateEntries:
        """Return the trainable parameters and the running statistics of normalisation layers."""
        return learnt_entries(flat.module, flat.layout, shape, tokens=tokens)

    def release(self, plan: TrainingPlan) -> Release:
        """Return the release of the update, and with `quantile` also of the report on its norm."""
        if self.noise_multiplier is not None:
            return accountant.whole_update(self.noise_multiplier, adaptive=self.adaptive)
        assert self.epsilon is not None
        noise = accountant.update_noise(
            self.epsilon, self.delta, rounds=self._rounds(plan), adaptive=self.adaptive
        )
        noise = noise / sqrt(1 - self.loss_share) if plan.losses else noise
        return accountant.whole_update(noise, adaptive=self.adaptive)

    @property
    def adaptive(self) -> bool:
        """Whether the bound adapts to the updates."""
        return self.quantile is not None

    def next_bound(self, bound: float, fitting: float) -> float:
        """Return the bound of the next round from the mean report of the clients."""
        if self.quantile is None:
            return self.clip
        return local_dp.next_bound(bound, fitting, quantile=self.quantile, rate=self.rate)

    def protect(
        self, update: Vector, plan: TrainingPlan, task: Mapping[str, Any], draws: Draws
    ) -> tuple[Vector, dict[str, float]]:
        """Return the update (e,) clipped and with noise, and the report on its norm."""
        noise = self.release(plan).noise_multiplier
        bound = float(task.get(BOUND, self.clip)) if self.adaptive else self.clip
        metrics = {}
        if self.adaptive:
            metrics[FITTING] = local_dp.within(
                update, bound=bound, deviation=noise, draw=draws.numpy("privacy fitting")
            )
        clipped = local_dp.clip(update, bound=bound)
        noisy = local_dp.add_noise(
            clipped, deviation=noise * bound, generator=draws.numpy("privacy noise")
        )
        return noisy, metrics


@dataclass(frozen=True, kw_only=True)
class SampleDp(Budgeted):
    """Differential privacy of each single sample of a client, against everyone who sees its models.

    The client trains by DP-SGD (Abadi et al., CCS 2016, algorithm 1) with Opacus: Poisson
    sampling of batches, each sample's gradient clipped to `clip`, and Gaussian noise with
    deviation `noise_multiplier * clip` on their sum. An observer of all models that the client
    sends, including the server, can detect whether a sample is in its data, or one without a
    gradient in its place, only within (epsilon, delta). The number of samples is known, and two
    values of a sample are as far apart as with half the noise. Properties of the client as a whole,
    such as its rotation or its label distribution, are not hidden: a server can still find out
    which clients belong together.
    A network whose layers mix samples, or that writes into a buffer in training, is rejected.

    A malicious client also trains by DP-SGD, on poisoned data if its attack poisons data; a
    forged update is sent unchanged.
    """

    kind = "sample_dp"
    of_samples = True

    def check(
        self, module: nn.Module, settings: Settings, shape: Shape, *, tokens: bool, deployed: bool
    ) -> None:
        """Also raise ValueError for a network or training without DP-SGD."""
        super().check(module, settings, shape, tokens=tokens, deployed=deployed)
        if not learner_of(module, settings.learner).sample_dp:
            raise ValueError(
                "privacy=sample_dp needs a network that is trained by SGD, got one with a learner "
                "of its own; remove the privacy or choose local_dp"
            )
        if self.epsilon is not None and self.epsilon < 1:  # more can be had at any delta
            least = accountant.least_sample_epsilon(self.delta)
            if self.epsilon <= least:
                raise ValueError(
                    f"privacy.epsilon must be above {least:.2g} with privacy.delta={self.delta:g}, "
                    f"since DP-SGD's accountant shows no less for any noise, got {self.epsilon:g}; "
                    "raise it"
                )
        from fl_app.client.private_network import check

        check(module, settings, shape, tokens=tokens)

    def release(self, plan: TrainingPlan) -> Release:
        """Return the noise, sampling rate and steps of one round of DP-SGD."""
        noise = self.noise_multiplier
        if noise is None:
            assert self.epsilon is not None
            steps = plan.steps * self._rounds(plan)
            given = self.epsilon, self.delta, plan.rate, steps
            if plan.losses:
                answers, each = self._answers(plan), self.loss_release(plan)
                noise = accountant.sample_noise_beside(*given, losses=each, answers=answers)
            else:
                noise = accountant.sample_noise(*given)
        return Release(noise_multiplier=noise, rate=plan.rate, steps=plan.steps)
