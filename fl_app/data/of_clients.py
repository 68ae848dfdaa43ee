"""A data set of clients that have samples of their own, as the partitions of a Flower project."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from fl_app.data.checks import DataError, LabelKind
from fl_app.data.datasets import Dataset
from fl_app.data.split import Owners

Samples = Iterable[tuple[Any, Any]]
"""Pairs of inputs and label, such as a data set of torch."""
SOURCE = "of_clients"


def of_clients(
    name: str,
    classes: int,
    samples: Mapping[str, tuple[Samples, Samples]] | Mapping[int, tuple[Samples, Samples]],
    *,
    target: LabelKind = "classification",
) -> Dataset:
    """Return the data set of clients by name, each with samples for training and for test.

    `population=by_column` gives each client its own, in this order. `classes` and `target` are
    those of `Dataset`. Numbers that name clients become words, as a run stores and finds them.
    Raises DataError for samples that are no pairs or differ in their form, and for batches.
    """
    names = tuple(map(str, samples))
    train, test = ([_pairs(who, parts[k]) for who, parts in samples.items()] for k in range(2))
    inputs = [_stacked(name, chain.from_iterable(x for x, _ in part)) for part in (train, test)]
    if not len(inputs[1]):
        inputs[1] = np.empty((0, *inputs[0].shape[1:]), inputs[0].dtype)
    labels = [_stacked(name, chain.from_iterable(y for _, y in part)) for part in (train, test)]
    kind = np.result_type(*([each for each in labels if len(each)] or labels))
    owners = [np.repeat(np.arange(len(names)), [len(y) for _, y in part]) for part in (train, test)]
    return Dataset(
        name, classes, inputs[0], labels[0].astype(kind), inputs[1], labels[1].astype(kind),
        target=target, owners=Owners(names, owners[0], owners[1], SOURCE),
    )  # fmt: skip


def _pairs(client: str | int, samples: Samples) -> tuple[list[Any], list[Any]]:
    """Return inputs and labels of one client's samples."""
    inputs, labels = [], []
    for sample in _each(samples):
        several = isinstance(sample, tuple | list)
        if not several or len(sample) != 2:
            got = type(sample).__name__ + (f" of {len(sample)}" if several else "")
            raise DataError(
                f"each sample of client {client} must be a pair of inputs and label, got {got}; "
                "give [(row['image'], row['label']) for row in ...], several labels as one array"
            )
        inputs.append(sample[0])
        labels.append(sample[1])
    return inputs, labels


def _each(samples: Any) -> Iterator[Any]:
    """Yield the samples; data sets of torch have a length, and may have no end without it."""
    if isinstance(samples, DataLoader) and samples.batch_size is not None:
        raise DataError(
            "the samples of a client must be single ones, got a DataLoader, which has batches of "
            "them; give its data set, as loader.dataset"
        )
    if hasattr(samples, "__len__") and hasattr(samples, "__getitem__"):
        return (samples[place] for place in range(len(samples)))
    return iter(samples)


def _stacked(name: str, values: Iterable[Any]) -> np.ndarray:
    try:
        found = [np.asarray(value) for value in values]
        return np.stack(found) if found else np.empty(0)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"the samples of {name} must be arrays or tensors of one shape, got {error}"
        ) from error
