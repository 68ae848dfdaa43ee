"""Networks as users write them, each by `network._target_`: what privacy and saving must bear."""

from math import prod

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from fl_app.client.sgd import SgdLearner

Shape = tuple[int, int, int]
HIDDEN = 16


class Everything(nn.Module):
    """Rows of an image as tokens: tensors of every kind, each of which counts in the answer.

    An integer, a boolean, a double and an infinite buffer, one that is not saved, a frozen
    parameter, a plain tensor attribute, a number read from a tensor, and tied weights.
    """

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        _, rows, columns = shape
        self.scale = torch.tensor([2.0, 0.5])
        self.depth = torch.linspace(1, 2, 3)[1].item()
        self.register_buffer("position_ids", torch.arange(rows).flip(0))
        self.register_buffer("even", torch.arange(rows) % 2 == 0)
        self.register_buffer("masked", torch.where(torch.arange(rows) < 3, -torch.inf, 0.0))
        self.register_buffer("quarter", torch.full((1,), 0.25, dtype=torch.float64))
        self.register_buffer("waves", torch.arange(columns).sin(), persistent=False)
        self.places = nn.Embedding(rows, HIDDEN)
        self.first = nn.Linear(columns, HIDDEN)
        self.frozen = nn.Linear(HIDDEN, HIDDEN).requires_grad_(requires_grad=False)
        self.tied = nn.Linear(HIDDEN, HIDDEN)
        self.again = nn.Linear(HIDDEN, HIDDEN)
        self.again.weight = self.tied.weight
        self.head = nn.Linear(HIDDEN, classes)

    def positions(self, samples: int) -> Tensor:
        """Return the positions to embed: one row for all samples."""
        return self.position_ids

    def forward(self, images: Tensor) -> Tensor:
        rows = images.mean(1) + 0.1 * self.waves
        tokens = self.first(rows) + self.places(self.positions(len(images)))
        tokens = torch.where(self.even[:, None], tokens * self.scale[0], tokens * self.scale[1])
        tokens = self.again(functional.relu(self.tied(self.frozen(tokens)))) * self.depth
        weights = (self.masked + self.quarter.float() * tokens.mean(-1)).softmax(-1)
        return self.head((weights[..., None] * tokens).sum(1))


class Tokens(Everything):
    """The same with a row of positions for each sample, as Opacus needs it."""

    def positions(self, samples: int) -> Tensor:
        return self.position_ids.expand(samples, -1)


class BatchMean(nn.Module):
    """A layer that subtracts the mean of the batch."""

    def forward(self, values: Tensor) -> Tensor:
        return values - values.mean(0)


class MovingAverage(nn.Module):
    """A layer that holds a moving average of what it saw, and replaces the buffer each time."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(size))

    def forward(self, values: Tensor) -> Tensor:
        shifted: Tensor = values - self.average
        if self.training:
            self.average = 0.9 * self.average + 0.1 * values.detach().mean(0)
        return shifted


class Table(nn.Module):
    """A layer whose buffers never change."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("offsets", torch.randn(size))
        self.register_buffer("order", torch.randperm(size))
        self.register_buffer("used", torch.arange(size) % 3 > 0)

    def forward(self, values: Tensor) -> Tensor:
        return values[:, self.order] * self.used + self.offsets


class ScaledTable(Table):
    """A layer with a trainable parameter beside its buffers."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, values: Tensor) -> Tensor:
        return super().forward(values) * self.scale


class Recurrent(nn.Module):
    """Rows of an image as steps."""

    def __init__(self, columns: int, classes: int, *, projected: int = 0) -> None:
        super().__init__()
        self.head = nn.Linear(projected or HIDDEN, classes)
        self.steps = nn.LSTM(columns, HIDDEN, batch_first=True, proj_size=projected)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.steps(images.mean(1))[0][:, -1])
        return scores


class Vision(nn.Module):
    """Rows of an image in a transformer with dropout, a token of its own and learnt positions."""

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(shape[2], HIDDEN)
        self.token = nn.Parameter(torch.randn(1, 1, HIDDEN))
        self.places = nn.Parameter(torch.randn(1, 1 + shape[1], HIDDEN))
        layer = nn.TransformerEncoderLayer(HIDDEN, 2, HIDDEN, batch_first=True)
        self.steps, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(HIDDEN, classes)

    def forward(self, images: Tensor) -> Tensor:
        rows = self.first(images.mean(1))
        rows = torch.cat([self.token.expand(len(rows), -1, -1), rows], 1) + self.places
        scores: Tensor = self.head(self.steps(rows)[:, 0])
        return scores


class Cells(nn.Module):
    """Rows of an image as steps of a cell."""

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(shape[2], HIDDEN), nn.Linear(HIDDEN, classes)

    def forward(self, images: Tensor) -> Tensor:
        states = None
        for row in images.mean(1).unbind(1):
            states = self.cell(row, states)
        scores: Tensor = self.head(states[0])
        return scores


class Checkpointed(nn.Module):
    """Dense layers, one of them large, that the backward pass calls again."""

    def __init__(self, size: int, classes: int) -> None:
        super().__init__()
        self.first, self.large = nn.Linear(size, 512), nn.Linear(512, 512)
        self.head = nn.Linear(512, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores (n, classes)."""
        found: Tensor = self.head(checkpoint(self._inside, images.flatten(1), use_reentrant=False))
        return found

    def _inside(self, values: Tensor) -> Tensor:
        found: Tensor = self.large(self.first(values).relu()).relu()
        return found


