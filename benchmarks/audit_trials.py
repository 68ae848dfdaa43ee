"""Trials of the audit: what a client of the product sends, with and without a canary in its data.

A trial asks the client itself, `FederatedClient.fit` or `evaluate`, and reads its reply as a
server does. The attacker is the strongest that a server can be: it chose the received model, knows
the data of both cases, and misses only the noise and the batches that the client drew. It scores a
reply by its projection on the difference that the canary makes to replies without noise.
"""

import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, prod
from typing import Any

import numpy as np
from flwr.common import EvaluateIns, FitIns, FitRes, Parameters
from opacus.layers.dp_rnn import RNNLinear
from torch import Tensor, nn

from fl_app import client_wiring, wiring
from fl_app.client import accountant, held_out
from fl_app.client.accountant import Release
from fl_app.client.own_sketch import OwnSketch
from fl_app.client.privacy import Budgeted
from fl_app.client.private_losses import SHARED
from fl_app.client.sketch_release import SketchRelease
from fl_app.client_app import FederatedClient
from fl_app.config import Config, load
from fl_app.data.clients import ClientData
from fl_app.data.datasets import moments
from fl_app.data.preparation import as_inputs
from fl_app.evaluation.privacy_audit import Audit, audit
from fl_app.ingress.placements import LOSSES, PLACE
from fl_app.learner_reports import HELD_OUT, PREFIX, request
from fl_app.params import from_bytes, to_bytes
from fl_app.strategies.trial import LOSSES as TRIAL
from fl_app.types import Vector

DELTA, SAMPLES = 1e-5, 100
DIRECTIONS = 16
"""Replies without noise of which the attacker takes the mean difference."""
NUDGE = np.float32(1e-9)
"""A movement of the model that is none, but tells a client that its round was not skipped."""
SIZE = 50.0
"""The canary's one pixel, in deviations: its gradient exceeds the clip bound many times."""
WORDS = (
    "data=digits", "population=iid", "population.clients=4",
    f"population.train_samples={SAMPLES}", "population.test_samples=20", "strategy=fedavg",
    "network=mlp", "~network.hidden", f"network._target_={__name__}.Linear", "client.epochs=1",
    "client.learning_rate=0.001",
)  # fmt: skip
WHOLE = (f"client.batch_size={SAMPLES}",)
BATCHES = (f"client.batch_size={SAMPLES // 10}",)


