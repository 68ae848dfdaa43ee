"""Data and networks of a user's own tasks, each by `_target_`."""

from dataclasses import replace
from math import prod
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer, lr_scheduler

from fl_app.data.checks import LabelKind
from fl_app.data.datasets import Dataset
from fl_app.data.split import Owners
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


def in_order(*, seed: int) -> Dataset:
    """Return data whose first samples are all of one class."""
    inputs = _features(seed)
    wanted = (np.arange(SAMPLES) % (SAMPLES * 3 // 4) >= SAMPLES * 3 // 8).astype(int)
    return _parts("in order", 2, inputs, wanted)


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


def two_numbers(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network that answers with a mean and the logarithm of a variance."""
    return dense(shape, 2)


class Gaussian(nn.Module):
    """The mean negative log-likelihood of labels (s,) under such answers (s, 2)."""

    def forward(self, answers: Tensor, labels: Tensor) -> Tensor:
        return functional.gaussian_nll_loss(answers[:, 0], labels, answers[:, 1].exp())


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


def log_likely(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network that answers with the logarithms of probabilities."""
    return nn.Sequential(dense(shape, classes), nn.LogSoftmax(1))


def likely(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network that answers with probabilities of one class of several."""
    return nn.Sequential(dense(shape, classes), nn.Softmax(1))


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


def classes_first(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network whose scores have the classes before the words, as torch's losses take."""
    return nn.Sequential(Words(classes), nn.Flatten(), nn.Unflatten(1, (classes, shape[0])))


def first_word(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network with one answer for all words."""
    return nn.Sequential(nn.Embedding(classes, 4), nn.Flatten(), nn.Linear(4 * shape[0], classes))


def all_padding(*, seed: int) -> Dataset:
    """Return sequences of which most have padding as labels alone."""
    whole = words(seed=seed)
    wanted = np.where(np.arange(len(whole.train_labels))[:, None] % 8, -100, whole.train_labels)
    return Dataset("all padding", WORDS, whole.train_images, wanted, whole.test_images,
                   whole.test_labels, target="tokens")  # fmt: skip


def one_padded(*, seed: int) -> Dataset:
    """Return sequences of three clients, of which the first has padding as labels alone."""
    whole = words(seed=seed)
    parts = {part: getattr(whole, f"{part}_labels").copy() for part in ("train", "test")}
    member = {part: np.arange(len(labels)) % 3 for part, labels in parts.items()}
    for part, labels in parts.items():
        labels[member[part] == 0] = -100
    return replace(
        whole, train_labels=parts["train"], test_labels=parts["test"],
        owners=Owners(("a", "b", "c"), member["train"], member["test"], "who"),
    )  # fmt: skip


def with_sigmoid(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network that answers with probabilities."""
    return nn.Sequential(dense(shape, classes), nn.Sigmoid())


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


class Shifts(nn.Module):
    """A loss that writes into the labels that it is given."""

    def forward(self, answers: Tensor, labels: Tensor) -> Tensor:
        return functional.mse_loss(answers, labels.sub_(1))


class Rounds(nn.Module):
    """A loss that writes into the answers that it is given."""

    def forward(self, answers: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(answers.mul_(2), labels)


class OfAll(nn.Module):
    """A loss that needs the tokens of each sample together."""

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over the samples of scores (s, t, c) and labels (s, t)."""
        samples, _ = labels.shape
        return functional.cross_entropy(scores.flatten(0, 1), labels.flatten()) / samples


class Summed(nn.Module):
    """A loss without an argument for it that sums over the samples."""

    def forward(self, answers: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(answers, labels, reduction="sum")


class Pairs(nn.Module):
    """A loss that compares the samples of a batch with each other."""

    def forward(self, answers: Tensor, labels: Tensor) -> Tensor:
        same = (labels[:, None] == labels).float()
        return (same * (answers[:, None] - answers).square().sum(-1)).mean()


class Ranks(nn.Module):
    """A loss that ranks samples of two classes, and so fails for a batch of one class."""

    def forward(self, answers: Tensor, labels: Tensor) -> Tensor:
        gaps = answers[labels == 1, 1][:, None] - answers[labels == 0, 1]
        return -functional.logsigmoid(gaps).amax(0).mean()


class Ways(nn.Module):
    """A network that answers otherwise in training, each `way` another one."""

    def __init__(self, inside: nn.Module, way: str) -> None:
        super().__init__()
        self.inside, self.way = inside, way

    def forward(self, inputs: Tensor) -> Any:
        if self.way == "writes":
            inputs.add_(1)
        answers = self.inside(inputs)
        if not self.training:
            return answers
        if self.way == "in place":
            answers = answers.sigmoid()
            answers.mul_(2)
            return answers.mul_(answers)
        return {"pair": (answers, inputs), "detached": answers.detach()}.get(self.way, answers)


def ways(shape: tuple[int, ...], classes: int, *, way: str) -> nn.Module:
    """Return such a network."""
    return Ways(dense(shape, classes), way)


def sparse_words(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network whose embedding has sparse gradients."""
    built = Words(classes)
    built.table.sparse = True
    return built


def warm(rounds: int) -> float:
    """Return a share of the learning rate: thirds, then all."""
    return min(1.0, (rounds + 1) / 3)


def warm_then_halved(optimiser: Optimizer, *, rounds: int) -> lr_scheduler.SequentialLR:
    """Return a schedule of two: half the rate for some rounds, then a half less in each."""
    parts = [
        lr_scheduler.ConstantLR(optimiser, factor=0.5, total_iters=rounds),
        lr_scheduler.ExponentialLR(optimiser, gamma=0.5),
    ]
    return lr_scheduler.SequentialLR(optimiser, parts, milestones=[rounds])


class Found:
    """A metric by hand: the share of class 1 that is found."""

    def __init__(self) -> None:
        self.right = self.count = 0

    def update(self, predicted: Tensor, labels: Tensor) -> None:
        """Count a batch."""
        self.right += int((predicted.argmax(1) * labels).sum())
        self.count += int(labels.sum())

    def compute(self) -> Any:
        """Return the share."""
        return self.right / self.count


class Relabels(Found):
    """A metric that changes what the next one gets."""

    def update(self, predicted: Tensor, labels: Tensor) -> None:
        """Count a batch whose labels are all 1."""
        labels.numpy()[:] = 1
        super().update(predicted, labels)


class Kept(Found):
    """A metric that adds up over all clients."""

    values: ClassVar[list[float]] = []

    def compute(self) -> Any:
        """Return the share in all batches so far of all clients."""
        self.values.append(self.count + len(self.values))
        return sum(self.values)


class Nowhere(Found):
    """A metric without a value."""

    def compute(self) -> Any:
        """Return no number."""
        return float("nan")


class OfMany(Found):
    """A metric that is undefined on few samples."""

    def update(self, predicted: Tensor, labels: Tensor) -> None:
        """Count a batch."""
        self.count += len(labels)

    def compute(self) -> Any:
        """Return the number of samples."""
        if self.count < 17:
            raise ValueError("too few samples")
        return float(self.count)


class Both(Found):
    """A metric with two numbers."""

    def compute(self) -> Any:
        """Return them by name."""
        return {"right": self.right, "count": self.count}
