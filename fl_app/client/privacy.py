"""The kinds of differential privacy for clients.

The kind of privacy is a setting of the run that server and clients know. Clients apply it, and
the server computes the spent budget of each client from it. The operations are in
fl_app.client.local_dp, and DP-SGD is in fl_app.client.private_training.

Both kinds hide every entry of the model that a client changes: see fl_app.client.private_entries.
Neither hides the values that a client sends in addition to its model: its mean training loss, its
number of samples, its choice among several models, and its accuracy and metrics in an evaluation.
These values are sent in every run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat
from torch import nn

from fl_app.client import accountant, local_dp
from fl_app.client.accountant import Release
from fl_app.client.draws import Draws
from fl_app.client.learner import learner_of
from fl_app.client.normalisation import local_names
from fl_app.client.private_entries import PrivateEntries, learnt_entries, trainable_entries
from fl_app.client.training import Settings
from fl_app.params import FlatModule
from fl_app.types import Vector

Delta = Annotated[float, Field(gt=0, lt=1)]
Epsilon = Annotated[float, Field(gt=0, allow_inf_nan=True)]  # infinite: only clipping
Noise = Annotated[float, Field(ge=0, le=1e6)]
Quantile = Annotated[float, Field(gt=0, lt=1)]
Shape = tuple[int, ...]
BOUND, FITTING = "clip_bound", "fitting"
"""Names in the messages: the clip bound of the round, and whether an update was within it."""


@dataclass(frozen=True)
class TrainingPlan:
    """The plan of a run for one client: its `rounds`, the `participation`, and local training.

    `samples` is the number of the client's samples; `batch_size` and `epochs` are those of SGD.
    """

    rounds: int
    participation: float
    samples: int
    batch_size: int
    epochs: int

    @property
    def rounds_of_one(self) -> int:
        """Number of rounds for which a client's budget must suffice."""
        return accountant.rounds_of_one(self.rounds, self.participation)

    @property
    def rate(self) -> float:
        """Probability that a batch contains a given sample."""
        return min(1.0, self.batch_size / self.samples)

    @property
    def steps(self) -> int:
        """Number of batches in one round."""
        return self.epochs * max(1, round(1 / self.rate))


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """A kind of privacy; this base class protects nothing."""

    kind = "none"
    of_samples = False
    """Whether the training itself is private, sample by sample."""

    def check(self, module: nn.Module, settings: Settings, shape: Shape, *, deployed: bool) -> None:
        """Raise ValueError for settings that contradict each other or other settings.

        `module` is the network, which may be unusable afterwards; `shape` is that of one image;
        `deployed`: whether server and clients are different machines.
        """
        return

    def entries(self, flat: FlatModule, shape: Shape) -> PrivateEntries:
        """Return which entries of the model are hidden; the others are sent as received.

        `flat` is the network, which may be unusable afterwards; `shape` is that of one image.
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
class NoPrivacy(Privacy):
    """Updates are sent unchanged."""


@dataclass(frozen=True, kw_only=True)
class Budgeted(Privacy):
    """Common settings of both kinds of privacy.

    `randomness=seed` draws noise and batches from the run's seed, so that the run can be repeated.
    The server knows this seed and can remove the noise, so this is only for experiments. `system`
    uses the system's entropy, and runs differ.
    A `noise_multiplier` sets the noise; then the run stops at `epsilon`, unless it is null. Without
    it, `epsilon` and `delta` determine the noise: with `budget=run` they hold for all rounds of a
    client together; with `budget=round` they hold for each of its rounds. In this case the run
    costs more; its cost is reported, and it never stops early.
    """

    epsilon: Epsilon | None
    delta: Delta
    budget: Literal["run", "round"]
    noise_multiplier: Noise | None
    clip: PositiveFloat
    randomness: Literal["seed", "system"]

    def check(self, module: nn.Module, settings: Settings, shape: Shape, *, deployed: bool) -> None:
        """Raise ValueError for undefined noise, noise known to the server, or centroids."""
        if self.epsilon is None and self.noise_multiplier is None:
            raise ValueError(
                "privacy needs privacy.epsilon or privacy.noise_multiplier, got null for both; "
                "give privacy.epsilon=10"
            )
        if why := learner_of(module, settings.learner).no_privacy:
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

    def _rounds(self, plan: TrainingPlan) -> int:
        return plan.rounds_of_one if self.budget == "run" else 1


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

    quantile: Quantile | None
    rate: PositiveFloat

    def check(self, module: nn.Module, settings: Settings, shape: Shape, *, deployed: bool) -> None:
        """Also raise ValueError for an unsuitable buffer, or a budget below one round's cost."""
        super().check(module, settings, shape, deployed=deployed)
        local = local_names(module, settings.batch_norm)
        self.entries(FlatModule(module, local=local), shape)
        if self.noise_multiplier is None:
            return
        once = [accountant.whole_update(self.noise_multiplier, adaptive=self.adaptive)]
        cost = accountant.spent(once, self.delta)
        if cost > self.limit:
            raise ValueError(
                f"privacy.noise_multiplier={self.noise_multiplier:g} costs epsilon {cost:.3g} in "
                f"one round, but privacy.epsilon={self.limit:g} is less; use more noise, a larger "
                "epsilon, or epsilon=null"
            )

    def entries(self, flat: FlatModule, shape: Shape) -> PrivateEntries:
        """Return the trainable parameters and the running statistics of normalisation layers."""
        return learnt_entries(flat.module, flat.layout, shape)

    def release(self, plan: TrainingPlan) -> Release:
        """Return the release of the update, and with `quantile` also of the report on its norm."""
        if self.noise_multiplier is not None:
            return accountant.whole_update(self.noise_multiplier, adaptive=self.adaptive)
        assert self.epsilon is not None
        noise = accountant.update_noise(
            self.epsilon, self.delta, rounds=self._rounds(plan), adaptive=self.adaptive
        )
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

    def check(self, module: nn.Module, settings: Settings, shape: Shape, *, deployed: bool) -> None:
        """Also raise ValueError for a network or training without DP-SGD."""
        super().check(module, settings, shape, deployed=deployed)
        if not learner_of(module, settings.learner).sample_dp:
            raise ValueError(
                "privacy=sample_dp needs a network that is trained by SGD, got one with a learner "
                "of its own; remove the privacy or choose local_dp"
            )
        from fl_app.client.private_network import check

        check(module, settings, shape)

    def release(self, plan: TrainingPlan) -> Release:
        """Return the noise, sampling rate and steps of one round of DP-SGD."""
        noise = self.noise_multiplier
        if noise is None:
            assert self.epsilon is not None
            steps = plan.steps * self._rounds(plan)
            noise = accountant.sample_noise(self.epsilon, self.delta, plan.rate, steps)
        return Release(noise_multiplier=noise, rate=plan.rate, steps=plan.steps)
