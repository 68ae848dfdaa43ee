"""One client: its data, a model to load, and what it does when asked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor, nn

from fl_app.client.attacks import Attack, Backdoor
from fl_app.client.draws import Draws
from fl_app.client.privacy import Privacy, TrainingPlan
from fl_app.client.private_entries import PrivateEntries
from fl_app.client.training import Score
from fl_app.client.training_jobs import Trainer, TrainingJob
from fl_app.data.population import ClientData
from fl_app.params import FlatModule
from fl_app.rng import generator, torch_generator
from fl_app.types import Vector, Vectors

Measure = Callable[[nn.Module, Tensor, Tensor], Score]
"""Scores a model on images (s, C, H, W) and labels (s,)."""


@dataclass(frozen=True)
class Trained:
    """A client's reply: its model (d,), mean loss of the last epoch, seconds of training.

    The model is valid until a client on the same network trains again. `metrics` are numbers by
    name that its privacy sends beside the model.
    """

    model: Vector
    loss: float
    samples: int
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class LocalClient:
    """A client of the federation, known by `client_id` from 0 on.

    `samples` counts its training data, which `load` brings, as they are in a round, when they
    are first needed: a client that is only asked who it is costs no memory. One that clusters
    its points is always scored on its training data, as nothing else of them is learnt. `plan`
    and `entries` are for a client with a privacy: what its accountant and its updates go by.
    """

    client_id: int
    samples: int
    group: int
    load: Callable[[int], ClientData]
    model: FlatModule
    train: Trainer
    measure: Measure
    seed: int
    attack: Attack
    privacy: Privacy
    malicious: bool = False
    clusters: bool = False
    colluders: Callable[[Vector, int], Vectors] | None = None
    plan: TrainingPlan | None = None
    entries: PrivateEntries | None = None

    def fit(
        self, start: Vector, *, server_round: int, task: Mapping[str, Any] | None = None
    ) -> Trained:
        """Train from `start` (d,) on the training data; protect the update, or attack with it."""
        data, attacks = self.load(server_round), self.malicious and self.attack.active(server_round)
        keys = {"round": server_round, "client": self.client_id}
        images, labels = data.train_images, data.train_labels
        if attacks:
            draw = torch_generator(self.seed, purpose="poison", **keys)
            images, labels = self.attack.poison(images, labels, draw)
        draws = Draws(self.seed, server_round, self.client_id, keyed=self.privacy.keyed)
        batches, hidden = draws.torch("batches"), draws.torch("privacy noise")
        done = self.train(TrainingJob(start, images, labels, batches, task or {}, hidden))
        model: Vector = done.model
        metrics: Mapping[str, float] = {}
        if attacks:
            noise = generator(self.seed, purpose="forge", **keys)
            model = start + self.attack.forge(
                model - start, noise, partial(self._colluding, start, server_round)
            )
        elif self.plan is not None:
            model, metrics = self._protected(start, model, self.plan, task or {}, draws)
        return Trained(model, done.loss, self.samples, done.seconds, metrics)

    def _protected(
        self,
        start: Vector,
        model: Vector,
        plan: TrainingPlan,
        task: Mapping[str, Any],
        draws: Draws,
    ) -> tuple[Vector, Mapping[str, float]]:
        """Return the model (d,) that may leave, and the metrics beside it."""
        if self.entries is None:
            raise ValueError("privacy needs the entries that it hides; build clients by the wiring")
        update = self.entries.update(start, model)
        update, metrics = self.privacy.protect(update, plan, task, draws)
        return self.entries.moved(start, update), metrics

    def _colluding(self, start: Vector, server_round: int) -> Vectors:
        if self.colluders is None:
            raise ValueError("a colluding attack needs accomplices; build clients by the wiring")
        return self.colluders(start, server_round)

    def fooled(self, model: Vector, *, server_round: int) -> float | None:
        """Return how often a backdoor's mark makes `model` (d,) answer its target, in [0, 1].

        On test images of other labels; None without such an attack, or such images.
        """
        if not isinstance(self.attack, Backdoor):
            return None
        data = self.load(server_round)
        others = data.test_labels != self.attack.target
        if not others.any():
            return None
        self.model.load(model)
        images, labels = self.attack.marked(data.test_images[others])
        return self.measure(self.model.module, images, labels).accuracy

    def choose(self, models: Sequence[Vector], *, server_round: int) -> int:
        """Return which model (d,) has the least loss on the training data, the first of equals."""
        if len(models) == 1:
            return 0
        scores = [self.score(model, train_data=True, server_round=server_round) for model in models]
        losses = [score.loss for score in scores]
        return min(range(len(losses)), key=losses.__getitem__)

    def score(self, model: Vector, *, train_data: bool, server_round: int) -> Score:
        """Return the score of `model` (d,) on the test data, or on the training data."""
        self.model.load(model)
        data = self.load(server_round)
        images, labels = (
            (data.train_images, data.train_labels)
            if train_data or self.clusters
            else (data.test_images, data.test_labels)
        )
        return self.measure(self.model.module, images, labels)
