"""Checks of the arrays of a data set: what cannot be trained on is refused before a run."""

from collections.abc import Mapping
from math import prod
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

TableTarget = Literal["classification", "regression", "multilabel"]
"""What the labels of a table are."""
LabelKind = Literal[TableTarget, "tokens"]
"""What labels are: a class (N,); numbers (N,) or (N, k); 0 or 1 for each of k classes (N, k); or a
class for each token (N, length)."""
PADDING_LABEL = -100
"""The label of a token that does not count, as in torch.nn.CrossEntropyLoss."""


class DataError(ValueError):
    """The data of a run are missing or have the wrong form."""


class NoClassesError(DataError):
    """The samples have no classes, or too few of them."""


def checked_inputs(inputs: np.ndarray, data: str) -> np.ndarray:
    """Return inputs (N, ...) as an array; raises DataError unless they are finite numbers.

    `data` names them in messages, such as "the training data of mnist".
    """
    inputs = _plain(inputs, f"the inputs of {data}")
    several = isinstance(inputs, tuple) and all(np.ndim(each) > 1 for each in inputs)
    if several or isinstance(inputs, Mapping):
        raise DataError(
            f"the inputs of {data} must be one array (samples, ...), got a "
            f"{type(inputs).__name__} of {len(inputs)} parts; flatten the parts, concatenate them "
            "to one array (samples, d), and split it in the network"
        )
    try:
        array = np.asarray(inputs)
    except ValueError as error:  # NumPy's message does not say whose
        raise DataError(
            f"the inputs of {data} must be one array of equal shapes, got {type(inputs).__name__} "
            f"of several; pad them to one shape ({error})"
        ) from error
    if array.ndim < 2 or array.dtype.kind not in "buif" or 0 in array.shape[1:]:
        raise DataError(
            f"the inputs of {data} must be numbers of shape (samples, ...), got {array.dtype} of "
            f"shape {array.shape}; {_remedy_of_inputs(array)}"
        )
    if array.dtype.kind == "f":
        # wider numbers overflow here, not in the first round
        with np.errstate(over="ignore"):
            finite = np.isfinite(array if array.itemsize <= 4 else array.astype(np.float32))
        whole = finite.all(axis=tuple(range(1, array.ndim)))
        _refuse(~whole, data, "inputs", "finite float32")
    return array


def _remedy_of_inputs(array: np.ndarray) -> str:
    """Return how inputs of another form or type become numbers."""
    if array.dtype.kind == "c":
        return "give real and imaginary parts as two numbers"
    if array.dtype.kind in "mM":
        return "write times as numbers, such as the days since a date"
    if array.dtype.kind == "O":
        numbers = "convert numbers by inputs.astype('float32'), and number words"
        return numbers if array.shape else "return an array, one entry per sample"
    if array.dtype.kind in "US":
        return "number the words and categories, or read them by data=text or data=table"
    if array.ndim == 1:
        return "give inputs[:, None] for one number per sample"
    return "return one entry per sample with at least one number each"


def _plain(values: Any, what: str) -> Any:
    """Return what NumPy can read; raises DataError for what it cannot, or reads otherwise."""
    if isinstance(values, Tensor):
        if values.layout != torch.strided or values.device.type == "meta":
            raise DataError(
                f"{what} must be a dense tensor with values, got {values.layout} on "
                f"{values.device}; give .to_dense() of one that has values"
            )
        values = values.detach().cpu()
        return values.float() if values.dtype == torch.bfloat16 else values
    if hasattr(values, "toarray"):  # a matrix of scipy
        raise DataError(f"{what} must be dense, got {type(values).__name__}; give .toarray()")
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise DataError(
            f"{what} must all be given, got {int(np.ma.getmaskarray(values).sum()):,} masked "
            "numbers; fill them in, or leave their samples out"
        )
    return values


