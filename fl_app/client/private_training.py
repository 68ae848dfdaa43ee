"""DP-SGD on one client: Poisson sampling, clipped gradients per sample, noise on their sum."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, Self

import numpy as np
import torch
from opacus import GradSampleModule
from torch import Tensor, nn
from torch.nn import functional

from fl_app.client.accountant import Release
from fl_app.client.clipped_gradients import SampleGradients, gradients_of
from fl_app.client.draws import keyed_layers
from fl_app.client.layer_calls import Watched, calls_of, is_separable
from fl_app.client.learner import Learner, TrainingJob, TrainingResult
from fl_app.client.pending_noise import pending
from fl_app.client.private_losses import mean_of_clipped
from fl_app.client.sgd import SgdLearner
from fl_app.client.stragglers import most
from fl_app.client.training import SCORED, PlainSgd, Settings, pull, scores, trainable
from fl_app.client.weight_products import Sums
from fl_app.params import FlatModule
from fl_app.system_numbers import SystemNumbers
from fl_app.types import Vector

warnings.filterwarnings("ignore", "Full backward hook is firing")  # Opacus's hooks on images
AddClipped = Callable[[Sums, Tensor, Tensor], Tensor]
"""Adds the sums of clipped gradients of a batch's images and labels, over the expected number of
samples, to tensors, and returns the summed loss."""


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
    """Train from `job.start` by DP-SGD; the loss is the mean of the last epoch.

    Abadi et al., CCS 2016, algorithm 1: every step draws each sample with probability `rate`,
    clips its gradient to `clip`, adds Gaussian noise of `noise_multiplier * clip` to the sum and
    divides by the expected batch size. The noise comes from `job.noise`. The step is that of SGD
    with momentum and weight decay. FedProx's term does not depend on samples and is added after
    the noise.
    """
    began = perf_counter()
    flat.load(job.start)
    flat.module.train()
    parameters, release = trainable(flat.module), bounded.release
    optimiser, set_noise = PlainSgd(parameters, settings), _normals(job)
    expected = max(1, round(release.rate * len(job.labels)))
    deviation = release.noise_multiplier * bounded.clip / expected
    source = job.noise if isinstance(job.noise, SystemNumbers) else job.generator
    each_epoch = max(release.steps // max(most(settings.epochs), 1), 1)
    total, count = torch.zeros((), dtype=torch.float64, device=job.labels.device), 0
    set_to_noise = partial(set_noise, deviation)
    with (
        _clipping(flat.module, bounded.clip, expected) as add_clipped,
        pending(flat, settings, set_to_noise) as late,
    ):
        starts = [p.detach().clone() for p in parameters] if settings.proximal else []
        noisy = {p: torch.empty_like(p, requires_grad=False) for p in parameters if p not in late}
        sums = noisy | {p: each.sums for p, each in late.items()}
        for step, batch in enumerate(_batches(len(job.labels), release, source)):
            if step % each_epoch == 0:
                total, count = torch.zeros_like(total), 0
            optimiser.zero_grad()  # the sums are no place for what a backward pass adds
            chosen = batch.to(job.labels.device)
            for each in noisy.values():
                set_to_noise(each)
            loss = add_clipped(sums, job.images[chosen], job.labels[chosen])
            for parameter, each in noisy.items():
                parameter.grad = each
            if settings.proximal:
                pull(parameters, starts, settings.proximal)
            optimiser.step()
            for embedding in late.values():
                embedding.step()
            total, count = total + loss, count + len(batch)
    return TrainingResult(flat.vector(), float(total) / max(count, 1), perf_counter() - began)


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
def _clipping(module: nn.Module, bound: float, expected: int) -> Iterator[AddClipped]:
    """Yield a function that adds the sum of a batch's clipped gradients and returns its loss.

    The sum is over the expected number of samples, as its noise. A single backward pass finds the
    gradients, layer by layer; for a network that is not separable Opacus stores those of all
    samples.
    """

    def loss_of(images: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(scores(module, images), labels, reduction="sum")

    def each(images: Tensor, labels: Tensor) -> tuple[Tensor, SampleGradients]:
        for parameter in trainable(module):
            parameter.grad_sample = None  # type: ignore[attr-defined]
        loss = loss_of(images.contiguous(), labels)
        torch.autograd.backward(loss)
        return loss, SampleGradients(stored(module))

    def at_once(images: Tensor, labels: Tensor) -> tuple[Tensor, SampleGradients]:
        loss = loss_of(images, labels)
        gradients = gradients_of(calls, loss)
        calls.clear()
        return loss, gradients

    def add_clipped(sums: Sums, images: Tensor, labels: Tensor) -> Tensor:
        if not len(labels):
            return torch.zeros((), device=labels.device)
        loss, gradients = way(images, labels)
        gradients.add_clipped(sums, bound, count=expected)
        return loss.detach()

    separable = is_separable(module)
    way = at_once if separable else each
    with calls_of(Watched(module)) if separable else hooked(module) as noted:
        calls: list[Any] = [] if noted is None else noted
        yield add_clipped


def _normals(job: TrainingJob) -> Callable[[float, Tensor], object]:
    """Return a function that sets a tensor to Gaussian noise of a deviation."""
    source = job.noise
    if source is None:
        raise ValueError("job.noise must be a source for DP-SGD, got None; use client_wiring")
    if isinstance(source, SystemNumbers):

        def of_system(deviation: float, noisy: Tensor) -> None:
            drawn = source.standard_normal(tuple(noisy.shape), np.float32)
            noisy.copy_(torch.from_numpy(drawn)).mul_(deviation)

        return of_system
    generator = torch.Generator(job.labels.device).manual_seed(source.initial_seed())

    def keyed(deviation: float, noisy: Tensor) -> None:
        noisy.normal_(std=deviation, generator=generator)

    return keyed


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
def hooked(module: nn.Module) -> Iterator[None]:
    """Let each backward pass in the block set Opacus's `grad_sample` of the parameters."""
    with _contiguous(module):
        hooks = GradSampleModule(module, loss_reduction="sum")
        try:
            yield
        finally:
            hooks.to_standard_module()


def stored(module: nn.Module) -> dict[nn.Parameter, Tensor]:
    """Return the gradients of samples (n, ...) that Opacus has stored in the parameters."""
    found = {p: getattr(p, "grad_sample", None) for p in trainable(module)}
    return {parameter: each for parameter, each in found.items() if each is not None}
