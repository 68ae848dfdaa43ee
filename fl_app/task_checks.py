"""Trials of a task before a run: the answers of a network, its loss and its metrics."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from logging import getLogger
from math import isclose, isfinite, nan, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fl_app.client.scoring import UNDEFINED, build_metric, for_metric
from fl_app.client.task import Loss, Task
from fl_app.data.datasets import Dataset
from fl_app.own import lacking
from fl_app.reasons import reason_of
from fl_app.rng import generator

log = getLogger(__name__)
UNKNOWN = re.compile(r"unexpected keyword argument '(\w+)'")
TRIED = 16
"""Samples on which a loss and metrics are tried before a run."""
ROUNDING = 1e-3
"""How far the sum of probabilities of a sample may be from 1."""
FAR = 100
"""Deviations, or first answers of about 1, from 0 beyond which numbers to predict are told."""
USUAL = 1e-3, 1e3
"""Deviations of labels that a network reaches from its first answers, which are about 1."""


def tried(data: Dataset, count: int) -> tuple[Tensor, Tensor]:
    """Return a batch of at most `count` training samples for a trial.

    They are drawn, because the first ones of sorted data have one class.
    """
    samples = len(data.train_labels)
    draw = generator(0, purpose="samples for a trial")
    return data.train(np.sort(draw.choice(samples, min(count, samples), replace=False)))


def check_task(task: Task, module: nn.Module, data: Dataset) -> None:
    """Raise ValueError for answers, a loss or a metric that fail on some samples.

    One of the labels is the last class, so that there must be a score for each.
    """
    images, labels = tried(data, TRIED)
    if not len(images):
        return
    classes = data.classes if data.target == "classification" else 0
    if classes:
        labels = labels.clone()
        labels[0] = classes - 1
    module.eval()
    try:
        with torch.no_grad():
            answers = module(images)
    except Exception:  # the check of the network says what is wrong
        return
    scored = data.target in ("classification", "tokens")
    _check_answers(answers, (*labels.shape, data.classes) if scored else labels.shape[:1])
    answers = answers.float()
    _check_numbers(task, answers, labels)
    _check_loss(task, answers, labels, data.classes)
    _warn_of_probabilities(task, module, images)
    _warn_of_logarithms(task)
    _warn_of_unit(data)
    for name, given in task.metrics.items():
        takes = task.predictions(answers, labels)
        _check_metric(f"task.metrics.{name}", given, takes, data.classes)


def _check_loss(task: Task, answers: Tensor, labels: Tensor, classes: int) -> None:
    """Raise ValueError for a loss that fails, writes into its inputs or cannot be trained by."""
    loss = task.loss
    build = partial(task.loss_of, labels, classes)
    versions = answers._version, labels._version
    given = task.arranged(answers, labels)
    _try("task.loss", loss, given, lambda: build()(answers, labels).squeeze())
    if versions != (answers._version, labels._version):
        raise ValueError(
            f"task.loss must leave answers and labels as they are, got {dict(loss)}, which writes "
            "into them, so that they would be measured otherwise; let it change a copy"
        )
    _check_scale(task, answers)
    _check_gradients(loss, lambda scores: build()(scores, labels), answers)
    _warn_of_sums(loss, build(), answers, labels)


def _check_metric(
    name: str, given: Mapping[str, Any], takes: tuple[Tensor, Tensor], classes: int
) -> None:
    """Raise ValueError for a metric that fails, gives no number or writes into what it takes."""

    undefined: list[Exception] = []

    def measured() -> Any:
        metric = build_metric(given, classes)
        metric.update(for_metric(metric, *takes), takes[1])
        try:
            return metric.compute()
        except UNDEFINED as error:  # as of a rare label that none of these samples has
            undefined.append(error)
            return nan

    before = [each.clone() for each in takes]
    first = _try(name, given, takes, measured)
    if undefined:
        log.warning(
            "%s has no value on %d samples that were tried: %s; a client on whose samples it fails "
            "so has none", name, len(takes[1]), reason_of(undefined[0])
        )  # fmt: skip
    if not all(map(torch.equal, before, takes)):
        raise ValueError(
            f"{name} must leave predictions and labels as they are, got {dict(given)}, which "
            "writes into them, so that other metrics would be wrong; let it change a copy"
        )
    if isfinite(first) and not isclose(first, float(measured()), rel_tol=ROUNDING):
        log.warning(
            "%s gives another value for the same samples when it is built anew, so that clients "
            "and rounds mix, or it draws: let its constructor make what it adds up", name
        )  # fmt: skip


def _check_gradients(
    given: Mapping[str, Any], loss: Callable[[Tensor], Tensor], answers: Tensor
) -> None:
    """Raise ValueError for a loss with parameters of its own, or one that nothing can learn from.

    A client trains and sends the parameters of its network alone.
    """
    if loss(answers.detach()).requires_grad:
        raise ValueError(
            f"task.loss must have no trainable parameters, got {dict(given)}, whose own would not "
            "be trained; put them into the network, or write a client.learner of your own"
        )
    if not loss(answers.detach().requires_grad_()).requires_grad:
        raise ValueError(
            f"task.loss must have a gradient, got {dict(given)}, whose value does not depend on "
            "the answers in a way that autograd follows; do not detach or round them"
        )


def _check_answers(answers: object, wanted: tuple[int, ...]) -> None:
    """Raise ValueError unless there is a row for each sample, with a score for each class.

    `wanted` is the shape of the scores, or the number of samples alone.
    """
    samples, shape = wanted[0], tuple(answers.shape) if isinstance(answers, Tensor) else ()
    found = f"shape {shape}" if isinstance(answers, Tensor) else type(answers).__name__
    if not shape or shape[0] != samples:
        raise ValueError(
            f"network must answer {samples} samples with one tensor of {samples} rows, got "
            f"{found}; return the scores alone, or train it by a client.learner of your own"
        )
    if len(wanted) == 1:
        return
    *places, classes = wanted
    pixels = places[1:] and shape[1:2] == (classes,) and prod(shape[2:]) == places[1]
    if pixels and list(shape) != list(wanted):
        raise ValueError(
            f"network must answer {samples} samples with scores {wanted}, the class last, got "
            f"{found}; return scores.flatten(2).transpose(1, 2)"
        )
    if list(shape[:-1]) != places or shape[-1] < classes:
        each = "class" if len(wanted) == 2 else "class of each token"
        raise ValueError(
            f"network must answer {samples} samples with scores {wanted}, one for each {each}, got "
            f"{found}; change its last layer, or give another task"
        )


def _check_numbers(task: Task, answers: Tensor, labels: Tensor) -> None:
    """Raise ValueError for other answers than labels, which a loss of torch would broadcast."""
    named, counts = str(task.loss.get("_target_")), (answers.numel(), labels.numel())
    if not task.has_accuracy and counts[0] != counts[1] and named.startswith("torch."):
        raise ValueError(
            f"network must answer {len(labels)} samples with numbers of shape "
            f"{tuple(labels.shape)} for task.loss={named}, got shape {tuple(answers.shape)}; "
            "change its last layer, or name a loss of your own (docs/extend/task.md)"
        )


def _check_scale(task: Task, answers: Tensor) -> None:
    """Raise ValueError for a loss whose scale the answers (s, ..., c) do not have."""
    criterion = task.criterion() if task.has_accuracy else None
    if isinstance(criterion, nn.BCELoss):
        raise ValueError(
            f"task.loss must take scores with task={task.kind}, got {dict(task.loss)}, which takes "
            "probabilities; give torch.nn.BCEWithLogitsLoss and a network without sigmoid at its "
            "end"
        )
    if isinstance(criterion, nn.NLLLoss) and (answers.logsumexp(-1).abs() > ROUNDING).any():
        raise ValueError(
            f"task.loss must have a smallest value, got {dict(task.loss)}, which falls for ever on "
            "scores; give torch.nn.CrossEntropyLoss, or end the network with torch.nn.LogSoftmax"
        )


def _warn_of_probabilities(task: Task, module: nn.Module, images: Tensor) -> None:
    """Log that a network ends in a softmax or sigmoid, where the task takes scores (s, ..., c)."""
    answers = module(images)
    if not task.has_accuracy or answers.min() < 0 or answers.max() > 1:
        return
    last = "" if answers.grad_fn is None else answers.grad_fn.name()
    chances = ((answers.float().sum(-1) - 1).abs() < ROUNDING).all()
    if last.startswith("Sigmoid") if task.kind == "multilabel" else chances:
        log.warning(
            "the network answers with probabilities, which task=%s takes for scores: it learns "
            "little, and metrics are wrong; remove the %s at its end",
            task.kind, "sigmoid" if task.kind == "multilabel" else "softmax",
        )  # fmt: skip


def _warn_of_logarithms(task: Task) -> None:
    """Log that the answers are logarithms of what the labels are."""
    criterion = None if task.has_accuracy else task.criterion()
    if isinstance(criterion, nn.PoissonNLLLoss) and criterion.log_input:
        log.warning(
            "the network answers with logarithms of counts, which metrics compare with counts: "
            "give +task.loss.log_input=false and a network that ends in torch.nn.Softplus"
        )


def _warn_of_sums(given: Mapping[str, Any], loss_of: Loss, answers: Tensor, labels: Tensor) -> None:
    """Log that a loss is a sum over samples, which trains, but on a scale of its own."""
    try:
        once = float(loss_of(answers, labels))
        twice = float(loss_of(torch.cat([answers, answers]), torch.cat([labels, labels])))
    except Exception:  # a user's loss can be one for batches of one size
        return
    if once and isclose(twice, 2 * once, rel_tol=1e-4):
        log.warning(
            "task.loss %s is a sum over samples: steps of training and recorded losses grow with "
            "the samples of a batch; a mean, such as reduction=mean, does not", dict(given)
        )  # fmt: skip


def _warn_of_unit(data: Dataset) -> None:
    """Log that numbers to predict are in a unit, or so far from 0, that a network hardly learns."""
    if data.target != "regression":
        return
    deviations = np.atleast_1d(data.train_labels.std(axis=0, dtype=np.float64)).tolist()
    means = np.atleast_1d(data.train_labels.mean(axis=0, dtype=np.float64)).tolist()
    for mean, deviation in zip(means, deviations, strict=True):
        if deviation and abs(mean) > FAR * max(deviation, 1.0):
            log.warning(
                "the numbers to predict of %s are about %.6g with a deviation of %.3g, so that "
                "training diverges or learns little but their mean; subtract a constant",
                data.name, mean, deviation,
            )  # fmt: skip
        if deviation and not USUAL[0] <= deviation <= USUAL[1]:
            log.warning(
                "the numbers to predict of %s have a deviation of %.3g, but the first answers of a "
                "network are about 1; write them in a unit in which it is about 1",
                data.name, deviation,
            )  # fmt: skip


def _try(
    name: str,
    given: Mapping[str, Any],
    takes: tuple[Tensor, Tensor],
    run: Callable[[], Any],
) -> float:
    """Return the number of a loss or metric; raises ValueError if it fails, or gives none."""
    try:
        found = run()
    except (Exception, SystemExit) as error:  # a user's class can raise anything
        answers, labels = takes
        unneeded = f", or remove it (~{name})" if name.startswith("task.metrics") else ""
        if unknown := UNKNOWN.search(str(error)):
            unneeded += f", or remove this argument (~{name}.{unknown[1]})"
        path = given.get("_target_")
        if str(error).startswith(f"Error loading {path!r}"):  # by Hydra, which imports it
            raise ValueError(
                f"{name}._target_ must name a class that can be imported, got {path!r}: "
                f"{lacking(str(path), error.__cause__) or reason_of(error)}; correct it{unneeded}"
            ) from error
        raise ValueError(
            f"{name} must be a class that takes the network's answers and the labels, got "
            f"{dict(given)} with answers {tuple(answers.shape)} and labels {tuple(labels.shape)}: "
            f"{reason_of(error)}; change its arguments, what the network returns, or the task"
            f"{unneeded}"
        ) from error
    kind = f"values of shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found)
    number = found.numel() == 1 if isinstance(found, Tensor) else _is_number(found)
    if not number:
        raise ValueError(
            f"{name} must give one number, got {dict(given)} with {kind}; average them by an "
            "argument such as reduction=mean or average=macro, or name a metric for each"
        )
    return float(found)


def _is_number(found: object) -> bool:
    return isinstance(found, int | float | np.number | np.bool_)
