"""The protocol of a client's learning: train a model on a job, and score it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import isabstract
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from fl_app.client.private_losses import mean_of_clipped
from fl_app.client.recipe import PLAIN, Recipe
from fl_app.client.training import Score, Settings, as_number
from fl_app.data.checks import LabelKind
from fl_app.learner_reports import Told, asked
from fl_app.own import imported_from, unfound
from fl_app.params import FlatModule
from fl_app.system_numbers import SystemNumbers
from fl_app.types import Vector

SGD = "fl_app.client.sgd.SgdLearner"
"""The learner if neither the setting nor the network names one."""


@dataclass(frozen=True)
class TrainingJob:
    """One client's training in one round: from `start` (d,) on its samples.

    `task` has further settings from the server by name; `noise` is the source of DP-SGD's noise,
    and if nobody may foresee it, of its batches too; `layers_seed` seeds what the network's layers
    draw, such as dropout.
    `epochs` are those of this client in this round; None: those of the settings.
    """

    start: Vector
    images: Tensor
    labels: Tensor
    generator: torch.Generator
    task: Mapping[str, Any] = field(default_factory=dict)
    noise: torch.Generator | SystemNumbers | None = None
    layers_seed: int = 0
    server_round: int = 1
    epochs: int | None = None

    @property
    def asked(self) -> Mapping[str, int | None]:
        """The reports that the strategy asks for by name: the length, None for one number."""
        return asked(self.task)


@dataclass(frozen=True)
class TrainingResult:
    """The model (d,), the last epoch's mean loss, and the seconds of this client's training.

    The model is valid until the same network trains again; copy it to keep it. `reports` are what
    the strategy asks for by name, numbers or vectors; only what `job.asked` has is sent.
    """

    model: Vector
    loss: float
    seconds: float
    reports: Mapping[str, Told] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", as_number(self.loss))
        object.__setattr__(self, "seconds", as_number(self.seconds))


class Learner(ABC):
    """Trains and scores one network for all clients that run in one thread.

    The setting `client.learner` or a network's attribute `learner` names it; see `learner_of`.
    `model_kind` must be that of the strategy: the two agree on what the entries of a model mean.
    `recipe` has what the configuration names as classes, such as the optimiser.
    """

    recipe: Recipe = PLAIN

    model_kind: ClassVar[str] = "network"
    classifies: ClassVar[bool] = True
    """Whether the network answers with classes, so that a central test can score it."""
    targets: ClassVar[tuple[LabelKind, ...]] = ("classification",)
    """The kinds of labels that it can train on."""
    scores_training_data: ClassVar[bool] = False
    """Whether a client is always scored on its training data, also without a test set."""
    no_privacy: ClassVar[str | None] = None
    """Why the model cannot be made private; None: it can."""
    tells: ClassVar[tuple[str, ...]] = ()
    """The names of the reports that it can send with its model."""
    sample_dp: ClassVar[bool] = False
    """Whether DP-SGD can replace its training."""
    any_task: ClassVar[bool] = True
    """Whether it trains by any loss and class weights of the task; else by cross-entropy."""

    def __init__(self, flat: FlatModule, settings: Settings, *, classes: int) -> None:
        self.flat, self.settings, self.classes = flat, settings, classes

    @abstractmethod
    def train(self, job: TrainingJob) -> TrainingResult:
        """Train from `job.start`."""

    @abstractmethod
    def score(self, model: Vector, images: Tensor, labels: Tensor) -> Score:
        """Return the score of `model` (d,) on images (s, C, H, W) and labels (s,)."""

    def bounded_loss(self, model: Vector, images: Tensor, labels: Tensor, *, bound: float) -> float:
        """Return the loss of `model` (d,) on samples (s, ...), clipped to [0, bound].

        A learner for DP-SGD clips the loss of each sample; here, where a client's data are hidden
        as a whole, it is enough to clip their mean.
        """
        return mean_of_clipped(np.array([self.score(model, images, labels).loss]), bound=bound)

    def own_model(self, job: TrainingJob, own: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """Return a client's own model after `job`, from its tensors by name: see `Ditto`.

        Only for learners that train by SGD: a configuration with another one is refused before.
        """
        raise TypeError(f"{type(self).__name__} must be a SgdLearner to train a client's own model")

    @classmethod
    def answers_labels(cls) -> bool:
        """Whether its answers are compared with labels: those of classes or of centroids."""
        return cls.classifies or cls.model_kind != "network"

    @classmethod
    def fuses(cls, module: nn.Module) -> bool:
        """Whether the clients of a cohort can train `module` as one computation."""
        return False

    def fused(self) -> Self:
        """Return a learner that trains with the cohort it is called in, where it can."""
        return self

    def alone(self) -> Self:
        """Return a learner that trains without a cohort."""
        return self


def learner_of(module: nn.Module, named: str | None) -> type[Learner]:
    """Return the class at the path `named`; None: at the network's attribute `learner`, or SGD."""
    path: Any = named or getattr(module, "learner", SGD)
    try:
        return learner_at(path)
    except ValueError as error:
        rule = f"the network's attribute learner must be {error}"
        raise ValueError(f"{rule}, got {path!r}; or give client.learner") from error


def learner_at(path: str) -> type[Learner]:
    """Return the learner at a dotted path; raises ValueError with the rule that it breaks."""
    try:
        found: object = imported_from(path)
    except Exception as error:  # the import of a user's module can raise anything
        why = unfound(path) or " ".join(str(error).split())
        raise ValueError(f"the path of a class that can be imported ({why})") from error
    if not (isinstance(found, type) and issubclass(found, Learner)) or isabstract(found):
        raise ValueError(
            "the path of a subclass of fl_app.client.learner.Learner with the methods train and "
            "score (docs/extend/learner.md)"
        )
    return found
