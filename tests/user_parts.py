"""Learners, populations, attacks and distances as users write them, most with a mistake."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from fl_app.client.attacks import Accomplices, Attack
from fl_app.client.learner import TrainingJob, TrainingResult
from fl_app.client.sgd import SgdLearner
from fl_app.client.training import Score
from fl_app.data.datasets import Dataset
from fl_app.data.population import Population
from fl_app.params import Layout


class Scalars(SgdLearner):
    """Returns numbers of NumPy and torch."""

    def train(self, job: TrainingJob) -> TrainingResult:
        found = super().train(job)
        return replace(found, loss=torch.tensor(found.loss), seconds=np.float32(1))

    def score(self, model: np.ndarray, images: torch.Tensor, labels: torch.Tensor) -> Score:
        found = super().score(model, images, labels)
        return replace(found, loss=np.float32(found.loss), accuracy=torch.tensor(found.accuracy))


class Undefined(torch.nn.Module):
    """A loss that is NaN."""

    def forward(self, answers: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return answers.sum() * torch.nan


class Counting(torch.nn.CrossEntropyLoss):
    """Falls with the number of its calls, which its class counts."""

    calls = 0

    def forward(self, answers: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        Counting.calls += 1
        return super().forward(answers, labels) / Counting.calls


class Collecting(SgdLearner):
    """Keeps its models in a list of the class."""

    models: ClassVar[list[np.ndarray]] = []

    def train(self, job: TrainingJob) -> TrainingResult:
        found = super().train(job)
        self.models.append(np.array(found.model[:2]))
        return found


class Short(SgdLearner):
    """Returns a model without its last number."""

    def train(self, job: TrainingJob) -> TrainingResult:
        found = super().train(job)
        return replace(found, model=found.model[:-1])


class Lossless(SgdLearner):
    """Returns no number as its loss."""

    def train(self, job: TrainingJob) -> TrainingResult:
        return replace(super().train(job), loss=float("nan"))


class Remembering(SgdLearner):
    """Corrects each training of a client by what it remembers of the last one."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.last: dict[int, list[torch.Tensor]] = {}

    def train(self, job: TrainingJob) -> TrainingResult:
        found = super().train(job)
        model = torch.from_numpy(found.model.copy())
        model -= 0.1 * self.last.get(0, [torch.zeros_like(model)])[0]
        self.last[0] = [model]
        return replace(found, model=model.numpy())


class Failing(SgdLearner):
    """Fails in each training."""

    def train(self, job: TrainingJob) -> TrainingResult:
        raise RuntimeError("no luck")


class Scaling(SgdLearner):
    """Writes into the inputs of a client."""

    def train(self, job: TrainingJob) -> TrainingResult:
        job.images.mul_(0.5)
        return super().train(job)


class Relabelling(SgdLearner):
    """Writes into the labels of a client, when it scores."""

    def score(self, model: np.ndarray, images: torch.Tensor, labels: torch.Tensor) -> Score:
        labels[:1] = 0
        return super().score(model, images, labels)


class Overwriting(SgdLearner):
    """Writes into the model from the server."""

    def train(self, job: TrainingJob) -> TrainingResult:
        start = job.start
        start *= 0.9
        return super().train(job)


class Asking(SgdLearner):
    """Needs what only its method sends."""

    def train(self, job: TrainingJob) -> TrainingResult:
        assert job.task["temperature"]
        return super().train(job)


class Percent(SgdLearner):
    """Scores in percent."""

    def score(self, model: np.ndarray, images: torch.Tensor, labels: torch.Tensor) -> Score:
        return replace(super().score(model, images, labels), accuracy=70.0)


class Unscored(SgdLearner):
    """Tells no accuracy, though it has classes."""

    def score(self, model: np.ndarray, images: torch.Tensor, labels: torch.Tensor) -> Score:
        return replace(super().score(model, images, labels), accuracy=None)


class Embedding(Unscored):
    """Answers with numbers that are no scores of classes, and so tells no accuracy."""

    classifies = False


class Worded(SgdLearner):
    """Tells a metric in words."""

    told: ClassVar[Any] = "high"

    def score(self, model: np.ndarray, images: torch.Tensor, labels: torch.Tensor) -> Score:
        return replace(super().score(model, images, labels), metrics={"f1": self.told})


class Unnamed(Worded):
    """Tells a metric that the task does not name."""

    def score(self, model: np.ndarray, images: torch.Tensor, labels: torch.Tensor) -> Score:
        """Return the score, with a measure of its own."""
        return replace(super().score(model, images, labels), metrics={"dice": 0.5})


class Listed(Worded):
    """Tells a list in place of a metric."""

    told: ClassVar[Any] = [0.1, 0.2]


class Truth(Worded):
    """Tells a boolean in place of a metric."""

    told: ClassVar[Any] = True


class Uncounted(SgdLearner):
    """Tells a share in place of the number of samples."""

    def score(self, model: np.ndarray, images: torch.Tensor, labels: torch.Tensor) -> Score:
        return replace(super().score(model, images, labels), samples=0.5)


