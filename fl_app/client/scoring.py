"""The score of a network for a task: loss, accuracy, and the metrics that the task names."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from logging import getLogger
from math import isclose, isfinite, nan
from typing import Any

import numpy as np
import torch
from hydra.utils import get_object
from torch import Tensor, nn

from fl_app.client.task import Loss, Task
from fl_app.client.training import UNSCORED, Precision, Score, autocast, scores
from fl_app.data.datasets import Dataset
from fl_app.rng import generator

log = getLogger(__name__)
BATCH = 500
TRIED = 16
"""Samples on which a loss and metrics are tried before a run."""
ROUNDING = 1e-3
"""How far the sum of probabilities of a sample may be from 1."""
NUMBER = ("num_classes", "num_labels")
"""Arguments of metrics that are filled in with the number of classes of the data."""
OF_ALL_CLASSES = ("AUROC", "AveragePrecision", "EER", "LogAUC")
OF_BOTH_CLASSES = ("Recall", "Precision", "F1", "FBeta", "Specificity", "Jaccard")
OF_DIFFERENT_LABELS = (
    "Matthews", "Kappa", "R2Score", "ExplainedVariance", "RelativeSquaredError", "Spearman",
)  # fmt: skip
"""Metrics for which torchmetrics returns 0, or a number without meaning, where they are undefined.

The first need samples of each class. The second need both classes of a single label; for several
classes torchmetrics excludes one without samples from the mean. The last need labels of at least
two values. For several labels at once, `value` excludes those without both classes from the mean.
"""


OF_ANY_UNIT = ("R2Score", "ExplainedVariance", "RelativeSquaredError")
"""Metrics that do not depend on the origin and the unit of the labels.

