"""Losses on training data that leave a client with a privacy: clipped, averaged, and with noise.

A message asks for one answer: with several models the client chooses one by all of their losses,
with TOLD it also tells the loss of the model that it trains. Or it holds out some of its samples,
and tells the losses of two models on each part of them; then it chooses and tells nothing else.
The choice and the told loss come from the same noisy losses, so that the answer costs the same
whatever of it is sent. The losses are those of the received models, before training. The mean of
the last epoch, which a client without privacy tells, would also tell which samples DP-SGD drew.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from fl_app.client.training_plan import TrainingPlan
from fl_app.learner_reports import HELD_OUT, asked
from fl_app.system_numbers import Numbers
from fl_app.types import Vector

SHARED, TOLD = "loss_share", "tells_loss"
"""Names in the messages: whether losses have a share of the run's budget, and whether the client
tells the loss of the model that it trains."""


def planned(plan: TrainingPlan, task: Mapping[str, Any]) -> TrainingPlan:
    """Return the plan of a client, with a share of the budget for losses if `task` says so."""
    return replace(plan, losses=bool(task.get(SHARED)))


def answers(task: Mapping[str, Any], models: int) -> bool:
    """Whether the answer to a message of training with this many models has losses."""
    return models > 1 or bool(task.get(TOLD)) or HELD_OUT in asked(task)


def mean_of_clipped(losses: np.ndarray, *, bound: float) -> float:
    """Return `mean(min(max(l, 0), bound))` of losses (s,), in [0, bound]; NaN counts as `bound`."""
    known = np.nan_to_num(losses.astype(np.float64), nan=bound, posinf=bound, neginf=0.0)
    return float(np.clip(known, 0.0, bound).mean())


def with_noise(losses: Vector, *, deviation: float | np.ndarray, draw: Numbers) -> Vector:
    """Return losses (k,) with independent Gaussian noise of this deviation (k,) on each."""
    noisy: Vector = (losses + deviation * draw.standard_normal(len(losses))).astype(np.float32)
    return noisy


def on_parts(
    losses: Vector, parts: Sequence[Tensor], deviation: Callable[[int], float], draw: Numbers
) -> Vector:
    """Return the losses (2 p,) of two models on p parts of held-out samples, with noise.

    `deviation` is that for a part with a number of samples. A part without samples stays 0, which
    tells no more than the number of all samples.
    """
    each = [deviation(len(part)) if len(part) else 0.0 for part in parts]
    return with_noise(losses, deviation=np.tile(each, 2), draw=draw)