class Unclassed(SgdLearner):
    """Tells an accuracy, though it has no classes."""

    classifies = False


class Pair(SgdLearner):
    """Scores by a pair of numbers."""

    def score(self, model: np.ndarray, images: torch.Tensor, labels: torch.Tensor) -> Any:
        return 1.0, 0.5


class Reading(SgdLearner):
    """Reads a network that answers with several tensors."""

    def train(self, job: TrainingJob) -> TrainingResult:
        return TrainingResult(np.array(job.start), 0.5, 0.0)

    def score(self, model: np.ndarray, images: torch.Tensor, labels: torch.Tensor) -> Score:
        self.flat.load(model)
        right = self.flat.module(images)["scores"].argmax(1) == labels
        return Score(1.0, float(right.float().mean()), len(labels))


@dataclass(frozen=True, kw_only=True)
class Odd(Attack):
    """An attack with a mistake by name."""

    fault: str

    def poison(self, images: Any, labels: Any, draw: torch.Generator) -> Any:
        if self.fault == "writes":
            labels[:] = 0
        if self.fault == "fewer":
            return images[1:], labels
        if self.fault == "twice":
            return torch.cat([images, images]), torch.cat([labels, labels])
        if self.fault == "raises":
            raise KeyError("ward")
        return images, labels

    def forge(self, update: Any, draw: np.random.Generator, others: Accomplices) -> Any:
        if self.fault == "writes into others":
            others()[:] = 0
        return update[:-1] if self.fault == "short" else -update


@dataclass(frozen=True, kw_only=True)
class Partial(Attack):
    """An attack with a setting whose name is near to that of another one, `start`."""

    part: float


def people(dataset: Dataset, *, seed: int, clients: int, fault: str) -> Any:
    """Return a split of the data set, with a fault by name."""
    train = [np.arange(40) + 40 * client for client in range(clients)]
    test = [np.arange(10) + 10 * client for client in range(clients)]
    groups: Any = np.arange(clients) % 2
    transform = None
    if fault == "lists":
        train, groups = [part.tolist() for part in train], groups.tolist()
    elif fault == "empty":
        test[1] = test[1][:0]
    elif fault == "negative":
        train[0] = train[0] - 1
    elif fault == "beyond":
        test[0] = test[0] + 10_000
    elif fault == "mask":
        train = [np.isin(np.arange(len(dataset.train_labels)), part) for part in train]
    elif fault == "fewer":
        train = train[:-1]
    elif fault == "named":
        groups = np.array(["a", "b"] * clients)[:clients]
    elif fault == "raises":
        raise KeyError("ward")
    elif fault == "cut":
        transform = lambda inputs, labels, group: (inputs[:-1], labels)  # noqa: E731
    elif fault == "unseeded":
        train = [np.random.default_rng().permutation(1000)[:40] for _ in range(clients)]
    elif fault == "unseeded inputs":
        transform = lambda inputs, labels, group: (inputs + torch.rand(1), labels)  # noqa: E731
    names = {"fewer names": [1, 2], "equal names": [1] * clients}.get(fault, range(clients))
    made = Population(dataset, train, test, groups, transform, names)
    return made if fault != "pair" else (train, test)


def unseeded(*, seed: int) -> Dataset:
    """Return rows that are others at each call."""
    rows, labels = np.random.rand(40, 3).astype(np.float32), np.arange(40) % 2
    return Dataset("unseeded", 2, rows, labels, rows, labels)


def absent(*, seed: int) -> Dataset:
    """Raise an error, as for a file that is not there."""
    raise FileNotFoundError("no such file: wards.db")


def apart(models: np.ndarray, others: np.ndarray, layout: Layout) -> np.ndarray:
    """Return the largest difference of the first numbers."""
    found: np.ndarray = np.abs(models[:, None, :9] - others[None, :, :9]).max(2)
    return found


def writing(models: np.ndarray, others: np.ndarray, layout: Layout) -> np.ndarray:
    """Write into the models of the clients."""
    models -= models.mean(axis=1, keepdims=True)
    return apart(models, others, layout)


def negative(models: np.ndarray, others: np.ndarray, layout: Layout) -> np.ndarray:
    """Return a similarity in the place of a distance."""
    return -apart(models, others, layout)


def one_way(models: np.ndarray, others: np.ndarray, layout: Layout) -> np.ndarray:
    """Return another number in the other direction."""
    return apart(models, others, layout) * (1 + (models[:, :1] > others[:, 0]))


def near(models: np.ndarray, others: np.ndarray, layout: Layout) -> np.ndarray:
    """Return a number above 0 for a model and itself."""
    return 1 + apart(models, others, layout)


def one_row(models: np.ndarray, others: np.ndarray, layout: Layout) -> np.ndarray:
    """Return a number for each model."""
    return apart(models, others, layout)[:, 0]


def undefined(models: np.ndarray, others: np.ndarray, layout: Layout) -> np.ndarray:
    """Return no numbers."""
    return apart(models, others, layout) * np.nan


def of_two(models: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return a distance that knows no layout."""
    return np.zeros((len(models), len(others)))