def checked_labels(
    labels: np.ndarray, data: str, *, samples: int, classes: int, target: LabelKind
) -> np.ndarray:
    """Return labels as int64, or as float32 for a regression.

    Raises DataError for labels that do not fit: another number of labels than `samples`, a class
    outside 0..`classes` - 1, a number that is not finite. Nothing is rounded.
    """
    if isinstance(classes, bool) or not isinstance(classes, int | np.integer):
        raise DataError(
            f"the classes of {data} must be a whole number, got {classes!r}; count them"
        )
    array = np.asarray(_plain(labels, f"the labels of {data}"))
    if not array.shape:
        raise DataError(
            f"the labels of {data} must be an array with one entry per sample, got "
            f"{type(labels).__name__}; return one"
        )
    if len(array) != samples:
        raise DataError(
            f"{data} must have one label per sample, got {len(array):,} labels for {samples:,} "
            "samples; use inputs and labels that belong together"
        )
    if target == "regression":
        return _numbers(array, data, classes)
    if target == "multilabel" and array.shape[1:] != (classes,):
        raise DataError(
            f"the labels of {data} must be 0 or 1 for each of the {classes} classes, got "
            f"{array.dtype} of shape {array.shape}; give an array (samples, {classes})"
        )
    if target == "multilabel":
        return _classes(array, data, 2, dimensions=2)
    if target == "classification":
        return _classes(array, data, classes, dimensions=1)
    shown = np.where(array == PADDING_LABEL, 0, array) if array.dtype.kind == "i" else array
    _classes(shown, data, classes, dimensions=2)
    return array.astype(np.int64, copy=False)


def _classes(labels: np.ndarray, data: str, classes: int, *, dimensions: int) -> np.ndarray:
    if labels.ndim != dimensions or labels.dtype.kind not in "bui":
        wanted = "(samples,)" if dimensions == 1 else "(samples, k)"
        if labels.ndim > dimensions > 1 and labels.dtype.kind in "bui":
            raise DataError(
                f"the labels of {data} must be of shape {wanted}, got {labels.shape}; reshape them "
                f"to ({len(labels)}, {prod(labels.shape[1:])}), and the network's scores alike"
            )
        raise DataError(
            f"the labels of {data} must be integers of shape {wanted}, got {labels.dtype} of "
            f"shape {labels.shape}; {_remedy(labels, dimensions)}"
        )
    if classes < 1:
        raise DataError(f"the classes of {data} must be at least 1, got {classes}; count them")
    wrong = ((labels < 0) | (labels >= classes)).reshape(len(labels), prod(labels.shape[1:]))
    rule = f"0..{classes - 1} for {classes} classes"
    _refuse(np.asarray(wrong.any(axis=1)), data, "labels", rule, labels)
    return labels.astype(np.int64, copy=False)


def _remedy(labels: np.ndarray, dimensions: int) -> str:
    """Return how labels of another form or type become classes, by what their values look like."""
    numbered = "number the classes from 0"
    if labels.dtype.kind not in "buif":
        return numbered
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        return (
            f"leave out the {np.isnan(labels).sum():,} samples whose label is NaN, and {numbered}"
        )
    whole = bool(np.isin(labels, (0, 1)).all()) and labels.size > 0
    if dimensions == 1 and labels.ndim == 2 and labels.shape[1] == 1:
        return f"reshape them to ({len(labels)},), or give target='regression' for numbers"
    if dimensions == 1 and labels.ndim == 2 and whole:
        if (labels.sum(axis=1) == 1).all():
            return "they have a single 1 for each sample: give labels.argmax(axis=1)"
        return "give target='multilabel' for 0 or 1 for each of several classes"
    if labels.ndim == dimensions and labels.dtype.kind == "f" and (labels == labels.round()).all():
        return "convert whole numbers by labels.astype('int64')" + (
            ", or give target='regression' for numbers to predict" if dimensions == 1 else ""
        )
    return f"{numbered}, or give target='regression' for numbers to predict"


def _numbers(labels: np.ndarray, data: str, outputs: int) -> np.ndarray:
    shapes = [(outputs,), ()] if outputs == 1 else [(outputs,)]
    if labels.dtype.kind not in "buif" or labels.shape[1:] not in shapes:
        raise DataError(
            f"the labels of {data} must be {outputs} numbers per sample for a regression, got "
            f"{labels.dtype} of shape {labels.shape}; set `classes` to how many are predicted"
        )
    with np.errstate(over="ignore"):
        numbers = labels.astype(np.float32)
    wrong = ~np.isfinite(numbers.reshape(len(numbers), outputs))
    _refuse(np.asarray(wrong.any(axis=1)), data, "labels", "finite float32 numbers", labels)
    return numbers


def _refuse(
    wrong: np.ndarray, data: str, what: str, rule: str, values: np.ndarray | None = None
) -> None:
    """Raise DataError with the first of the samples that are wrong (N,), if any is."""
    if wrong.any():
        row = int(wrong.argmax())
        got = f"got {values[row]} for" if values is not None else "but not those of"
        raise DataError(
            f"the {what} of {data} must be {rule}, {got} sample {row} and "
            f"{int(wrong.sum()) - 1} others; correct them"
        )
