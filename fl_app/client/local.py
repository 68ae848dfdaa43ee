"""One client: its data, its model, and its answers to the server."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from torch import Tensor

from fl_app.client import held_out, private_losses
from fl_app.client.attacks import Attack
from fl_app.client.draws import Draws, keyed_layers
from fl_app.client.learner import Learner, TrainingJob, TrainingResult
from fl_app.client.memory import Memory
from fl_app.client.privacy import Budgeted, Privacy
from fl_app.client.private_entries import PrivateEntries
from fl_app.client.training import UNSCORED, Score
from fl_app.client.training_plan import TrainingPlan
from fl_app.data.population import ClientData
from fl_app.learner_reports import (
    HELD_OUT,
    WRONG_ADDS,
    Told,
    holds_out,
    sendable,
    without_reports,
)
from fl_app.rng import generator, torch_generator, torch_seed
from fl_app.types import Vector, Vectors


@dataclass(frozen=True)
class Trained:
    """A client's reply: its model (d,), mean loss of the last epoch, seconds of training.

    The model is valid until a client with the same network object trains again. `metrics` are
    numbers by name that its privacy sends with the model; `reports` are what its learner tells
    beside the model, nothing with a privacy.
    """

    model: Vector
    loss: float
    samples: int
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    reports: Mapping[str, Told] = field(default_factory=dict)


@dataclass(frozen=True)
class LocalClient:
    """A client of the federation; ids start at 0.

    `samples` is the number of its training samples. `load` returns its data as they are in a
    round; they are loaded when they are first needed, so that a client that only introduces itself
    needs no memory for them. With a privacy, `plan` determines the noise and `entries` what is
    hidden. `memory` is for a network with tensors that stay with the client.
    """

    client_id: int
    samples: int
    group: int
    load: Callable[[int], ClientData]
    learner: Learner
    seed: int
    attack: Attack
    privacy: Privacy
    malicious: bool = False
    colluders: Callable[[Vector, int, Mapping[str, Any]], Vectors] | None = None
    plan: TrainingPlan | None = None
    entries: PrivateEntries | None = None
    memory: Memory | None = None

    def fit(
        self,
        start: Vector,
        *,
        server_round: int,
        task: Mapping[str, Any] | None = None,
        other: Vector | None = None,
    ) -> Trained:
        """Train from `start` (d,) on the training data; then protect the update or attack.

        If `task` says so, some samples are held out; with an `other` model (d,), both models'
        losses on them are reported.
        """
        task = task or {}
        data, attacks = self.load(server_round), self.malicious and self.attack.active(server_round)
        keys = {"round": server_round, "client": self.client_id}
        images, labels = data.train_images, data.train_labels
        if attacks:
            draw = torch_generator(self.seed, purpose="poison", **keys)
            images, labels = self.attack.poison(images, labels, draw)
        told: dict[str, Told] = {}
        draws = Draws(self.seed, server_round, self.client_id, keyed=self.privacy.keyed)
        if other is not None:
            told[HELD_OUT] = self._compared(
                images, labels, (start, other), server_round, task, draws
            )
        if holds_out(task):
            fewer = held_out.fewer_steps(len(labels), self.learner.settings.batch_size)
            # a privacy bounds what one sample moves, so that none may come twice
            again = draws.torch("repeated samples") if fewer and self.plan is None else None
            images, labels = held_out.rest(
                images, labels, seed=self.seed, client=self.client_id, again=again
            )
        job = self._job(start, images, labels, server_round, task, draws)
        done = self._trained(job, draws)
        model: Vector = done.model
        metrics: Mapping[str, float] = {}
        if attacks:
            noise = generator(self.seed, purpose="forge", **keys)
            others = partial(self._colluding, start, server_round, task)
            forged = start + self.attack.forge(model - start, noise, others)
            model = self.learner.flat.layout.valid(forged)  # an invalid one would be rejected
        elif self.plan is not None:
            plan = private_losses.planned(self.plan, task)
            model, metrics = self._protected(start, model, plan, task, draws)
        reports = {**(done.reports if self.plan is None else {}), **told}  # no noise hides others
        return Trained(model, done.loss, self.samples, done.seconds, metrics, reports)

    def _job(
        self,
        start: Vector,
        images: Tensor,
        labels: Tensor,
        server_round: int,
        task: Mapping[str, Any],
        draws: Draws,
    ) -> TrainingJob:
        """Return the training of a model (d,) on these samples, with its keyed draws."""
        return TrainingJob(
            start, images, labels, draws.torch("batches"), task, draws.hidden("privacy noise"),
            draws.seed_of("layers"), server_round, self._epochs(server_round),
        )  # fmt: skip

    def _trained(self, job: TrainingJob, draws: Draws) -> TrainingResult:
        """Train the shared model and what stays with this client, and store the latter."""
        before, personal = job.server_round - 1, self.learner.recipe.personal
        self._recall(before, shared=True)
        done = self.learner.train(job)
        if self.memory is None:
            return done
        if personal.own_model:
            done, began = replace(done, model=done.model.copy()), perf_counter()
            order, layers = (f"{what} of the own model" for what in ("batches", "layers"))
            again = replace(job, generator=draws.torch(order), layers_seed=draws.seed_of(layers))
            own = self.learner.own_model(again, self.memory.read(before))
            self.memory.write(own, job.server_round)
            return replace(done, seconds=done.seconds + perf_counter() - began)
        if self.learner.flat.local:
            self.memory.write(self.learner.flat.local_state(), job.server_round)
        return done

    def _compared(
        self,
        images: Tensor,
        labels: Tensor,
        models: Sequence[Vector],
        server_round: int,
        task: Mapping[str, Any],
        draws: Draws,
    ) -> Vector:
        """Return two models' losses on the samples that are held out."""
        _, parts = held_out.split(len(labels), seed=self.seed, client=self.client_id)

        def loss(model: Vector, part: Tensor) -> float:
            rows = part.to(labels.device)
            given = images[rows], labels[rows], server_round
            if isinstance(self.privacy, Budgeted):
                return self._clipped_loss(model, *given)
            score = self._score(model, *given, server_round - 1, shared=True)
            return held_out.penalised(score.loss, score.accuracy if task.get(WRONG_ADDS) else None)

        told = held_out.losses(models, parts, loss)
        if self.plan is not None:
            assert isinstance(self.privacy, Budgeted)
            plan, draw = private_losses.planned(self.plan, task), draws.numpy("noise of a trial")
            deviation = partial(self.privacy.part_deviation, plan)
            told = private_losses.on_parts(told, parts, deviation, draw)
        return told

    def _clipped_loss(
        self, model: Vector, images: Tensor, labels: Tensor, server_round: int
    ) -> float:
        """Return the clipped loss of a received model (d,) before a training with a privacy."""
        assert isinstance(self.privacy, Budgeted)
        self._recall(server_round - 1, shared=True)
        seed = torch_seed(self.seed, purpose="scores", round=server_round, client=self.client_id)
        with keyed_layers(self.learner.flat, seed, trains=False):
            return self.learner.bounded_loss(model, images, labels, bound=self.privacy.loss_bound)

    def _protected(
        self,
        start: Vector,
        model: Vector,
        plan: TrainingPlan,
        task: Mapping[str, Any],
        draws: Draws,
    ) -> tuple[Vector, Mapping[str, float]]:
        """Return the protected model (d,) and the metrics that are sent with it."""
        if self.entries is None:
            raise ValueError("entries must be given with privacy, got None; use client_wiring")
        update = self.entries.update(start, model)
        update, metrics = self.privacy.protect(update, plan, task, draws)
        return self.entries.moved(start, update), metrics

    def _colluding(self, start: Vector, server_round: int, task: Mapping[str, Any]) -> Vectors:
        if self.colluders is None:
            raise ValueError("colluders must be given for this attack, got None; use client_wiring")
        return self.colluders(start, server_round, without_reports(task))

    def _epochs(self, server_round: int) -> int:
        epochs = self.learner.settings.epochs
        if isinstance(epochs, int):
            return epochs
        return epochs.draw(self.seed, server_round=server_round, client=self.client_id)

    def _recall(self, until: int, *, shared: bool) -> None:
        """Give the network, which clients share, what stayed with this client up to a round.

        With `shared` a model of the client's own does not replace the one that it received.
        """
        flat, personal = self.learner.flat, self.learner.recipe.personal
        stays = not shared if personal.own_model else bool(flat.local)
        flat.own = {} if self.memory is None or not stays else dict(self.memory.read(until))

    def attack_success(self, model: Vector, *, server_round: int) -> float | None:
        """Return the share of test images for which `model` (d,) answers as the attack wants.

        None for an attack without a trial, or if no image can be used for it.
        """
        data = self.load(server_round)
        trial = self.attack.trial(data.test_images, data.test_labels)
        return None if trial is None else self._score(model, *trial, server_round).accuracy

    def offered_losses(
        self, models: Sequence[Vector], *, server_round: int, task: Mapping[str, Any]
    ) -> Vector:
        """Return the losses (k,) of models (d,) on what one of them will be trained on.

        They are at most LARGEST, also if one is not finite.
        """
        data, before = self.load(server_round), server_round - 1
        images, labels = data.train_images, data.train_labels
        if holds_out(task):
            images, labels = held_out.rest(images, labels, seed=self.seed, client=self.client_id)
        given = images, labels, server_round
        found = [self._score(model, *given, until=before, shared=True) for model in models]
        return sendable([each.loss for each in found])

    def noisy_losses(
        self,
        models: Sequence[Vector],
        *,
        server_round: int,
        task: Mapping[str, Any],
        purpose: str,
    ) -> Vector:
        """Return the clipped training losses (k,) of models (d,) with the noise of the privacy."""
        guard, data = self.privacy, self.load(server_round)
        assert self.plan is not None
        assert isinstance(guard, Budgeted)
        plan = private_losses.planned(self.plan, task)
        deviation = guard.loss_deviation(plan, len(models), len(data.train_labels))
        given = data.train_images, data.train_labels, server_round
        found = [self._clipped_loss(model, *given) for model in models]
        draws = Draws(self.seed, server_round, self.client_id, keyed=guard.keyed)
        draw = draws.numpy(f"noise of {purpose}")
        return private_losses.with_noise(np.array(found), deviation=deviation, draw=draw)

    def losses(self, models: Sequence[Vector], *, server_round: int) -> Vector:
        """Return the training loss (k,) of each model (d,), at most LARGEST also if not finite."""
        scores = [self.score(model, train_data=True, server_round=server_round) for model in models]
        return sendable([each.loss for each in scores])

    def score(self, model: Vector, *, train_data: bool, server_round: int) -> Score:
        """Return the score of `model` (d,) on the test data, or on the training data.

        A client without test data is `UNSCORED`; raises ValueError without training data.
        A model of the client's own replaces it only on the test data: the loss on the training
        data compares shared models.
        """
        data = self.load(server_round)
        trains = train_data or self.learner.scores_training_data
        images = data.train_images if trains else data.test_images
        labels = data.train_labels if trains else data.test_labels
        if not len(labels) and not trains:
            return UNSCORED
        if not len(labels):
            raise ValueError(
                f"client {self.client_id} must have samples for training, got none; add some, or "
                "leave this client out"
            )
        return self._score(model, images, labels, server_round, shared=train_data)

    def _score(
        self,
        model: Vector,
        images: Tensor,
        labels: Tensor,
        server_round: int,
        until: int | None = None,
        *,
        shared: bool = False,
    ) -> Score:
        """Return a score; a network that draws also in evaluation draws the same every time.

        What stays with the client is as it was after the round `until`; None: this one. With
        `shared` the model itself is scored, not one of the client's own in its place.
        """
        self._recall(server_round if until is None else until, shared=shared)
        seed = torch_seed(self.seed, purpose="scores", round=server_round, client=self.client_id)
        with keyed_layers(self.learner.flat, seed, trains=False):
            return self.learner.score(model, images, labels)
