"""The score of a network for a task: loss, accuracy, and the metrics that the task names."""

import inspect
from collections.abc import Mapping
from logging import getLogger
from math import isfinite, nan
from typing import Any

import torch
from hydra.utils import get_object
from torch import Tensor, nn

from fl_app.client.task import Task
from fl_app.client.training import SCORED, UNSCORED, Precision, Score, autocast, scores

log = getLogger(__name__)
UNDEFINED = (ValueError, ZeroDivisionError)
"""What `compute` of a metric raises that is undefined on the samples that it got."""
NUMBER = ("num_classes", "num_labels")
"""Arguments of metrics that are filled in with the number of classes of the data."""
OF_ALL_CLASSES = ("AUROC", "AveragePrecision", "EER", "LogAUC")
OF_BOTH_CLASSES = ("Recall", "Precision", "F1", "FBeta", "Specificity", "Jaccard")
OF_DIFFERENT_LABELS = (
    "Matthews", "Kappa", "R2Score", "ExplainedVariance", "RelativeSquaredError", "Spearman",
)  # fmt: skip
"""Metrics for which torchmetrics returns 0, or a number without meaning, where they are undefined.

The first need samples of each class; a weighted average, of two, since an absent class has no
weight; a micro average of several labels, a 0 and a 1 in any of them. The second need both classes
of a single label; for several classes torchmetrics excludes one with neither samples nor
predictions from the mean. The last need labels of at least two values. For several labels at once,
`value` excludes those without both classes from the mean.
"""
OF_SAMPLES = "Ranking"
"""In the names of metrics that rank the labels of each sample, whatever labels others have."""


OF_ANY_UNIT = ("R2Score", "ExplainedVariance", "RelativeSquaredError")
"""Metrics that do not depend on the origin and the unit of the labels.

torchmetrics adds squares in float32 and takes sums below 1e-4 for 0, so that R2 would be 1 for
fractions, and noise for years.
"""


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
    total, losses, right, count = 0.0, 0.0, 0, 0
    seen: list[Tensor] = []
    parts = zip(torch.split(images, SCORED), torch.split(labels, SCORED), strict=True)
    for x, y in parts:
        with autocast(y.device, precision):
            answers = scores(module, x)
        answers = answers.float()
        if weight := task.count(y):  # the mean of none is not a number
            total += float(loss_of(answers, y)) * weight
            losses += weight
        if task.has_accuracy:
            good, of = task.right(answers, y)
            right, count = right + int(good), count + of
        predicted, wanted = task.predictions(answers, y)
        for measure in measures.values():
            given = for_metric(measure, predicted, wanted).cpu(), wanted.cpu()
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
    average = getattr(metric, "average", None)
    several = _is_a(metric, "Multilabel")
    areas = several and _of_any(metric, OF_ALL_CLASSES)
    try:
        if (areas and average == "weighted") or (
            several and average == "macro" and _of_any(metric, OF_ALL_CLASSES + OF_BOTH_CLASSES)
        ):
            found = _over_labels(metric, columns, weighted=average == "weighted")
        else:
            values = columns.reshape(1, -1) if areas and average == "micro" else columns
            differ = min(len(column.unique()) for column in values)
            found = float(metric.compute()) if differ >= _values_needed(metric) else nan
    except UNDEFINED as error:  # too few samples
        log.debug("%s has no value: %s", type(metric).__name__, error)
        return None
    return found if isfinite(found) else None


def _over_labels(metric: Any, columns: Tensor, *, weighted: bool) -> float:
    """Return the mean over the labels with both classes, in which their ones may be the weights."""
    metric.average = "none"
    both = torch.tensor([len(column.unique()) > 1 for column in columns])
    weights = (columns > 0).sum(1)[both] if weighted else torch.ones(int(both.sum()))
    return float((metric.compute()[both] * weights).sum() / weights.sum())


def _values_needed(metric: Any) -> int:
    """Return how many values a label must have so that the metric is defined."""
    if _of_any(metric, OF_ALL_CLASSES):
        classes, average = getattr(metric, "num_classes", None), getattr(metric, "average", None)
        if classes and average == "micro":
            return 1
        return 2 if average == "weighted" else classes or 2
    binary = _is_a(metric, "Binary")
    return 2 if _of_any(metric, OF_DIFFERENT_LABELS + OF_BOTH_CLASSES * binary) else 1


def _kinds(metric: Any) -> list[str]:
    """Return the classes of torchmetrics that a metric is of; a user's may have any name."""
    every = type(metric).__mro__
    return [each.__name__ for each in every if each.__module__.startswith("torchmetrics.")]


def _is_a(metric: Any, start: str) -> bool:
    return any(kind.startswith(start) for kind in _kinds(metric))


def _of_any(metric: Any, names: tuple[str, ...]) -> bool:
    kinds = [kind for kind in _kinds(metric) if OF_SAMPLES not in kind]
    return any(name in kind for name in names for kind in kinds)


def for_metric(metric: Any, predicted: Tensor, wanted: Tensor) -> Tensor:
    """Return predictions as a metric takes them: a binary one, those of class 1 of two."""
    binary = _is_a(metric, "Binary")
    return predicted[:, 1] if binary and predicted.dim() == 2 and wanted.dim() == 1 else predicted
