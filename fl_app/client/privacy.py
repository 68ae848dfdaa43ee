"""Which privacy a run gives its clients, against whom, and what they do for it.

A privacy is a setting of the run that server and clients both know: clients apply it, and the
server reckons from it what each has spent. The functions that it applies are those of
fl_app.client.local_dp, and DP-SGD is that of fl_app.client.private_training.

Both kinds hide every entry of the model that leaves: fl_app.client.private_entries. Neither
covers what a client says beside its model: its mean training loss, its number of samples, which
of several models it chose, and its accuracy when it is measured. A deployment that needs those
private too must not read them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat
from torch import nn

from fl_app.client import accountant, local_dp
from fl_app.client.accountant import Release
from fl_app.client.centroid_model import CentroidModel
from fl_app.client.draws import Draws
from fl_app.client.private_entries import PrivateEntries, learnt_entries, trainable_entries
from fl_app.client.training import Settings
from fl_app.params import FlatModule
from fl_app.types import Vector

Delta = Annotated[float, Field(gt=0, lt=1)]
Epsilon = Annotated[float, Field(gt=0, allow_inf_nan=True)]  # infinite: clip alone
Noise = Annotated[float, Field(ge=0, le=1e6)]
Quantile = Annotated[float, Field(gt=0, lt=1)]
Shape = tuple[int, ...]
BOUND, FITTING = "clip_bound", "fitting"
"""Names in the messages: the bound that holds this round, and whether an update was within it."""


@dataclass(frozen=True)
class TrainingPlan:
    """How a run goes: its `rounds`, the share of clients in each, and one client's training.

    `samples` of the client, and the `batch_size` and `epochs` it trains them in.
    """

    rounds: int
    participation: float
    samples: int
    batch_size: int
    epochs: int

    @property
    def rounds_of_one(self) -> int:
        """Rounds that a client's budget must last for."""
        return accountant.rounds_of_one(self.rounds, self.participation)

    @property
    def rate(self) -> float:
        """Chance of a sample to be in a batch."""
        return min(1.0, self.batch_size / self.samples)

    @property
    def steps(self) -> int:
        """Batches of one round."""
        return self.epochs * max(1, round(1 / self.rate))


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """What a client does for its privacy; this one does nothing."""

    kind = "none"
    of_samples = False
    """Whether the training itself is private, sample by sample."""

    def check(self, module: nn.Module, settings: Settings, shape: Shape, *, deployed: bool) -> None:
        """Raise ValueError for settings that do not go with each other or with the rest.

        `module` is the network, which may be unfit for use afterwards, `shape` that of one image,
        `deployed` whether server and clients are different machines.
        """
        return

    def entries(self, flat: FlatModule, shape: Shape) -> PrivateEntries:
        """Return which entries of the model are hidden; the others are sent as received.

        `flat` is the network, which may be unfit for use afterwards, `shape` that of one image.
        """
        return trainable_entries(flat.layout)

    def release(self, plan: TrainingPlan) -> Release | None:
        """Return what leaves a client in one round, for the accountant; None: no privacy."""
        return None

    @property
    def limit(self) -> float:
        """The epsilon at which a client takes part no more."""
        return inf

    @property
    def keyed(self) -> bool:
        """Whether a client's draws come from the run's seed: see `Draws`."""
        return True

    def protect(
        self, update: Vector, plan: TrainingPlan, task: Mapping[str, Any], draws: Draws
    ) -> tuple[Vector, dict[str, float]]:
        """Return the update (e,) of the hidden entries that is sent, and the metrics beside it."""
        return update, {}


@dataclass(frozen=True, kw_only=True)
class NoPrivacy(Privacy):
    """Updates leave the client as they are."""


@dataclass(frozen=True, kw_only=True)
class Budgeted(Privacy):
    """Settings that both kinds of privacy share.

    `randomness=seed` draws noise and batches from the run's seed, so that it can be repeated:
    the server knows that seed and can take the noise away, so this is for experiments alone.
    `system` takes the system's entropy, and no two runs are alike.
    With a `noise_multiplier` the noise is given, and `epsilon`, where it is not null, is where
    the run stops. Without one, `epsilon` and `delta` decide the noise: with `budget=run` so that
    they hold for all rounds of a client together, with `budget=round` for each of its rounds,
    and then the whole run costs more, is reported, and is never stopped.
    """

    epsilon: Epsilon | None
    delta: Delta
    budget: Literal["run", "round"]
    noise_multiplier: Noise | None
    clip: PositiveFloat
    randomness: Literal["seed", "system"]

    def check(self, module: nn.Module, settings: Settings, shape: Shape, *, deployed: bool) -> None:
        """Raise ValueError for noise that nothing decides, anyone can know or fits nothing."""
        if self.epsilon is None and self.noise_multiplier is None:
            raise ValueError(
                "privacy needs privacy.epsilon or privacy.noise_multiplier, got null for both; "
                "give epsilon=10, or the noise and see what it costs"
            )
        if isinstance(module, CentroidModel):
            raise ValueError(
                f"privacy must be none with network=centroids, got {self.kind}: centroids and "
                "counts of points are no update that a clip bound fits; remove it"
            )
        if deployed and self.keyed:
            raise ValueError(
                "privacy.randomness must be system with engine=deployment, got seed: the server "
                "knows the seed and could take the noise away; give privacy.randomness=system"
            )

    @property
    def limit(self) -> float:
        """The epsilon at which a client takes part no more."""
        return self.epsilon if self.epsilon is not None and self.budget == "run" else inf

    @property
    def keyed(self) -> bool:
        """Whether a client's draws come from the run's seed: see `Draws`."""
        return self.randomness == "seed"

    def _rounds(self, plan: TrainingPlan) -> int:
        return plan.rounds_of_one if self.budget == "run" else 1


