"""Local training and evaluation of one model on one client's tensors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.sgd import sgd

from fl_app.client.dense_products import multiplied
from fl_app.client.dense_steps import large_layers, stepped
from fl_app.client.normalisation import Sharing, batches, paired
from fl_app.client.stragglers import Epochs, most

Precision = Literal["fp32", "bf16"]
SCORED = 500
"""Samples that are scored at a time."""


class Settings(Protocol):
    """The part of the configuration that local training reads."""

    @property
    def epochs(self) -> int | Epochs: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def momentum(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def proximal(self) -> float: ...
    @property
    def precision(self) -> Precision: ...
    @property
    def batch_norm(self) -> Sharing: ...
    @property
    def learner(self) -> str | None: ...


class Optimiser(Protocol):
    """What local training calls of an optimiser of torch."""

    def zero_grad(self) -> None:
        """Forget the gradients of the last batch."""

    def step(self) -> object:
        """Change the parameters by their gradients."""


def as_number(value: Any) -> Any:
    """Return a number of NumPy or torch as a plain one, which can be sent; others as they are."""
    return value.item() if isinstance(value, np.generic | np.ndarray | Tensor) else value


@dataclass(frozen=True)
class Score:
    """Mean loss and accuracy in [0, 1] over `samples` samples; `metrics` by name.

    A metric that is None or not finite is left out, as one that is undefined on these samples.
    The accuracy is None for a task in which an answer is not right or wrong, and for no samples.
    For centroids: mean squared distance, accuracy, and `table` (k, c), the number of points of each
    class nearest to each centroid.
    """

    loss: float
    accuracy: float | None
    samples: int
    table: np.ndarray | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", as_number(self.loss))
        object.__setattr__(self, "accuracy", as_number(self.accuracy))
        object.__setattr__(self, "samples", as_number(self.samples))
        named = {name: as_number(each) for name, each in self.metrics.items()}
        defined = {name: each for name, each in named.items() if not _undefined(each)}
        object.__setattr__(self, "metrics", defined)


def _undefined(value: Any) -> bool:
    return value is None or (isinstance(value, float) and not isfinite(value))


UNSCORED = Score(0.0, None, 0)
"""The score on samples none of which has a label that counts."""


def train(
    module: nn.Module,
    images: Tensor,
    labels: Tensor,
    settings: Settings,
    *,
    generator: torch.Generator,
    optimiser: Optimiser | None = None,
    clip_norm: float | None = None,
    loss_of: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy,
    change: Callable[[Tensor, int], Tensor] | None = None,
    toward: Sequence[Tensor] | None = None,
) -> float:
    """Train `module` in place by mini-batch SGD and return the last epoch's mean loss.

    `images` (s, C, H, W) and `labels` (s,) are on the module's device; `generator` (CPU)
    shuffles the samples in each epoch. With zero epochs nothing changes, and the loss is that of
    the received model.
    Frozen parameters do not change, even with weight decay. `optimiser` replaces SGD,
    `loss_of` the cross-entropy, `clip_norm` bounds the norm of each batch's gradient, without
    the proximal term, and `change` returns other images (s, ...) in each epoch, by its number.
    The local solver of FedAvg: McMahan et al., AISTATS 2017, algorithm 1 (ClientUpdate);
    `proximal` mu > 0 adds mu / 2 * ||w - w_start||^2 to the loss: Li et al., MLSys 2020, eq. 2.
    `toward` has other tensors in the place of w_start, one for each trainable parameter.
    """
    if not most(settings.epochs):
        module.eval()
        return mean_loss(partial(scores, module), images, labels, settings.precision, loss_of)
    module.train()
    parameters = trainable(module)
    starts = list(toward or (p.detach().clone() for p in parameters) if settings.proximal else ())
    plain = optimiser is None and clip_norm is None and not starts
    large = large_layers(module) if plain and _steps_alone(settings, images) else []
    optimiser = optimiser or PlainSgd(parameters, settings)
    total = torch.zeros((), device=labels.device)
    with multiplied(module, but=large):
        for epoch in range(most(settings.epochs)):
            total.zero_()
            order = epoch_order(len(labels), generator).to(labels.device)
            shown = images if change is None else change(images, epoch)
            for batch in batches(order, settings.batch_size, module):
                optimiser.zero_grad()
                with autocast(labels.device, settings.precision), stepped(large, settings):
                    loss = loss_of(scores(module, shown[batch]), labels[batch])
                torch.autograd.backward(loss)
                if clip_norm is not None:
                    nn.utils.clip_grad_norm_(parameters, clip_norm)
                if starts:
                    pull(parameters, starts, settings.proximal)
                optimiser.step()
                total += loss.detach() * len(batch)
    return float(total) / len(labels)


@torch.no_grad()
def mean_loss(
    answer: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    precision: Precision,
    loss_of: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy,
) -> float:
    """Return the mean loss of the answers to `images` (s, ...) with `labels` (s, ...), s >= 1."""
    total = 0.0
    for x, y in zip(*(torch.split(part, SCORED) for part in (images, labels)), strict=True):
        with autocast(y.device, precision):
            total += float(loss_of(answer(x), y)) * len(y)
    return total / len(labels)


def _steps_alone(settings: Settings, images: Tensor) -> bool:
    """Whether a step is the learning rate times the gradient, in float32 on the CPU."""
    decays = settings.momentum or settings.weight_decay
    return not decays and settings.precision == "fp32" and images.device.type == "cpu"


class PlainSgd:
    """Steps of `torch.optim.SGD`, bit for bit, with learning rate, momentum and weight decay.

    The class of torch imports its compiler when a process makes its first optimiser: 1.3 s and
    150 MB, which a client of a deployment would spend for every message.
    """

    def __init__(self, parameters: list[nn.Parameter], settings: Settings) -> None:
        self.parameters, self.settings = parameters, settings
        self._momenta: list[Tensor | None] = [None] * len(parameters)

    def zero_grad(self) -> None:
        """Forget the gradients of the last batch."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Change each parameter that has a gradient."""
        rows = [row for row, each in enumerate(self.parameters) if each.grad is not None]
        fresh = [row for row in rows if self._momenta[row] is None]
        for some in (fresh, [row for row in rows if row not in fresh]):  # torch wants them apart
            if some:
                self._step(some)

    def _step(self, rows: list[int]) -> None:
        parameters: list[Tensor] = [self.parameters[row] for row in rows]
        gradients = [each.grad for each in parameters if each.grad is not None]
        momenta = [self._momenta[row] for row in rows]
        sparse = any(each.is_sparse for each in gradients)
        sgd(
            parameters, gradients, momenta, sparse, fused=not sparse,
            lr=self.settings.learning_rate, momentum=self.settings.momentum,
            weight_decay=self.settings.weight_decay, dampening=0.0, nesterov=False, maximize=False,
        )  # fmt: skip
        for row, momentum in zip(rows, momenta, strict=True):
            self._momenta[row] = momentum


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """Return the trainable parameters, in the order of the flat vector."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def epoch_order(samples: int, generator: torch.Generator) -> Tensor:
    """Return the order (samples,) of the samples in one epoch."""
    return torch.randperm(samples, generator=generator)


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """Return the context for a forward pass with this precision."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def pull(parameters: list[nn.Parameter], starts: list[Tensor], proximal: float) -> None:
    """Add the gradient of FedProx's proximal term, mu * (w - w_start), to each gradient."""
    for parameter, start in zip(parameters, starts, strict=True):
        if parameter.grad is not None:
            parameter.grad.add_(parameter.detach() - start, alpha=proximal)


