"""Faults planted into the product's privacy, which the audit must find."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from fl_app.client import local_dp, private_losses, private_training, sketch_release
from fl_app.client.accountant import Release
from fl_app.client.clipped_gradients import SampleGradients
from fl_app.client.learner import TrainingJob
from fl_app.client.pending_noise import PendingNoise
from fl_app.client.weight_products import Sums

Fault = Callable[[], AbstractContextManager[Any]]
WEAK = 0.1


def weak_sample_noise() -> AbstractContextManager[Any]:
    """Let DP-SGD add a tenth of its noise."""
    sound = private_training._normals

    def weak(job: TrainingJob) -> Callable[[float, Tensor], object]:
        noise = sound(job)
        return lambda deviation, like: noise(WEAK * deviation, like)

    return patch.object(private_training, "_normals", weak)


def noise_left_out() -> AbstractContextManager[Any]:
    """Let rows of embeddings stay without the noise since they were read last."""
    sound = PendingNoise.settle

    def of_read(self: PendingNoise, rows: Tensor | None = None) -> None:
        if rows is not None:
            sound(self, rows)

    return patch.object(PendingNoise, "settle", of_read)


def unclipped_samples() -> AbstractContextManager[Any]:
    """Let DP-SGD sum the gradients of samples as they are."""

    def summed(self: SampleGradients, sums: Sums, bound: float, *, count: int = 1) -> None:
        every = torch.ones_like(self.squares)
        self.add_weighted(sums, every / count, every.bool())

    return patch.object(SampleGradients, "add_clipped", summed)


def all_in_each_batch() -> AbstractContextManager[Any]:
    """Let DP-SGD train on all samples in each step, while the ledger counts drawn batches."""

    def batches(samples: int, release: Release, generator: torch.Generator) -> Iterator[Tensor]:
        yield from (torch.arange(samples) for _ in range(release.steps))

    return patch.object(private_training, "_batches", batches)


def weak_update_noise() -> AbstractContextManager[Any]:
    """Let clients add a tenth of the noise to their updates."""
    sound = local_dp.add_noise

    def weak(update: Any, *, deviation: float, generator: Any) -> Any:
        return sound(update, deviation=WEAK * deviation, generator=generator)

    return patch.object(local_dp, "add_noise", weak)


def unclipped_update() -> AbstractContextManager[Any]:
    """Let clients add noise to updates of any length."""
    return patch.object(local_dp, "clip", lambda update, *, bound: update)


def weak_sketch_noise() -> AbstractContextManager[Any]:
    """Let clients add a tenth of the noise to their sketches."""
    sound = sketch_release.noisy_direction

    def weak(vector: Any, *, deviation: float, draw: Any) -> Any:
        return sound(vector, deviation=WEAK * deviation, draw=draw)

    return patch.object(sketch_release, "noisy_direction", weak)


def exact_losses() -> AbstractContextManager[Any]:
    """Let clients tell losses without noise."""

    def exact(losses: Any, *, deviation: float, draw: Any) -> Any:
        return losses.astype(np.float32)

    return patch.object(private_losses, "with_noise", exact)


def unclipped_losses() -> AbstractContextManager[Any]:
    """Let clients tell the mean of losses of any size, with noise for clipped ones."""
    return patch.object(private_training, "mean_of_clipped", lambda losses, *, bound: losses.mean())


sound: Fault = nullcontext