class Rough(nn.Linear):
    """A layer whose parameters are of bfloat16."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return scores in float32."""
        return super().forward(inputs.bfloat16()).float()


class Unused(nn.Linear):
    """A layer that hands on its input as it is."""

    def __init__(self) -> None:
        super().__init__(1, 1)

    def forward(self, values: Tensor) -> Tensor:
        return values


class Teacher(nn.Module):
    """A layer whose frozen parameter follows the data."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.followed = nn.Parameter(torch.zeros(size), requires_grad=False)

    def forward(self, values: Tensor) -> Tensor:
        if self.training:
            self.followed.data.lerp_(values.detach().mean(0), 0.1)
        return values


class Stateful(nn.Module):
    """A layer that holds what it saw in a plain attribute."""

    seen: Tensor | float = 0.0

    def forward(self, values: Tensor) -> Tensor:
        shifted, self.seen = values - self.seen, values.detach().mean()
        return shifted


def _frozen(module: nn.Module) -> nn.Module:
    return module.requires_grad_(requires_grad=False)


def _dense(size: int, classes: int, *layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(size, HIDDEN), *layers, nn.Linear(HIDDEN, classes))


def frozen_backbone(shape: Shape, classes: int) -> nn.Module:
    """Return a frozen convolution and dense layer with a trainable head."""
    backbone = nn.Sequential(
        nn.Conv2d(shape[0], 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(8 * (shape[1] // 2) * (shape[2] // 2), 32), nn.ReLU(),
    )  # fmt: skip
    return nn.Sequential(_frozen(backbone), nn.Linear(32, classes))


def nothing_trainable(shape: Shape, classes: int) -> nn.Module:
    """Return a network of which every parameter is frozen."""
    return _frozen(_dense(shape[1] * shape[2], classes))


def batch_norm(shape: Shape, classes: int) -> nn.Module:
    """Return a network with batch normalisation, and constants beside it."""
    return _dense(shape[1] * shape[2], classes, nn.BatchNorm1d(HIDDEN), Table(HIDDEN), nn.ReLU())


def unscaled_norm(shape: Shape, classes: int) -> nn.Module:
    """Return a network with batch normalisation that has no parameter."""
    return _dense(shape[1] * shape[2], classes, nn.BatchNorm1d(HIDDEN, affine=False), nn.ReLU())


def untracked_norm(shape: Shape, classes: int) -> nn.Module:
    """Return a network that normalises by the batch in evaluation, too."""
    norm = nn.BatchNorm1d(HIDDEN, track_running_stats=False)
    return _dense(prod(shape), classes, norm)


def attention(shape: Shape, classes: int) -> nn.Module:
    """Return a transformer over the rows of an image."""
    layer = nn.TransformerEncoderLayer(shape[2], 2, HIDDEN, batch_first=True)
    rows = nn.Sequential(nn.Flatten(1, 2), nn.TransformerEncoder(layer, 2))
    return nn.Sequential(rows, nn.Flatten(), nn.Linear(prod(shape), classes))


class Squeezed(nn.Sequential):
    """Layers whose answers lose all dimensions of size 1, also that of a single sample."""

    def forward(self, inputs: Tensor) -> Tensor:
        answers: Tensor = super().forward(inputs)
        return answers.squeeze()


def squeezed(shape: Shape, classes: int) -> nn.Module:
    """Return a network whose answer for a single sample has no axis of samples."""
    return Squeezed(*_dense(prod(shape), classes))


def frozen_norm(shape: Shape, classes: int) -> nn.Module:
    """Return a network with batch normalisation whose parameters are frozen."""
    return _dense(shape[1] * shape[2], classes, _frozen(nn.BatchNorm1d(HIDDEN)), nn.ReLU())


def instance_norm(shape: Shape, classes: int) -> nn.Module:
    """Return a network with instance normalisation that holds running statistics."""
    norm = nn.InstanceNorm2d(shape[0], track_running_stats=True)
    return nn.Sequential(norm, _dense(shape[1] * shape[2], classes))


def batch_mean(shape: Shape, classes: int) -> nn.Module:
    """Return a network that mixes samples in a layer of its own."""
    return _dense(shape[1] * shape[2], classes, BatchMean(), nn.ReLU())


def moving_average(shape: Shape, classes: int) -> nn.Module:
    """Return a network that holds a moving average of its data."""
    return _dense(shape[1] * shape[2], classes, MovingAverage(HIDDEN), nn.ReLU())


def scaled_table(shape: Shape, classes: int) -> nn.Module:
    """Return a network with a layer that has a trainable parameter and buffers."""
    size = shape[1] * shape[2]
    return nn.Sequential(nn.Flatten(), ScaledTable(size), nn.Linear(size, classes))


def recurrent(shape: Shape, classes: int) -> nn.Module:
    """Return a recurrent network."""
    return Recurrent(shape[2], classes)


def checkpointed(shape: Shape, classes: int) -> nn.Module:
    """Return dense layers of which most are called again in the backward pass."""
    return Checkpointed(prod(shape), classes)


def projected(shape: Shape, classes: int) -> nn.Module:
    """Return a recurrent network with smaller hidden states than cells."""
    return Recurrent(shape[2], classes, projected=4)


def rough(shape: Shape, classes: int) -> nn.Module:
    """Return a network with a layer of bfloat16."""
    return _dense(
        shape[1] * shape[2], classes, nn.ReLU(), Rough(HIDDEN, HIDDEN, dtype=torch.bfloat16)
    )


def unused(shape: Shape, classes: int) -> nn.Module:
    """Return a network with a trainable layer that no answer depends on."""
    network = _dense(shape[1] * shape[2], classes)
    network.register_module("3", Unused())
    return network


def teacher(shape: Shape, classes: int) -> nn.Module:
    """Return a network with a frozen parameter that follows the data."""
    return _dense(shape[1] * shape[2], classes, Teacher(HIDDEN), nn.ReLU())


def stateful(shape: Shape, classes: int) -> nn.Module:
    """Return a network with a layer whose state is no buffer."""
    return _dense(shape[1] * shape[2], classes, Stateful(), nn.ReLU())


def constant_buffers(shape: Shape, classes: int) -> nn.Module:
    """Return a network with layer and group normalisation, dropout, and constant buffers."""
    layers = nn.LayerNorm(HIDDEN), nn.GroupNorm(4, HIDDEN), Table(HIDDEN), nn.Dropout(0.2)
    return _dense(shape[1] * shape[2], classes, *layers, nn.ReLU())


def drawn_by_numpy(shape: Shape, classes: int) -> nn.Module:
    """Return a network whose constant no torch seed repeats."""
    import numpy as np

    table = Table(HIDDEN)
    table.offsets = torch.from_numpy(np.random.default_rng().standard_normal(HIDDEN))  # float64
    table.register_buffer("noise", torch.from_numpy(np.random.default_rng().integers(99, size=9)))
    return _dense(shape[1] * shape[2], classes, table)


class Unplanned(nn.Module):
    """A layer that draws in every way: dropout as a function, and by NumPy's global state."""

    def forward(self, values: Tensor) -> Tensor:
        if not self.training:
            return values
        scale = 1 + 0.1 * float(np.random.rand())
        return functional.dropout(values, 0.3, training=True) * scale


