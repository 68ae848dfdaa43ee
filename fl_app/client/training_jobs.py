"""How a client's local training is computed: alone, or with the cohort it is called in."""

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
    """One client's training of one round: from `start` (d,) on its samples.

    `task` is what the server asks for beside training, by name; `noise` is where DP-SGD takes
    its noise from.
    """

    start: Vector
    images: Tensor
    labels: Tensor
    generator: torch.Generator
    task: Mapping[str, Any] = field(default_factory=dict)
    noise: torch.Generator | None = None


@dataclass(frozen=True)
class TrainingResult:
    """The model (d,), the last epoch's mean loss, and the seconds that this client took.

    The model is valid until the same network trains again: a copy is the taker's to make.
    """

    model: Vector
    loss: float
    seconds: float


Trainer = Callable[[TrainingJob], TrainingResult]


def choose(flat: FlatModule, settings: Settings, *, fused: bool) -> Trainer:
    """Return the trainer of a client whose network is `flat`: the one place that decides."""
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
    flat.layout.check(job.start)  # before it meets the others: a bad start is one client's own
    outcome: TrainingResult = together(job, partial(as_fits, partial(_fused, flat, settings)))
    return outcome


def as_fits(
    run: Callable[[Sequence[TrainingJob]], list[TrainingResult]], jobs: Sequence[TrainingJob]
) -> list[TrainingResult]:
    """Run the jobs at once, or in halves, again and again, while they do not fit the device.

    Raises torch.OutOfMemoryError when one alone does not.
    """
    states = [job.generator.get_state() for job in jobs]
    try:
        return run(jobs)
    except torch.OutOfMemoryError:
        if len(jobs) == 1:
            raise
    # outside the handler, which would hold on to what did not fit
    half = (len(jobs) + 1) // 2
    log.warning("%d clients do not fit the device at once; trying %d", len(jobs), half)
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
