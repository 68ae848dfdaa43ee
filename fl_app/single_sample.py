"""Whether a client can train on a batch of one sample, as the last one of an epoch can be."""

from logging import getLogger
from math import isfinite

import torch
from torch import Tensor

from fl_app.client.learner import Learner, TrainingJob
from fl_app.params import is_finite
from fl_app.reasons import reason_of
from fl_app.types import Vector

log = getLogger(__name__)


def warn_of_one(learner: Learner, start: Vector, images: Tensor, labels: Tensor) -> None:
    """Log that training on the first of some samples alone fails, as by a deviation over a batch.

    A client that has such a batch then sends nothing valid, whatever its learning rate.
    """
    draw = torch.Generator().manual_seed(0)
    try:
        done = learner.train(TrainingJob(start, images[:1], labels[:1], draw, epochs=1))
        sound = isfinite(done.loss) and is_finite(done.model)
        fault = None if sound else "numbers that are not finite"
    except Exception as error:  # a user's class can raise anything
        fault = reason_of(error)
    if fault is not None:
        log.warning(
            "training on a batch of one sample gives %s, so that a client whose last batch has one "
            "is rejected in each round: let network and loss take one sample, or give a "
            "client.batch_size with which no client has a single one left", fault,
        )  # fmt: skip