torchmetrics adds squares in float32 and takes sums below 1e-4 for 0, so that R2 would be 1 for
fractions, and noise for years.
"""
USUAL = 1e-3, 1e3
"""Deviations of labels that a network reaches from its first answers, which are about 1."""


@torch.no_grad()
def evaluate_task(
    module: nn.Module, images: Tensor, labels: Tensor, task: Task, *, classes: int,
    precision: Precision,
) -> Score:  # fmt: skip
    """Return the score of `module` on `images` (s, ...) and `labels` (s, ...), s >= 1.

    A metric that is undefined on these samples, such as R2 of one sample, has no value. If no label
    counts, as for tokens that are all padding, the score is `UNSCORED`.
    """
    if not task.count(labels):
        return UNSCORED
    module.eval()
    loss_of = task.loss_of(None, classes)
    measures = {name: build_metric(given, classes) for name, given in task.metrics.items()}
    total, losses, right, count = 0.0, 0, 0, 0
    seen: list[Tensor] = []
    parts = zip(torch.split(images, BATCH), torch.split(labels, BATCH), strict=True)
    for x, y in parts:
        with autocast(y.device, precision):
            answers = scores(module, x)
        answers = answers.float()
        total += float(loss_of(answers, y)) * task.count(y)
        losses += task.count(y)
        if task.has_accuracy:
            good, of = task.right(answers, y)
            right, count = right + int(good), count + of
        predicted, wanted = task.predictions(answers, y)
        for measure in measures.values():
            given = _for(measure, predicted, wanted).cpu(), wanted.cpu()
            measure.update(*(_in_deviations(measure, each, labels) for each in given))
        seen += [wanted.cpu()] if measures else []
    accuracy = right / max(count, 1) if task.has_accuracy else None
    found = {name: value(each, torch.cat(seen)) for name, each in measures.items()}
    known = {name: number for name, number in found.items() if number is not None}
    return Score(total / losses, accuracy, len(labels), metrics=known)


def _in_deviations(metric: Any, values: Tensor, labels: Tensor) -> Tensor:
    """Return predictions or labels with the mean 0 and deviation 1 of the labels if it may be."""
    if not _of_any(metric, OF_ANY_UNIT):
        return values
    every = labels.cpu().double()
    deviation = every.std(0, correction=0)
    scaled = (values.double() - every.mean(0)) / torch.where(deviation > 0, deviation, 1.0)
    return scaled.float()


def build_metric(given: Mapping[str, Any], classes: int) -> Any:
    """Return a metric of torchmetrics, or one with the same interface, for data with `classes`."""
    build = get_object(str(given.get("_target_")))
    taken = inspect.signature(build).parameters
    options = {name: classes for name in NUMBER if name in taken}
    return build(**options | {name: each for name, each in given.items() if name != "_target_"})


def value(metric: Any, labels: Tensor) -> float | None:
    """Return a metric's value on samples with these labels; None if it is undefined for them.

    The mean of a metric over several labels is that over the labels with both classes.
    """
    columns = labels.reshape(len(labels), -1).T
    differ = torch.tensor([len(column.unique()) for column in columns])
    wanted = _values_needed(metric)
    several = type(metric).__name__.startswith("Multilabel")
    several &= _of_any(metric, OF_ALL_CLASSES + OF_BOTH_CLASSES)
    try:
        if several and getattr(metric, "average", None) == "macro":
            metric.average = "none"
            found = float(metric.compute()[differ > 1].mean())
        else:
            found = float(metric.compute()) if (differ >= wanted).all() else nan
    except (ValueError, ZeroDivisionError) as error:  # too few samples
        log.debug("%s has no value: %s", type(metric).__name__, error)
        return None
    return found if isfinite(found) else None


def _values_needed(metric: Any) -> int:
    """Return how many values a label must have so that the metric is defined."""
    if _of_any(metric, OF_ALL_CLASSES):
        return getattr(metric, "num_classes", None) or 2
    binary = type(metric).__name__.startswith("Binary")
    return 2 if _of_any(metric, OF_DIFFERENT_LABELS + OF_BOTH_CLASSES * binary) else 1


def _of_any(metric: Any, names: tuple[str, ...]) -> bool:
    return any(name in type(metric).__name__ for name in names)


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
    shapes = f"answers {tuple(answers.shape)} and labels {tuple(labels.shape)}"
    loss = task.loss
    build = partial(task.loss_of, labels, data.classes)
    versions = answers._version, labels._version
    _try("task.loss", loss, shapes, lambda: build()(answers, labels).squeeze())
    if versions != (answers._version, labels._version):
        raise ValueError(
            f"task.loss must leave answers and labels as they are, got {dict(loss)}, which writes "
            "into them, so that they would be measured otherwise; let it change a copy"
        )
    _check_scale(task, answers)
    _warn_of_unit(data)
    _check_gradients(loss, lambda scores: build()(scores, labels), answers)
    _warn_of_sums(loss, build(), answers, labels)
    for name, given in task.metrics.items():

        def measured(given: Mapping[str, Any] = given) -> Any:
            metric = build_metric(given, data.classes)
            predicted, wanted = task.predictions(answers, labels)
            metric.update(_for(metric, predicted, wanted), wanted)
            return metric.compute()

        _try(f"task.metrics.{name}", given, shapes, measured)


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
    if list(shape[:-1]) != places or shape[-1] < classes:
        each = "class" if len(wanted) == 2 else "class of each token"
        raise ValueError(
            f"network must answer {samples} samples with scores {wanted}, one for each {each}, got "
            f"{found}; change its last layer, or give another task"
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
    """Log that numbers to predict are in a unit that a network hardly reaches."""
    if data.target != "regression":
        return
    for deviation in np.atleast_1d(data.train_labels.std(axis=0, dtype=np.float64)).tolist():
        if deviation and not USUAL[0] <= deviation <= USUAL[1]:
            log.warning(
                "the numbers to predict of %s have a deviation of %.3g, but the first answers of a "
                "network are about 1; write them in a unit in which it is about 1",
                data.name, deviation,
            )  # fmt: skip


def _try(name: str, given: Mapping[str, Any], shapes: str, run: Callable[[], Any]) -> None:
    try:
        found = run()
    except Exception as error:  # a user's class can raise anything
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(
            f"{name} must be a class that takes the network's answers and the labels, got "
            f"{dict(given)} with {shapes}: {reason}; change its arguments, what the network "
            "returns, or the task"
        ) from error
    kind = f"values of shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found)
    number = found.numel() == 1 if isinstance(found, Tensor) else _is_number(found)
    if not number:
        raise ValueError(
            f"{name} must give one number, got {dict(given)} with {kind}; average them by an "
            "argument such as reduction=mean or average=macro, or name a metric for each"
        )


def _is_number(found: object) -> bool:
    return isinstance(found, int | float | np.number | np.bool_)


def _for(metric: Any, predicted: Tensor, wanted: Tensor) -> Tensor:
    """Return predictions as a metric takes them: a binary one, those of class 1 of two."""
    binary = type(metric).__name__.startswith("Binary")
    return predicted[:, 1] if binary and predicted.dim() == 2 and wanted.dim() == 1 else predicted
