"""One client: its data, a model to load, and what it does when asked."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fl_app.client.training import Precision, Score, evaluate, train
from fl_app.data.population import ClientData
from fl_app.params import FlatModule
from fl_app.rng import torch_generator
from fl_app.types import Vector


class Settings(Protocol):
    """The part of the configuration that local training reads."""

    @property
    def epochs(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def momentum(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def precision(self) -> Precision: ...


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
    seed: int
    settings: Settings

    def fit(self, start: Vector, *, server_round: int) -> Trained:
        """Train from `start` (d,) on the training data."""
        began = time.perf_counter()
        settings = self.settings
        self.model.load(start)
        data = self.load()
        loss = train(
            self.model.module,
            data.train_images,
            data.train_labels,
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            precision=settings.precision,
            generator=torch_generator(
                self.seed, purpose="batches", round=server_round, client=self.client_id
            ),
        )
        return Trained(self.model.vector(), loss, self.samples, time.perf_counter() - began)

    def score(self, model: Vector, *, train_data: bool) -> Score:
        """Return the score of `model` (d,) on the test data, or on the training data."""
        self.model.load(model)
        data = self.load()
        images, labels = (
            (data.train_images, data.train_labels)
            if train_data
            else (data.test_images, data.test_labels)
        )
        return evaluate(self.model.module, images, labels, precision=self.settings.precision)