@dataclass(frozen=True, kw_only=True)
class LocalDp(Budgeted):
    """Local differential privacy of a client's whole update, against the server and all behind it.

    The client clips its update to `clip` and adds Gaussian noise of the standard deviation
    `noise_multiplier * clip` to every entry before it leaves, running statistics of normalisation
    layers included; buffers that training does not change go back as they came. Whoever sees the
    messages, the server included, can tell the update from any other that the client might have
    sent only as far as (epsilon, delta) allows. Two updates within the bound lie up to twice the
    bound apart, and that is the sensitivity reckoned with. That not all clients take part in a
    round gives no extra privacy here, since the server knows who does; it only means fewer rounds.

    `quantile` adapts the bound from round to round, so that this share of the updates is within
    it (Andrew et al., NeurIPS 2021): a client also says, under noise of the deviation
    `noise_multiplier`, whether its update was. The noise grows with the bound, so that a server
    that sends a wrong one costs accuracy and no privacy.

    A malicious client that attacks keeps no rules: what it forges is sent without clipping and
    noise, and no one can see that from outside. In rounds in which it does not attack it is
    protected as the honest are.
    """

    kind = "local_dp"

    quantile: Quantile | None
    rate: PositiveFloat

    def check(self, module: nn.Module, settings: Settings, shape: Shape, *, deployed: bool) -> None:
        """Raise ValueError, beside the rest, for a buffer or a budget that cannot be."""
        super().check(module, settings, shape, deployed=deployed)
        self.entries(FlatModule(module), shape)
        if self.noise_multiplier is None:
            return
        once = [accountant.whole_update(self.noise_multiplier, adaptive=self.adaptive)]
        cost = accountant.spent(once, self.delta)
        if cost > self.limit:
            raise ValueError(
                f"privacy.noise_multiplier={self.noise_multiplier:g} costs epsilon {cost:.3g} in "
                f"one round, privacy.epsilon={self.limit:g} is less; give more noise, a larger "
                "epsilon, or epsilon=null"
            )

    def entries(self, flat: FlatModule, shape: Shape) -> PrivateEntries:
        """Return the trainable parameters and the running statistics of normalisation layers."""
        return learnt_entries(flat.module, flat.layout, shape)

    def release(self, plan: TrainingPlan) -> Release:
        """Return the update under noise, and with it, under as much, whether it was within."""
        if self.noise_multiplier is not None:
            return accountant.whole_update(self.noise_multiplier, adaptive=self.adaptive)
        assert self.epsilon is not None
        noise = accountant.update_noise(
            self.epsilon, self.delta, rounds=self._rounds(plan), adaptive=self.adaptive
        )
        return accountant.whole_update(noise, adaptive=self.adaptive)

    @property
    def adaptive(self) -> bool:
        """Whether the bound changes from round to round."""
        return self.quantile is not None

    def next_bound(self, bound: float, fitting: float) -> float:
        """Return the bound of the next round from the mean of what clients reported now."""
        if self.quantile is None:
            return self.clip
        return local_dp.next_bound(bound, fitting, quantile=self.quantile, rate=self.rate)

    def protect(
        self, update: Vector, plan: TrainingPlan, task: Mapping[str, Any], draws: Draws
    ) -> tuple[Vector, dict[str, float]]:
        """Return the update (e,) clipped and with noise, and whether it was within the bound."""
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
    """Differential privacy of each single sample of a client, against all who see its models.

    The client trains by DP-SGD (Abadi et al., CCS 2016, algorithm 1) through Opacus: batches
    by Poisson sampling, each sample's gradient clipped to `clip`, Gaussian noise of the
    deviation `noise_multiplier * clip` on their sum. Whoever sees all models that the client
    sends, the server included, can tell whether one sample was among its data only as far as
    (epsilon, delta) allows. What holds for the client as a whole, such as its rotation or its
    distribution of labels, is not hidden: a server can still see which clients belong together.
    A network whose layers mix samples, or that writes into a buffer in training, is refused.

    A malicious client trains by DP-SGD too, on poisoned data where its attack is one on data;
    what it then forges is sent as it is.
    """

    kind = "sample_dp"
    of_samples = True

    def check(self, module: nn.Module, settings: Settings, shape: Shape, *, deployed: bool) -> None:
        """Raise ValueError, beside the rest, where DP-SGD cannot be done."""
        super().check(module, settings, shape, deployed=deployed)
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
