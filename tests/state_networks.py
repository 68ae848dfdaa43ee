"""Networks for inputs (s, 16), of 4 classes: some change what is neither sent nor saved."""

from collections.abc import Callable
from enum import Enum
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

SIZE, CLASSES = 16, 4


class Own(nn.Module):
    """A dense layer on inputs that a subclass changes."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(SIZE, CLASSES)
        self.prepare()

    def prepare(self) -> None:
        """Set what the layer has beside its parameters."""

    def change(self, inputs: Tensor) -> Tensor:
        """Return other inputs."""
        return inputs

    def forward(self, inputs: Tensor) -> Tensor:
        answers: Tensor = self.dense(self.change(inputs))
        return answers


class Unset(Own):
    """Has a plain attribute of NumPy that is not a number."""

    def prepare(self) -> None:
        self.threshold = np.float32("nan")


class Counter(Own):
    """Counts its batches for a warm-up that a short trial does not reach."""

    steps = 0

    def change(self, inputs: Tensor) -> Tensor:
        self.steps += self.training
        return inputs if self.steps < 500 else inputs * 0.5


class Shared(Own):
    """Counts its batches in an attribute of the class."""

    batches = 0

    def change(self, inputs: Tensor) -> Tensor:
        Shared.batches += self.training
        return inputs if Shared.batches < 500 else inputs * 0.5


class Average(Own):
    """Has a moving average in a plain attribute."""

    def prepare(self) -> None:
        self.average = torch.zeros(SIZE)

    def change(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.average = 0.9 * self.average + 0.1 * inputs.detach().mean(0)
        return inputs - self.average


class Hidden(Own):
    """Has a moving average in an object of its own, which no list of attributes shows."""

    def prepare(self) -> None:
        self.held = type("Held", (), {"average": torch.zeros(SIZE)})()

    def change(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.held.average = 0.5 * self.held.average + inputs.detach().mean(0)
        return inputs - self.held.average


class Listed(Own):
    """Has the means of its batches in a list."""

    def prepare(self) -> None:
        self.means: list[Tensor] = []

    def change(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.means.append(inputs.detach().mean(0))
        return inputs - self.means[0] if self.means else inputs


class Once(Own):
    """Sets its shift from the first batch that it trains on."""

    shifted = False

    def prepare(self) -> None:
        self.shift = nn.Parameter(torch.zeros(SIZE))

    def change(self, inputs: Tensor) -> Tensor:
        if self.training and not self.shifted:
            self.shift.data.copy_(-inputs.mean(0))
            self.shifted = True
        return inputs + self.shift


class Flagged(Own):
    """The same with an integer buffer as its flag."""

    def prepare(self) -> None:
        self.shift = nn.Parameter(torch.zeros(SIZE))
        self.register_buffer("initialized", torch.tensor(0, dtype=torch.uint8))

    def change(self, inputs: Tensor) -> Tensor:
        if not self.initialized:
            self.shift.data.copy_(-inputs.mean(0))
            self.initialized.fill_(1)
        return inputs + self.shift


class Smallest(Own):
    """Has the smallest input, which is infinite before it has seen one."""

    def prepare(self) -> None:
        self.register_buffer("smallest", torch.tensor(torch.inf))

    def change(self, inputs: Tensor) -> Tensor:
        self.smallest = torch.minimum(self.smallest, inputs.min())
        return inputs - self.smallest


class Unsaved(Own):
    """Has a moving average in a buffer that no state dict has."""

    def prepare(self) -> None:
        self.register_buffer("average", torch.zeros(SIZE), persistent=False)

    def change(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.average.lerp_(inputs.mean(0), 0.1)
        return inputs - self.average


class Teacher(Own):
    """Has a frozen parameter that follows the data."""

    def prepare(self) -> None:
        self.followed = nn.Parameter(torch.zeros(SIZE), requires_grad=False)

    def change(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.followed.data.lerp_(inputs.mean(0), 0.1)
        return inputs


class Cached(Own):
    """Computes a table from the shape of its inputs once, and shows its last inputs."""

    table: Tensor | None = None
    longest = 0

    def prepare(self) -> None:
        self.shown: dict[str, Any] = {}

    def change(self, inputs: Tensor) -> Tensor:
        if self.table is None or inputs.shape[1] > self.longest:
            self.longest = inputs.shape[1]
            self.table = torch.arange(self.longest).cos()
        self.shown = {"inputs": inputs, "mean": float(inputs.mean())}
        return inputs * self.table


class OwnDraws(Own):
    """Drops inputs by a generator of its own."""

    def prepare(self) -> None:
        self.draw = torch.Generator().manual_seed(0)

    def change(self, inputs: Tensor) -> Tensor:
        dropped = torch.rand(inputs.shape, generator=self.draw) < 0.2
        return inputs.masked_fill(dropped & self.training, 0.0)


class Recurrent(nn.Module):
    """A network of torch's recurrent layers."""

    def __init__(self, kind: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.steps, self.dense = kind(4, 8, batch_first=True), nn.Linear(8, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        answers: Tensor = self.dense(self.steps(inputs.unflatten(1, (4, 4)))[0][:, -1])
        return answers


class Attending(nn.Module):
    """A network of torch's attention."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.1, batch_first=True)
        layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.encoder, self.dense = nn.TransformerEncoder(layer, 2), nn.Linear(4, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        rows = inputs.unflatten(1, (4, 4))
        answers: Tensor = self.dense(self.encoder(self.attention(rows, rows, rows)[0]).mean(1))
        return answers


def counting(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network that counts its batches, as a configuration names it."""
    return _among(Counter(), shape, classes)


def averaging(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network with a moving average in a plain attribute."""
    return _among(Average(), shape, classes)


def flagged(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network with a flag that training sets."""
    return _among(Flagged(), shape, classes)


def _among(layer: nn.Module, shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(prod(shape), SIZE), layer, nn.Linear(CLASSES, classes)
    )


def endless(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network with a weight that is no float32 number."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes)).double()
    nn.init.constant_(module[1].bias, 1e300)
    return module


def unbuilt(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Raise what a wrong line of a constructor does."""
    raise TypeError("no layers")


def dense(layer: Callable[[nn.Module], nn.Module]) -> nn.Module:
    """Return dense layers, the first of which `layer` changes."""
    first = layer(nn.Linear(SIZE, 8))
    return nn.Sequential(first, nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, CLASSES))


def seen_by(network: Callable[..., nn.Module]) -> nn.Module:
    """Return a network of torchvision on inputs as images."""
    images = nn.Sequential(nn.Unflatten(1, (1, 4, 4)), nn.Upsample(32), nn.Conv2d(1, 3, 1))
    return nn.Sequential(images, network(num_classes=CLASSES))


class Several(nn.Module):
    """Answers with several tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        rows = images.flatten(1)
        return {"scores": self.dense(rows), "rows": rows}


def several(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network that only its learner can read."""
    return Several()


class Pool(Enum):
    """How places become one."""

    MEAN = "mean"
    MOST = "most"


def typed(
    shape: tuple[int, ...], classes: int, *, words: Path, pool: Pool, sides: tuple[int, int]
) -> nn.Module:
    """Return a network whose settings are no JSON values."""
    assert isinstance(pool, Pool)
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), sum(sides), words.is_absolute()),
                         nn.Linear(sum(sides), classes))  # fmt: skip
