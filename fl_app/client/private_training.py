"""DP-SGD on one client: Poisson sampling, clipped gradients per sample, noise on their sum."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Self

import numpy as np
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from torch import Tensor, nn
from torch.nn import functional

from fl_app.client.accountant import Release
from fl_app.client.clipped_gradients import SampleGradients, calls_of, is_known
from fl_app.client.draws import keyed_layers
from fl_app.client.learner import Learner, TrainingJob, TrainingResult
from fl_app.client.private_losses import mean_of_clipped
from fl_app.client.sgd import SgdLearner
from fl_app.client.stragglers import most
from fl_app.client.training import Settings, pull, scores, trainable
from fl_app.params import FlatModule
from fl_app.system_numbers import SystemNumbers
from fl_app.types import Vector

warnings.filterwarnings("ignore", "Full backward hook is firing")  # Opacus's hooks on images
SCORED = 500
"""Samples whose losses are computed at once."""


@dataclass(frozen=True)
class Bounded:
    """The bound of gradients: `clip`, and the noise of `release` relative to it."""

    release: Release
    clip: float


class PrivateLearner(SgdLearner):
    """Trains by DP-SGD within the bounds of `bounded`, worked out from the task of a training."""

    def __init__(self, learner: Learner, bounded: Callable[[Mapping[str, Any]], Bounded]) -> None:
        super().__init__(learner.flat, learner.settings, classes=learner.classes)
        self.bounded, self.recipe = bounded, learner.recipe

    def train(self, job: TrainingJob) -> TrainingResult:
        """Train from `job.start`, each sample private."""
        with keyed_layers(self.flat, job.layers_seed):
            settings = self.recipe.settings(self.settings, job.server_round)
            return train_privately(self.flat, settings, self.bounded(job.task), job)

    @torch.no_grad()
    def bounded_loss(self, model: Vector, images: Tensor, labels: Tensor, *, bound: float) -> float:
        """Return the mean of the samples' losses, each clipped to [0, bound].

        One sample changes it by at most bound / s.
        """
        self.flat.load(model)
        self.flat.module.eval()
        parts = zip(torch.split(images, SCORED), torch.split(labels, SCORED), strict=True)
        each = [
            functional.cross_entropy(scores(self.flat.module, x).float(), y, reduction="none")
            for x, y in parts
        ]
        return mean_of_clipped(torch.cat(each).cpu().numpy(), bound=bound)

    def fused(self) -> Self:
        """Return this learner: each client of a cohort clips its own samples."""
        return self

    def alone(self) -> Self:
        """Return this learner, which waits for no cohort."""
        return self


def train_privately(
    flat: FlatModule, settings: Settings, bounded: Bounded, job: TrainingJob
) -> TrainingResult:
    """Train from `job.start` by DP-SGD through Opacus; the loss is the mean of the last epoch.

    Abadi et al., CCS 2016, algorithm 1: every step draws each sample with probability `rate`,
    clips its gradient to `clip`, adds Gaussian noise of `noise_multiplier * clip` to the sum and
    divides by the expected batch size. The noise comes from `job.noise`. The step is that of SGD
    with momentum and weight decay. FedProx's term does not depend on samples and is added after
    the noise.
    """
    began = perf_counter()
    flat.load(job.start)
    flat.module.train()
    total = count = 0.0
    with (
        _contiguous(flat.module),
        _clipping(flat.module, bounded.clip) as (backward, kind),
    ):
        optimiser = _noisy(kind, job)(_sgd(flat, settings), **_bounds(bounded, job))
        parameters = trainable(flat.module)
        starts = [p.detach().clone() for p in parameters]
        source = job.noise if isinstance(job.noise, SystemNumbers) else job.generator
        each_epoch = bounded.release.steps // max(most(settings.epochs), 1)
        for step, batch in enumerate(_batches(len(job.labels), bounded.release, source)):
            if step % max(each_epoch, 1) == 0:
                total = count = 0.0
            optimiser.zero_grad(set_to_none=True)
            chosen = batch.to(job.labels.device)
            images = job.images[chosen].clone(memory_format=torch.contiguous_format)
            loss = backward(images, job.labels[chosen])
            optimiser.pre_step()
            if settings.proximal:
                pull(parameters, starts, settings.proximal)
            optimiser.original_optimizer.step()
            total, count = total + loss, count + len(batch)
    return TrainingResult(flat.vector(), total / max(count, 1.0), perf_counter() - began)


def _batches(
    samples: int, release: Release, source: torch.Generator | SystemNumbers
) -> Iterator[Tensor]:
    """Yield the samples of each step, drawn independently; a batch can be empty."""
    for _ in range(release.steps):
        if isinstance(source, SystemNumbers):
            drawn = torch.from_numpy(source.random(samples))
        else:
            drawn = torch.rand(samples, generator=source)
        yield torch.nonzero(drawn < release.rate).flatten()


@contextmanager
def _contiguous(module: nn.Module) -> Iterator[None]:
    """Use the contiguous memory format for kernels during the block.

    With channels last, Opacus 1.6 computes wrong per-sample gradients of convolutions.
    """
    kernels = [(p, p.data) for p in module.parameters() if p.dim() == 4]
    for parameter, data in kernels:
        parameter.data = data.clone(memory_format=torch.contiguous_format)
    try:
        yield
    finally:
        for parameter, data in kernels:
            data.copy_(parameter.data)
            parameter.data = data


@contextmanager
def _clipping(
    module: nn.Module, bound: float
) -> Iterator[tuple[Callable[[Tensor, Tensor], float], type[DPOptimizer]]]:
    """Yield a function from a batch to its summed loss, and the optimiser that takes what it sets.

    For known layers it sets the sum of the clipped gradients; otherwise the gradients per sample,
    as Opacus finds them, which its optimiser clips.
    """

    def loss_of(images: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(module(images), labels, reduction="sum")

    def each(images: Tensor, labels: Tensor) -> float:
        loss = loss_of(images, labels)
        torch.autograd.backward(loss)
        _drop_what_is_not_finite(trainable(module))
        return float(loss.detach())

    def at_once(images: Tensor, labels: Tensor) -> float:
        if not len(labels):
            for parameter in trainable(module):
                parameter.grad = torch.zeros_like(parameter)
            return 0.0
        with calls_of(module) as calls:
            loss = loss_of(images, labels)
        for parameter, gradient in SampleGradients(calls, loss).clipped(bound).items():
            parameter.grad = gradient
        return float(loss.detach())

    if is_known(module):
        yield at_once, DPOptimizerFastGradientClipping
        return
    with hooked(module):
        yield each, DPOptimizer


def _drop_what_is_not_finite(parameters: Sequence[nn.Parameter]) -> None:
    """Set the gradients (n, ...) of samples to 0 that no noise would hide: see `clipped`."""
    stacked: list[Tensor] = [getattr(p, "grad_sample") for p in parameters]  # noqa: B009
    finite = (
        torch.stack([each[:, None].flatten(1).square().sum(1) for each in stacked])
        .sum(0)
        .isfinite()
    )
    if not finite.all():
        for each in stacked:
            each[~finite] = 0.0


def _sgd(flat: FlatModule, settings: Settings) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        trainable(flat.module),
        lr=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )


def _bounds(bounded: Bounded, job: TrainingJob) -> dict[str, Any]:
    """Return the options of Opacus's optimisers."""
    return {
        "noise_multiplier": bounded.release.noise_multiplier,
        "max_grad_norm": bounded.clip,
        "expected_batch_size": max(1, round(bounded.release.rate * len(job.labels))),
    }


