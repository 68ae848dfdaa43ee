"""Samples that a client holds out of its training, to compare two models on them."""

from collections.abc import Callable, Sequence
from math import ceil

import numpy as np
import torch
from torch import Tensor

from fl_app.learner_reports import HELD_OUT_PARTS, LARGEST
from fl_app.rng import torch_generator
from fl_app.types import Vector

SHARE = 0.2
"""Share of a client's training samples."""
WRONG = 10.0
"""What a wrong answer adds to a loss, where answers are right or wrong."""


def count(samples: int) -> int:
    """Return how many of a client's samples are held out."""
    return min(max(1, round(SHARE * samples)), samples - 1)


def fewer_steps(samples: int, batch_size: int) -> bool:
    """Return whether an epoch on the samples that are not held out has fewer batches."""
    return ceil((samples - count(samples)) / batch_size) < ceil(samples / batch_size)


def split(samples: int, *, seed: int, client: int) -> tuple[Tensor, Sequence[Tensor]]:
    """Return the samples to train on, and HELD_OUT_PARTS parts of those that are held out.

    They are the same in every round. At least one is held out and one is left; of a single sample
    none is held out. A part may be empty.
    """
    draw = torch_generator(seed, purpose="held-out samples", client=client)
    order = torch.randperm(samples, generator=draw)
    out = order[: count(samples)]
    return order[len(out) :].sort().values, [out[k::HELD_OUT_PARTS] for k in range(HELD_OUT_PARTS)]


def rest(
    images: Tensor,
    labels: Tensor,
    *,
    seed: int,
    client: int,
    again: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the samples (s, ...) and labels (s,) that are not held out.

    With `again`, it draws as many of them to come twice as are held out, so that a training has as
    many steps as on all samples.
    """
    rows = split(len(labels), seed=seed, client=client)[0]
    if again is not None:
        drawn = torch.randperm(len(rows), generator=again)[: len(labels) - len(rows)]
        rows = torch.cat([rows, rows[drawn]])
    rows = rows.to(labels.device)
    return images[rows], labels[rows]


def penalised(loss: float, accuracy: float | None) -> float:
    """Return `l + 10 (1 - a)`, with a the share of right answers; l for a task that has none.

    Between models with equally many right answers the loss decides.
    """
    return loss if accuracy is None else loss + WRONG * (1 - accuracy)


def losses(
    models: Sequence[Vector], parts: Sequence[Tensor], loss: Callable[[Vector, Tensor], float]
) -> Vector:
    """Return the losses of each model (d,) on each part, one model after another.

    They are 0 for a part without samples, and within LARGEST also if they are not finite.
    """
    found = [loss(model, part) if len(part) else 0.0 for model in models for part in parts]
    finite = np.nan_to_num(found, nan=LARGEST, posinf=LARGEST, neginf=-LARGEST)
    bounded: Vector = np.clip(finite, -LARGEST, LARGEST).astype(np.float32)
    return bounded