class Linear(nn.Module):
    """Scores from pixels without bias, so that a black image has no gradient."""

    def __init__(self, shape: Sequence[int], classes: int) -> None:
        super().__init__()
        self.weights = nn.Linear(prod(shape), classes, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores (s, classes)."""
        scores: Tensor = self.weights(images.flatten(1))
        return scores


class Stored(Linear):
    """The same network by a layer of Opacus, which stores its gradients."""

    def __init__(self, shape: Sequence[int], classes: int) -> None:
        super().__init__(shape, classes)
        self.weights = RNNLinear(prod(shape), classes, bias=False)


Data = Callable[[ClientData], ClientData]
"""Makes the data of one case from those of the client."""
Seen = Callable[["Case", FederatedClient, int], np.ndarray]
"""Returns what the attacker sees of a client in a round, as one vector."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row of the audit: the settings, the two data sets of the client, and what is observed.

    `start` maps the size of a model to the received one; `task` is sent with it, `base` begins the
    settings. `of_losses`: what is observed is made of losses alone, not of an update.
    """

    name: str
    words: tuple[str, ...]
    inside: Data
    outside: Data
    seen: Seen
    start: Callable[[int], Vector]
    rounds: int = 1
    base: tuple[str, ...] = WORDS
    task: tuple[tuple[str, Any], ...] = (("clip_bound", 1.0),)
    of_losses: bool = False

    @cached_property
    def config(self) -> Config:
        """The configuration of the run."""
        return load([*self.base, f"rounds={self.rounds}", *self.words])

    @property
    def release(self) -> SketchRelease | None:
        """The release of a sketch; None for a method without sketches."""
        return SketchRelease.of(self.config.strategy.options)

    @property
    def noiseless(self) -> "Case":
        """The same without noise: the case itself if it has none."""
        if self.release is not None:
            return replace(self, words=(*self.words, "strategy.epsilon=inf"))
        if wiring.privacy(self.config).kind == "none":
            return self
        quiet = ("privacy.epsilon=inf", "privacy.noise_multiplier=null")
        return replace(self, words=(*self.words, *quiet))

    def ledger(self, distance: float = 1.0) -> float:
        """Return the epsilon that the server's ledger books for the rounds.

        At a `distance` other than 1 it is that of data which differ by so many clip bounds.
        """
        release = self.release.booked if self.release is not None else self._booked()
        if release is None:
            return inf
        noise = release.noise_multiplier / distance
        return accountant.spent([replace(release, noise_multiplier=noise)] * self.rounds, DELTA)

    def _booked(self) -> Release | None:
        people = wiring.shared_population(self.config, None)
        shared = dict(self.task).get(SHARED, False)
        plan = wiring.plan_of(self.config, people.samples(0), losses=shared)
        guard = wiring.privacy(self.config)
        told = self.of_losses and isinstance(guard, Budgeted)
        return guard.loss_release(plan) if told else guard.release(plan)

    def observations(self, data: Data, seeds: Sequence[int]) -> Iterator[np.ndarray]:
        """Yield what is observed in each trial, summed over its rounds."""
        client = client_wiring.client(self.config, 0)
        mine = data(client.load(1))
        for seed in seeds:
            one = FederatedClient(replace(client, load=lambda _: mine, seed=seed))
            yield sum(self.seen(self, one, now) for now in range(1, self.rounds + 1))

    def direction(self) -> np.ndarray:
        """Return the difference that the canary makes to what is observed without noise."""
        seeds, quiet = range(DIRECTIONS), self.noiseless
        found = [
            np.mean([*quiet.observations(data, seeds)], axis=0)
            for data in (self.inside, self.outside)
        ]
        difference: np.ndarray = found[0] - found[1]
        return difference / max(float(np.linalg.norm(difference)), 1e-30)

    def scores(self, trials: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores (n,) of trials with and without the canary."""
        along, first = self.direction(), zlib.crc32(self.name.encode()) + DIRECTIONS
        found = []
        for kind, data in enumerate((self.inside, self.outside)):
            seeds = range(first + kind, first + kind + 2 * trials, 2)
            each = self.observations(data, seeds)
            found.append(np.array([float(one @ along) for one in each]))
        return found[0], found[1]

    def run(self, trials: int) -> Audit:
        """Return what the attack achieves."""
        return audit(*self.scores(trials), delta=DELTA)


def reply(case: Case, client: FederatedClient, now: int) -> FitRes:
    """Return the client's reply to a message of training."""
    start = case.start(client.local.learner.flat.layout.size)
    model = Parameters([to_bytes(start)], "numpy.ndarray")
    return client.fit(FitIns(model, {"round": now, **dict(case.task)}))


def update(case: Case, client: FederatedClient, now: int) -> np.ndarray:
    """Return the update of a reply, and the report on its norm, whose noise is as large."""
    done = reply(case, client, now)
    start = case.start(client.local.learner.flat.layout.size)
    moved = (from_bytes(done.parameters.tensors[0]) - start).astype(float)
    fits = [float(done.metrics["fitting"])] if "fitting" in done.metrics else []
    return np.concatenate([moved, fits])


def loss(case: Case, client: FederatedClient, now: int) -> np.ndarray:
    """Return the training loss that the client tells beside its model."""
    return np.array([float(reply(case, client, now).metrics["loss"])])


def choice(case: Case, client: FederatedClient, now: int) -> np.ndarray:
    """Return which of two opposite models the client chooses to train."""
    ins = FitIns(_opposite(case, client), {"round": now, **dict(case.task)})
    return np.array([float(client.fit(ins).metrics["choice"])])


def losses(case: Case, client: FederatedClient, now: int) -> np.ndarray:
    """Return the losses of two opposite models that a newcomer tells."""
    ins = EvaluateIns(_opposite(case, client), {"round": now, PLACE: True, **dict(case.task)})
    return np.frombuffer(client.evaluate(ins).metrics[LOSSES], "<f4").astype(float)


def held_out_losses(case: Case, client: FederatedClient, now: int) -> np.ndarray:
    """Return the losses of two opposite models on parts of held-out samples.

    Each trial is another round of one seed, by which the canary is held out.
    """
    local, count = client.local, client.local.samples
    outs = (
        held_out.split(count, seed=seed, client=local.client_id)[1] for seed in itertools.count()
    )
    seed = next(k for k, parts in enumerate(outs) if any(count - 1 in part for part in parts))
    one = FederatedClient(replace(local, seed=seed))
    given = {"round": now + local.seed, **request({HELD_OUT: TRIAL}), **dict(case.task)}
    told = one.fit(FitIns(_opposite(case, client), given)).metrics[f"{PREFIX}{HELD_OUT}"]
    return np.frombuffer(told, "<f4").astype(float)


@dataclass
class Kept:
    """What stays with a client between two messages, as `Memory`."""

    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)

    def read(self, until: int) -> Mapping[str, np.ndarray]:
        """Return what was written last."""
        return self.tensors

    def write(self, tensors: Mapping[str, np.ndarray], server_round: int) -> None:
        """Replace what is stored."""
        self.tensors = tensors