class AnswersError(ValueError):
    """Answers that are no tensor, such as a tuple, which only a learner of the user's can read."""

    def __init__(self, answers: object) -> None:
        super().__init__(
            f"the network must answer with one tensor, got {type(answers).__name__}; return the "
            "scores alone in evaluation mode, or call run.model(...) of fl_app.load_run in Python"
        )
        self.answers = answers


def scores(module: nn.Module, inputs: Tensor) -> Tensor:
    """Return what `module` answers for each sample of `inputs` (s, ...), also for a single one.

    Raises AnswersError for answers that are no tensor.
    """
    with paired(module, inputs) as given:
        answers: Any = module(given)
    if not isinstance(answers, Tensor):
        raise AnswersError(answers)
    if len(given) == 1 and (answers.dim() == 0 or len(answers) != 1):
        return answers[None]  # the network has squeezed the only sample
    return answers[: len(inputs)]


@torch.no_grad()
def evaluate(module: nn.Module, images: Tensor, labels: Tensor, *, precision: Precision) -> Score:
    """Return the score of `module` on `images` (s, C, H, W) and `labels` (s,), s >= 1."""
    module.eval()
    loss = torch.zeros((), device=labels.device)
    right = torch.zeros((), device=labels.device, dtype=torch.long)
    for x, y in zip(*(torch.split(part, SCORED) for part in (images, labels)), strict=True):
        with autocast(y.device, precision):
            logits = scores(module, x)
        loss += functional.cross_entropy(logits.float(), y, reduction="sum")
        right += (logits.argmax(1) == y).sum()
    return Score(float(loss) / len(labels), int(right) / len(labels), len(labels))
