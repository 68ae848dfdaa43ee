"""Networks with recurrent layers, attention, and layers of their own classes."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from fl_app.client.networks import text_classifier

SIZE, WORDS = 64, 10_000


class Recurrent(nn.Module):
    """Rows of an image as steps of a recurrent layer, whose last hidden state is scored."""

    layer: type[nn.RNNBase]

    def __init__(self, shape: Sequence[int], classes: int) -> None:
        super().__init__()
        self.steps = self.layer(shape[2], 2 * SIZE, batch_first=True)
        self.head = nn.Linear(2 * SIZE, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores (s, classes)."""
        scores: Tensor = self.head(self.steps(images.mean(1))[0][:, -1])
        return scores


class Lstm(Recurrent):
    """With an LSTM."""

    layer = nn.LSTM


class Gru(Recurrent):
    """With a GRU."""

    layer = nn.GRU


class Transformer(nn.Module):
    """Rows of an image as steps of a layer of a transformer, which are averaged and scored."""

    def __init__(self, shape: Sequence[int], classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(shape[2], SIZE)
        self.steps = nn.TransformerEncoderLayer(SIZE, 4, 2 * SIZE, batch_first=True)
        self.head = nn.Linear(SIZE, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores (s, classes)."""
        scores: Tensor = self.head(self.steps(self.first(images.mean(1))).mean(1))
        return scores


class Gate(nn.Module):
    """A layer of one's own: weighs each channel by how much of it an image has."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner, self.scale = nn.Linear(channels, channels), nn.Parameter(torch.ones(channels))

    def forward(self, values: Tensor) -> Tensor:
        """Return weighed values (s, channels, rows, columns)."""
        weights: Tensor = self.inner(values.mean((2, 3)) * self.scale).sigmoid()
        return values * weights[:, :, None, None]


class OwnDense(nn.Linear):
    """A dense layer of one's own, with an activation."""

    def forward(self, values: Tensor) -> Tensor:
        """Return the outputs (s, size)."""
        return super().forward(values).relu()


def gate(shape: Sequence[int], classes: int) -> nn.Module:
    """Return convolutions with a small layer of one's own between them."""
    last = 32 * (((shape[1] - 4) // 2 - 4) // 2) ** 2
    return nn.Sequential(
        nn.Conv2d(shape[0], 16, 5), nn.ReLU(), nn.MaxPool2d(2), Gate(16),
        nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(last, SIZE), nn.ReLU(), nn.Linear(SIZE, classes),
    )  # fmt: skip


def own_dense(shape: Sequence[int], classes: int) -> nn.Module:
    """Return dense layers, the large one of one's own."""
    return nn.Sequential(
        nn.Flatten(), OwnDense(prod(shape), 2 * SIZE), nn.Linear(2 * SIZE, classes)
    )


class Words(nn.Module):
    """A layer of one's own that looks up a vector for each of 1,000 levels of brightness."""

    def __init__(self) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(1000, SIZE))

    def forward(self, images: Tensor) -> Tensor:
        """Return the mean vectors (s, SIZE)."""
        levels = (images.flatten(1).clamp(0, 1) * 999).long()
        return self.vectors[levels].mean(1)


class LowRank(nn.Module):
    """A dense layer of one's own whose weight is the product of two matrices."""

    def __init__(self, given: int, size: int) -> None:
        super().__init__()
        self.left = nn.Parameter(torch.randn(size, SIZE // 2) / SIZE)
        self.right = nn.Parameter(torch.randn(SIZE // 2, given) / given**0.5)
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, values: Tensor) -> Tensor:
        """Return the outputs (s, size)."""
        return nn.functional.linear(values, self.left @ self.right, self.bias).relu()


class Experts(nn.Module):
    """A layer of one's own with four dense layers in one tensor, weighed for each image."""

    def __init__(self, given: int, size: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(4, size, given) / given**0.5)
        self.gate = nn.Linear(given, 4)

    def forward(self, values: Tensor) -> Tensor:
        """Return the outputs (s, size)."""
        outputs = torch.einsum("eji,si->sej", self.weights, values).relu()
        return torch.einsum("sej,se->sj", outputs, self.gate(values).softmax(1))


def experts(shape: Sequence[int], classes: int) -> nn.Module:
    """Return dense layers, the large one a mixture."""
    return nn.Sequential(nn.Flatten(), Experts(prod(shape), SIZE), nn.Linear(SIZE, classes))


def words(shape: Sequence[int], classes: int) -> nn.Module:
    """Return dense layers on the mean of vectors that a layer of one's own looks up."""
    return nn.Sequential(Words(), nn.Linear(SIZE, SIZE), nn.ReLU(), nn.Linear(SIZE, classes))


def low_rank(shape: Sequence[int], classes: int) -> nn.Module:
    """Return dense layers, the weight of the large one a product of two matrices."""
    return nn.Sequential(nn.Flatten(), LowRank(prod(shape), 2 * SIZE), nn.Linear(2 * SIZE, classes))


def weight_norm(shape: Sequence[int], classes: int) -> nn.Module:
    """Return dense layers, the weight of the large one with rows of learnt norms."""
    large = parametrizations.weight_norm(nn.Linear(prod(shape), 2 * SIZE))
    return nn.Sequential(nn.Flatten(), large, nn.ReLU(), nn.Linear(2 * SIZE, classes))


class Tokens(nn.Module):
    """One of WORDS words for each row of an image, by its pixels."""

    def forward(self, images: Tensor) -> Tensor:
        """Return the words (s, rows), none of which is padding."""
        levels = (images.mean(1).clamp(0, 1) * 255).long()
        return 1 + (levels * torch.arange(1, 1 + levels.shape[2])).sum(2) % (WORDS - 1)


def text(shape: Sequence[int], classes: int) -> nn.Module:
    """Return the classifier of texts of fl-app, on the rows of an image as words."""
    layers = text_classifier(shape[1:2], classes, vocabulary=WORDS, width=SIZE, hidden=SIZE)
    return nn.Sequential(Tokens(), layers)