def sketch(case: Case, client: FederatedClient, now: int) -> np.ndarray:
    """Return the sketch that the client releases after one training, as a masked client does.

    In between the attacker moves the model by next to nothing, so that the client subtracts nothing
    of its own update. All know the seed of the run, and so the projection; each trial is another
    round, by which the noise is drawn.
    """
    assert case.release is not None
    local, moved = client.local, update(case, client, now).astype(np.float32)
    start = case.start(len(moved))
    own = OwnSketch(case.release, Kept(), case.config.seed, local.client_id, local.seed + 1)
    own.trained(start, moved)
    after = replace(own, now=own.now + 1)
    return after.released([start + NUDGE], lambda: slice(None)).astype(float)


def _opposite(case: Case, client: FederatedClient) -> Parameters:
    start = case.start(client.local.learner.flat.layout.size)
    return Parameters([to_bytes(start), to_bytes(-start)], "numpy.ndarray")


def certain(size: int) -> Vector:
    """Return a model (d,) that is certain that the canary is a one."""
    model = np.zeros(size, np.float32)
    model[size // 10] = 1.0
    return model


def torn(size: int) -> Vector:
    """Return a model (d,) certain that a pixel is a one, and that its negative is a zero."""
    model = certain(size)
    model[0] = -1.0
    return model


def blank(size: int) -> Vector:
    """Return a model (d,) of zeros."""
    return np.zeros(size, np.float32)


def with_samples(pixel: float, *, copies: int = 1) -> Data:
    """Return data in which `copies` samples have one pixel alone and the class zero.

    No other sample has this pixel. Without the pixel the samples are black and have no gradient.
    """

    def data(given: ClientData) -> ClientData:
        images, labels = given.train_images.clone(), given.train_labels.clone()
        images[:, :, 0, 0] = 0
        images[-copies:] = 0
        images[-copies:, :, 0, 0] = pixel
        labels[-copies:] = 0
        return replace(given, train_images=images, train_labels=labels)

    return data


def scaled(pixel: int) -> Data:
    """Return images of one grey and one of another, all scaled by their mean and deviation."""

    def data(given: ClientData) -> ClientData:
        pixels = np.full(given.train_images.shape, 100, np.uint8)
        pixels[:, :, ::2] = 101
        pixels[-1] = pixel
        return replace(given, train_images=as_inputs(pixels, moments(pixels)))

    return data


def mislabelled(*, present: bool) -> Data:
    """Return the client's data with a wrong class of the last sample, or with a black image."""

    def data(given: ClientData) -> ClientData:
        images, labels = given.train_images.clone(), given.train_labels.clone()
        if not present:
            images[-1] = 0
        labels[-1] = (labels[-1] + 1) % 10
        return replace(given, train_images=images, train_labels=labels)

    return data
