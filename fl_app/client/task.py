"""Tasks: what labels and the answers of a network mean, the loss, and what else is measured."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from hydra.utils import get_object
from torch import Tensor, nn

from fl_app.data.checks import PADDING_LABEL, LabelKind

Loss = Callable[[Tensor, Tensor], Tensor]
"""Maps answers and labels to their mean loss."""
PLAIN_LOSS = {"_target_": "torch.nn.CrossEntropyLoss"}
WEIGHTS = ("weight", "pos_weight")
"""Arguments of the losses of torch that are tensors."""
DISTANCES = frozenset(f"torch.nn.{name}Loss" for name in ("MSE", "L1", "SmoothL1", "Huber"))
"""Losses that are never negative."""
ENTROPIES = frozenset(f"torch.nn.{name}Loss" for name in ("CrossEntropy", "BCEWithLogits"))
"""Losses that are not negative for classes and for labels in 0..1."""
NAME = re.compile("[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """What labels and a network's answers mean.

    `loss` and each of `metrics` are a class by `_target_` and its arguments. `classes` below is
    the number of classes of the data, for regression the number of values per sample.
    """

    loss: dict[str, Any]
    class_weights: Literal["balanced"] | None
    metrics: dict[str, dict[str, Any]]

    kind: ClassVar[LabelKind]
    """The kind of labels, as a data set names it."""
    has_accuracy: ClassVar[bool] = True
    """Whether an answer is right or wrong."""

    @property
    def plain(self) -> bool:
        """Whether the loss is the cross-entropy that a fused cohort and DP-SGD have."""
        return False

    @property
    def least_loss(self) -> float | None:
        """0 for a loss that is never negative; None: not known."""
        weights = (each for name in WEIGHTS for each in self.loss.get(name) or ())
        losses = DISTANCES if self.kind == "regression" else DISTANCES | ENTROPIES
        known = self.loss.get("_target_") in losses
        return 0.0 if known and all(each >= 0 for each in weights) else None

    def check(self, target: LabelKind) -> None:
        """Raise ValueError for settings that contradict each other, or data with other labels.

        `target` is the kind of the labels; the data set has checked the labels themselves.
        """
        if target != self.kind:
            raise ValueError(
                f"task must be {target} with data whose labels are of this kind, got {self.kind}; "
                f"give task={target}, or other data"
            )
        twice = [name for name in WEIGHTS if self.loss.get(name) is not None]
        if self.class_weights is not None and twice:
            raise ValueError(
                f"task.loss.{twice[0]} must not be given with task.class_weights="
                f"{self.class_weights}, which sets it, got {self.loss[twice[0]]}; remove one"
            )
        weights = self.loss.get("weight")
        if isinstance(weights, list) and weights and not any(weights):
            raise ValueError(
                "task.loss.weight must be above 0 for some class, or nothing is learnt, got "
                f"{weights}; give such a weight, or remove it"
            )
        for name in self.metrics:
            if not NAME.fullmatch(name):
                raise ValueError(
                    "task.metrics must have names of letters, digits and underscores, got "
                    f"{name!r}; rename it"
                )

    def arranged(self, answers: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return answers and labels as the loss takes them."""
        return answers, labels

    @abstractmethod
    def predictions(self, answers: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return predictions and labels as metrics take them: probabilities, or values."""

    def right(self, answers: Tensor, labels: Tensor) -> tuple[Tensor, int]:
        """Return how many answers are right, and how many there are; if `has_accuracy`."""
        raise TypeError(f"{type(self).__name__} has no right answers; give it a method `right`")

    def loss_of(self, labels: Tensor | None, classes: int) -> Loss:
        """Return the loss; with the `labels` of a client, weighted by its classes if set so."""
        weights = {}
        if self.class_weights is not None and labels is not None:
            weights = self._weights(labels, classes)
        criterion = self.criterion(**weights)

        def mean(answers: Tensor, labels: Tensor) -> Tensor:
            if isinstance(criterion, nn.Module):
                criterion.to(answers.device)  # its buffers, such as weights of classes
            found: Tensor = criterion(*self.arranged(answers, labels))
            # labels without weight, as padding, have no mean, and there is nothing to learn from
            return found if self.count(labels) else answers.sum() * 0.0

        return mean

    def criterion(self, **more: Tensor) -> Any:
        """Return the loss as it is named, with `more` arguments.

        The losses of torch take weights as tensors, which a configuration has as numbers.
        """
        options = {name: value for name, value in self.loss.items() if name != "_target_"}
        build = get_object(str(self.loss.get("_target_")))
        if getattr(build, "__module__", "").startswith("torch."):
            options |= {
                name: torch.tensor(options[name], dtype=torch.float32)
                for name in WEIGHTS
                if options.get(name) is not None
            }
        return build(**options | more)

    def count(self, labels: Tensor) -> float:
        """Return the weight of these labels in a mean of losses: their number, or what it is of."""
        return float(len(labels))

    def _weighed(self, labels: Tensor) -> float:
        """Return the weight of classes (s,): the cross-entropy with weights is a mean by these."""
        if (given := self.loss.get("weight")) is None:
            return float(len(labels))
        build = get_object(str(self.loss.get("_target_")))
        if not (isinstance(build, type) and issubclass(build, nn.CrossEntropyLoss | nn.NLLLoss)):
            return float(len(labels))
        return float(torch.tensor(given, dtype=torch.float64)[labels.cpu()].sum())

    def _weights(self, labels: Tensor, classes: int) -> dict[str, Tensor]:
        """Return the weight of each class as an argument of the loss: n / (present * count)."""
        counts = torch.bincount(labels, minlength=classes).float()
        weights = len(labels) / (counts.clamp(min=1) * (counts > 0).sum())
        return {"weight": weights * (counts > 0)}


@dataclass(frozen=True, kw_only=True)
class Classification(Task):
    """One class per sample: answers are scores (s, c), labels whole numbers (s,) in 0..c-1."""

    kind = "classification"

    @property
    def plain(self) -> bool:
        return self.loss == PLAIN_LOSS and self.class_weights is None

    def check(self, target: LabelKind) -> None:
        super().check(target)
        ignored = self.loss.get("ignore_index")
        if isinstance(ignored, int) and ignored >= 0:
            raise ValueError(
                "task.loss.ignore_index must not be a class of a classification, where every "
                f"sample counts in the accuracy, got {ignored}; remove it, and leave the samples "
                "of this class out of the data"
            )

    def predictions(self, answers: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return answers.softmax(1), labels

    def right(self, answers: Tensor, labels: Tensor) -> tuple[Tensor, int]:
        return (answers.argmax(1) == labels).sum(), len(labels)

    def count(self, labels: Tensor) -> float:
        return self._weighed(labels)


@dataclass(frozen=True, kw_only=True)
class Tokens(Task):
    """A class per token: answers are scores (s, t, c), labels (s, t); some labels are padding."""

    kind = "tokens"

    def check(self, target: LabelKind) -> None:
        super().check(target)
        if self.loss.get("ignore_index", PADDING_LABEL) != PADDING_LABEL:
            raise ValueError(
                f"task.loss.ignore_index must be {PADDING_LABEL}, the label of padding, got "
                f"{self.loss['ignore_index']}; remove it"
            )

    def arranged(self, answers: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return answers.flatten(0, 1), labels.flatten()

    def predictions(self, answers: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        scores, wanted = self.arranged(answers, labels)
        shown = wanted != PADDING_LABEL
        return scores[shown].softmax(1), wanted[shown]

    def right(self, answers: Tensor, labels: Tensor) -> tuple[Tensor, int]:
        scores, wanted = self.predictions(answers, labels)
        return (scores.argmax(1) == wanted).sum(), len(wanted)

    def count(self, labels: Tensor) -> float:
        return self._weighed(labels[labels != PADDING_LABEL])

    def _weights(self, labels: Tensor, classes: int) -> dict[str, Tensor]:
        return super()._weights(labels[labels != PADDING_LABEL], classes)


@dataclass(frozen=True, kw_only=True)
class Multilabel(Task):
    """Any number of labels per sample: answers are scores (s, c), labels (s, c) of 0 and 1.

    The accuracy is the share of single labels that are right, at a score of 0.
    """

    kind = "multilabel"

    def arranged(self, answers: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return answers, labels.float()

    def predictions(self, answers: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return answers.sigmoid(), labels.long()

    def right(self, answers: Tensor, labels: Tensor) -> tuple[Tensor, int]:
        return ((answers > 0) == (labels > 0)).sum(), labels.numel()

    def _weights(self, labels: Tensor, classes: int) -> dict[str, Tensor]:
        ones = labels.float().sum(0)
        return {"pos_weight": (len(labels) - ones).clamp(min=1) / ones.clamp(min=1)}


@dataclass(frozen=True, kw_only=True)
class Regression(Task):
    """Numbers per sample: answers and labels are (s,), (s, 1) or (s, c).

    Other answers, such as a mean and a variance for one label, are for a user's loss and metrics.
    """

    kind = "regression"

    has_accuracy = False

    def check(self, target: LabelKind) -> None:
        super().check(target)
        if self.class_weights is not None:
            raise ValueError(
                f"task.class_weights must be null with task=regression, got {self.class_weights}; "
                "remove it, since there are no classes"
            )

    def arranged(self, answers: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        same = answers.numel() == labels.numel()
        return answers.reshape(labels.shape) if same else answers, labels.float()

    def predictions(self, answers: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return self.arranged(answers, labels)