class LayerDrop(nn.Module):
    """A layer that NumPy's global state switches off now and then."""

    def forward(self, values: Tensor) -> Tensor:
        return values if not self.training or np.random.rand() < 0.7 else 0.5 * values


def dropout(shape: Shape, classes: int) -> nn.Module:
    """Return a network with dropout."""
    return _dense(prod(shape), classes, nn.ReLU(), nn.Dropout(0.5))


def unplanned(shape: Shape, classes: int) -> nn.Module:
    """Return a network that draws in every way and has no layer of dropout."""
    return _dense(prod(shape), classes, nn.ReLU(), Unplanned())


def layer_drop(shape: Shape, classes: int) -> nn.Module:
    """Return a network in which NumPy's global state switches a layer off."""
    return _dense(prod(shape), classes, nn.ReLU(), LayerDrop())


class Idle(SgdLearner):
    """Trains like SGD, and no other training may replace it."""

    sample_dp = False


class Tame(SgdLearner):
    """Trains like SGD; a setting names it."""


def with_a_learner(shape: Shape, classes: int) -> nn.Module:
    """Return a network that names its learner."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))
    module.learner = "user_networks.Idle"
    return module


def lazy(shape: Shape, classes: int) -> nn.Module:
    """Layers that learn their sizes from the first input."""
    return nn.Sequential(
        nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(classes)
    )


def without_dense(shape: Shape, classes: int) -> nn.Module:
    """Return a network of convolutions alone."""
    return nn.Sequential(nn.Conv2d(shape[0], classes, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def in_parallel(shape: Shape, classes: int) -> nn.Module:
    """Return a network for several devices."""
    return nn.DataParallel(nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes)))


class Gated(nn.Module):
    """Rows of an image in a recurrent layer, whose own code chooses by shapes."""

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        self.rows = nn.GRU(shape[2], HIDDEN, batch_first=True)
        self.head = nn.Linear(HIDDEN, classes)

    def forward(self, images: Tensor) -> Tensor:
        told, _ = self.rows(images.mean(1))
        return self.head(told[:, -1])
