"""Runs a client's local training, alone or together with its cohort."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from logging import getLogger
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fl_app.client.cohort_barrier import gathered, together
from fl_app.client.fused_training import train_cohort
from fl_app.client.training import Settings, train
from fl_app.params import FlatModule
from fl_app.types import Vector

log = getLogger(__name__)


@dataclass(frozen=True)
class TrainingJob:
    """One client's training in one round: from `start` (d,) on its samples.

    `task` has further settings from the server by name; `noise` is the generator of DP-SGD's
    noise.
    """

    start: Vector
    images: Tensor
    labels: Tensor
    generator: torch.Generator
    task: Mapping[str, Any] = field(default_factory=dict)
    noise: torch.Generator | None = None


@dataclass(frozen=True)
class TrainingResult:
    """The model (d,), the last epoch's mean loss, and the seconds of this client's training.

    The model is valid until the same network trains again; copy it to keep it.
    """

    model: Vector
    loss: float
    seconds: float


Trainer = Callable[[TrainingJob], TrainingResult]


def choose(flat: FlatModule, settings: Settings, *, fused: bool) -> Trainer:
    """Return the trainer of a client with the network `flat`."""
    if fused:
        return partial(_train_together, flat, settings)
    return partial(_train_alone, flat, settings)


def _train_alone(flat: FlatModule, settings: Settings, job: TrainingJob) -> TrainingResult:
    began = perf_counter()
    flat.load(job.start)
    loss = train(flat.module, job.images, job.labels, settings, generator=job.generator)
    return TrainingResult(flat.view(), loss, perf_counter() - began)


def _train_together(flat: FlatModule, settings: Settings, job: TrainingJob) -> TrainingResult:
    if not gathered():
        return _train_alone(flat, settings, job)
    flat.layout.check(job.start)  # a wrong start must fail only this client
    outcome: TrainingResult = together(job, partial(as_fits, partial(_fused, flat, settings)))
    return outcome


def as_fits(
    run: Callable[[Sequence[TrainingJob]], list[TrainingResult]], jobs: Sequence[TrainingJob]
) -> list[TrainingResult]:
    """Run the jobs at once; while they exceed the memory of the device, in halves.

    Raises torch.OutOfMemoryError if a single job exceeds it.
    """
    states = [job.generator.get_state() for job in jobs]
    try:
        return run(jobs)
    except torch.OutOfMemoryError:
        if len(jobs) == 1:
            raise
    # outside the handler, in which the exception would keep the memory allocated
    half = (len(jobs) + 1) // 2
    log.warning("%d clients exceed the memory of the device; trying %d", len(jobs), half)
    for job, state in zip(jobs, states, strict=True):
        job.generator.set_state(state)
    return as_fits(run, jobs[:half]) + as_fits(run, jobs[half:])


def _fused(
    flat: FlatModule, settings: Settings, jobs: Sequence[TrainingJob]
) -> list[TrainingResult]:
    began = perf_counter()
    starts = torch.from_numpy(np.stack([job.start for job in jobs])).to(flat.flat.device)
    models, losses = train_cohort(
        flat.module,
        starts,
        [job.images for job in jobs],
        [job.labels for job in jobs],
        settings,
        generators=[job.generator for job in jobs],
    )
    trained = models.cpu().numpy()
    each = (perf_counter() - began) / len(jobs)
    return [
        TrainingResult(model, loss, each)
        for model, loss in zip(trained, losses.tolist(), strict=True)
    ]
