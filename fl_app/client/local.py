"""One client: its data, a model to load, and what it does when asked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fl_app.client.trainer import Job, Trainer
from fl_app.client.training import Precision, Score, evaluate
from fl_app.data.population import ClientData
from fl_app.params import FlatModule
from fl_app.rng import torch_generator
from fl_app.types import Vector


@dataclass(frozen=True)
class Trained:
    """A client's reply: its model (d,), mean loss of the last epoch, seconds of training."""

    model: Vector
    loss: float
    samples: int
    seconds: float


@dataclass(frozen=True)
class LocalClient:
    """A client of the federation, known by `client_id` from 0 on.

    `samples` counts its training data, which `load` brings when they are first needed: a
    client that is only asked who it is costs no memory.
    """

    client_id: int
    samples: int
    group: int
    load: Callable[[], ClientData]
    model: FlatModule
    train: Trainer
    precision: Precision
    seed: int

    def fit(self, start: Vector, *, server_round: int) -> Trained:
        """Train from `start` (d,) on the training data."""
        data = self.load()
        key = torch_generator(
            self.seed, purpose="batches", round=server_round, client=self.client_id
        )
        done = self.train(Job(start, data.train_images, data.train_labels, key))
        return Trained(done.model, done.loss, self.samples, done.seconds)

    def choose(self, models: Sequence[Vector]) -> int:
        """Return which model (d,) has the least loss on the training data, the first of equals."""
        if len(models) == 1:
            return 0
        losses = [self.score(model, train_data=True).loss for model in models]
        return min(range(len(losses)), key=losses.__getitem__)

    def score(self, model: Vector, *, train_data: bool) -> Score:
        """Return the score of `model` (d,) on the test data, or on the training data."""
        self.model.load(model)
        data = self.load()
        images, labels = (
            (data.train_images, data.train_labels)
            if train_data
            else (data.test_images, data.test_labels)
        )
        return evaluate(self.model.module, images, labels, precision=self.precision)
