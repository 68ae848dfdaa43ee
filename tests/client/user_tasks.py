"""Data and networks of a user's own tasks, each by `_target_`."""

from math import prod

import numpy as np
import torch
from torch import Tensor, nn

from fl_app.data.checks import LabelKind
from fl_app.data.datasets import Dataset
from fl_app.rng import generator

SAMPLES, FEATURES, WORDS, LENGTH = 240, 6, 12, 5


def _parts(
    name: str,
    classes: int,
    inputs: np.ndarray,
    labels: np.ndarray,
    target: LabelKind = "classification",
) -> Dataset:
    cut = SAMPLES * 3 // 4
    train, test = (inputs[:cut], labels[:cut]), (inputs[cut:], labels[cut:])
    return Dataset(name, classes, *train, *test, target=target)


def _features(seed: int) -> np.ndarray:
    return generator(seed, purpose="features").normal(size=(SAMPLES, FEATURES))


def numbers(*, seed: int) -> Dataset:
    """Return data whose labels are a number each, of which a line explains almost all."""
    inputs = _features(seed)
    return _parts("numbers", 1, inputs, inputs @ np.arange(FEATURES) / 4 + 0.5, "regression")


def labels(*, seed: int) -> Dataset:
    """Return data with three labels of 0 and 1 for each sample."""
    inputs = _features(seed)
    return _parts("labels", 3, inputs, (inputs[:, :3] > 0.2).astype(int), "multilabel")


def words(*, seed: int) -> Dataset:
    """Return sequences of numbered words; the label of a word is the next number, or padding."""
    inputs = generator(seed, purpose="words").integers(0, WORDS, (SAMPLES, LENGTH))
    wanted = (inputs + 1) % WORDS
    wanted[::4, -2:] = -100
    return _parts("words", WORDS, inputs, wanted, "tokens")


def rare(*, seed: int) -> Dataset:
    """Return two classes, one of which is rare."""
    inputs = _features(seed)
    return _parts("rare", 2, inputs, (inputs[:, 0] > 1.2).astype(int))


def blurred(*, seed: int) -> Dataset:
    """Return two classes, one of which is rare and hard to tell from the other."""
    inputs = _features(seed)
    noise = generator(seed, purpose="noise").normal(size=SAMPLES)
    return _parts("blurred", 2, inputs, (inputs[:, 0] + noise > 1.2).astype(int))


def cut_off(*, seed: int) -> Dataset:
    """Return classes that are stored as halves."""
    return _parts("cut off", 2, _features(seed), np.arange(SAMPLES) % 2 / 2)


def signed(*, seed: int) -> Dataset:
    """Return classes -1 and 1."""
    return _parts("signed", 2, _features(seed), np.arange(SAMPLES) % 2 * 2 - 1)


def dense(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a linear network."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))


def one_score(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network with one score for any number of classes."""
    return dense(shape, 1)


class Pair(nn.Module):
    """Scores and the inputs, as some networks return them."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return self.inside(inputs), inputs


def pair(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network that answers with two tensors."""
    return Pair(dense(shape, classes))


class Words(nn.Module):
    """Scores (s, t, c) of the next word."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.table = nn.Embedding(classes, 16)
        self.head = nn.Linear(16, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.head(self.table(inputs))
        return scores


def next_word(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network with an answer for each word."""
    return Words(classes)


class Weighted(nn.Module):
    """A loss with a weight of its own that is to be learnt."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, answers: Tensor, labels: Tensor) -> Tensor:
        """Return a mean loss, weighted."""
        return nn.functional.cross_entropy(answers, labels) * torch.exp(-self.weight) + self.weight


class Mistakes(nn.Module):
    """The share of wrong answers, which has no gradient."""

    def forward(self, answers: Tensor, labels: Tensor) -> Tensor:
        """Return a mean loss."""
        return (answers.argmax(1) != labels).float().mean()