def _noisy(kind: type[DPOptimizer], job: TrainingJob) -> type[DPOptimizer]:
    """Return Opacus's optimiser with noise from `job.noise`; its own needs a generator of torch."""
    draw = _normals(job)

    class Noisy(kind):  # type: ignore[misc]
        def add_noise(self) -> None:
            deviation = self.noise_multiplier * self.max_grad_norm
            for p in self.params:
                p.grad = (p.summed_grad + draw(deviation, p.summed_grad)).view_as(p)

    return Noisy


def _normals(job: TrainingJob) -> Callable[[float, Tensor], Tensor]:
    """Return a function from a deviation and a tensor to Gaussian noise of this tensor's shape."""
    source = job.noise
    if source is None:
        raise ValueError("job.noise must be a source for DP-SGD, got None; use client_wiring")
    if isinstance(source, SystemNumbers):

        def of_system(deviation: float, like: Tensor) -> Tensor:
            drawn = source.standard_normal(tuple(like.shape), np.float32)
            return torch.from_numpy(deviation * drawn).to(like)

        return of_system
    generator = torch.Generator(job.labels.device).manual_seed(source.initial_seed())

    def keyed(deviation: float, like: Tensor) -> Tensor:
        drawn = torch.empty_like(like, memory_format=torch.contiguous_format)
        return drawn.normal_(std=deviation, generator=generator)

    return keyed


@contextmanager
def hooked(module: nn.Module) -> Iterator[None]:
    """Let each backward pass in the block set Opacus's `grad_sample` of the parameters."""
    hooks = GradSampleModule(module, loss_reduction="sum")
    try:
        yield
    finally:
        hooks.to_standard_module()
