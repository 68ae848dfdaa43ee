"""The network: any torch.nn.Module that maps a batch of samples to an answer for each."""

import math

from pydantic import PositiveInt
from torch import nn


def perceptron(shape: tuple[int, ...], classes: int, *, width: PositiveInt) -> nn.Module:
    """Return a network with one hidden layer for samples of this shape."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(math.prod(shape), width), nn.ReLU(), nn.Linear(width, classes)
    )
