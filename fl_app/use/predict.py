"""`fl-app predict`: what a model of a finished run answers to raw samples, as a CSV file."""

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fl_app.client.training import AnswersError, scores
from fl_app.data.arrays import read_array
from fl_app.data.checks import DataError
from fl_app.data.frame import AfterRun
from fl_app.data.images import ENDINGS as IMAGES
from fl_app.data.images import shown_files
from fl_app.data.preparation import Preparation
from fl_app.data.rows import RowPreparation
from fl_app.data.table_files import table_parts
from fl_app.data.unread import tell_of_unread
from fl_app.reasons import reason_of
from fl_app.records.atomic import replacing
from fl_app.records.output_folder import require
from fl_app.use.run import FinishedRun

Batch = tuple[list[str], Tensor]
"""The line, row or file of each sample, and the inputs (s, ...)."""
Progress = Callable[[int], None]
"""Is called with the number of rows after each batch."""
INPUTS = "inputs"
"""The array of a `.npz` file with the samples."""
ROW = "row"
"""The first column: the line, the row or the file of a sample."""


def predict(
    run: FinishedRun, model: nn.Module, data: Path, out: Path, *, batch: int, progress: Progress
) -> int:
    """Write a row per sample of `data` to `out`, and return how many there are.

    `data` is what the run was trained on in raw form: a table, a `.npy` file, an image, or a
    folder of images. A wrong sample leaves no file. Raises DataError that names it, and ValueError
    for a result in the place of the samples or of a folder.
    """
    if out.is_dir() or (out.exists() and data.exists() and out.samefile(data)):
        raise ValueError(
            f"the result must be a file beside the samples, got {out}, which is "
            f"{'a folder' if out.is_dir() else 'the samples'}; give another name"
        )
    require(out.parent)
    done = 0
    with replacing(out) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        for names, inputs in batches(run.preprocess, data, batch):
            columns = answers(run, model, inputs, names)
            if not done:
                writer.writerow([ROW, *columns])
            cells = [[_cell(each) for each in column] for column in columns.values()]
            writer.writerows(zip(names, *cells, strict=True))
            done += len(names)
            progress(len(names))
        if not done:
            raise DataError(f"{data} must have at least one sample, got none; add rows")
    return done


@torch.no_grad()
def answers(
    run: FinishedRun, model: nn.Module, inputs: Tensor, names: Sequence[str] = ()
) -> dict[str, Sequence[Any]]:
    """Return the columns of the answers to inputs (s, ...): predictions and probabilities.

    Numbers that are no predictions are one column per output of the network. `names` are those of
    the samples (s,), if they are part of more. Raises DataError for a sample that the model cannot
    answer.
    """
    check_tokens(model, inputs, names)
    found = _scores(model, inputs, names).float()
    _check_answers(found, names)
    if run.answers == "regression":
        return _of_numbers(run.predicted, found.reshape(len(inputs), -1))
    if run.answers == "numbers":
        every = found.reshape(len(inputs), -1).T.tolist()
        return {f"output {number}": values for number, values in enumerate(every)}
    if run.answers == "centroids":
        nearest = found.max(dim=1)
        return {"cluster": nearest.indices.tolist(), "distance": (-nearest.values).tolist()}
    if run.answers == "multilabel":
        chances = found.sigmoid()
        picked = [" ".join(c for c, on in zip(run.classes, r, strict=True) if on)
                  for r in (found > 0).tolist()]  # fmt: skip
        return {"prediction": picked} | _of_classes(run.classes, chances)
    if run.answers == "tokens":
        return {"prediction": [" ".join(_named(run.classes, r)) for r in found.argmax(2).tolist()]}
    chances = found.softmax(dim=1)
    named = _named(run.classes, found.argmax(dim=1).tolist())
    return {"prediction": named} | _of_classes(run.classes, chances)


def check_tokens(model: nn.Module, inputs: Tensor, names: Sequence[str] = ()) -> None:
    """Raise DataError for a token without a row in the embeddings of a model.

    `names` are those of the samples (s,), if they are part of more.
    """
    rows = [each.num_embeddings for each in model.modules()
            if isinstance(each, nn.Embedding | nn.EmbeddingBag)]  # fmt: skip
    if inputs.is_floating_point() or not rows or not inputs.numel():
        return
    flat = inputs.reshape(len(inputs), -1)
    wrong = (flat < 0) | (flat >= max(rows))
    if wrong.any():
        sample = int(wrong.any(dim=1).nonzero()[0])
        token, name = int(flat[sample][wrong[sample]][0]), names[sample] if names else sample
        raise DataError(
            f"tokens must be 0..{max(rows) - 1} for the network of the run, got {token} in sample "
            f"{name}; give unknown words the token that they had in training"
        )


def _scores(model: nn.Module, inputs: Tensor, names: Sequence[str]) -> Tensor:
    """Return the scores of samples; raises DataError that names the first one refused."""
    try:
        return scores(model, inputs)
    except AnswersError:
        raise
    except Exception as error:  # a user's layer can raise anything
        called = names or [str(number) for number in range(len(inputs))]
        cause, which = error, f"samples {called[0]} to {called[-1]}"
        remedy = "give fewer of them at once"
        for row, name in enumerate(called):
            try:
                scores(model, inputs[row : row + 1])
            except Exception as alone:
                cause, which, remedy = alone, f"sample {name}", "correct it or leave it out"
                break
        raise DataError(
            f"the network of the run must take each sample, got {which}, for which it raises "
            f"{reason_of(cause)}; {remedy}"
        ) from cause


def _check_answers(found: Tensor, names: Sequence[str]) -> None:
    """Raise DataError for an answer that is no number, of which the first class would be made."""
    wrong = (found.isnan() | found.isposinf()).reshape(len(found), -1).any(dim=1)
    if wrong.any():
        first = int(wrong.nonzero()[0])
        name = names[first] if names else first
        raise DataError(
            f"answers must be finite numbers, got others for sample {name} and "
            f"{int(wrong.sum()) - 1} more; correct their values, or use another model if no "
            "sample has finite answers"
        )


def _named(classes: Sequence[str], numbers: Sequence[int]) -> list[str]:
    # a network can have more scores than the data have classes
    return [classes[number] if number < len(classes) else str(number) for number in numbers]


def _of_classes(classes: Sequence[str], chances: Tensor) -> dict[str, Sequence[Any]]:
    """Return the probabilities (s, c) as one column per class."""
    return {f"probability of {each}": chances[:, c].tolist() for c, each in enumerate(classes)}


def _cell(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)  # all digits of float32


def _of_numbers(columns: Sequence[str], values: Tensor) -> dict[str, Sequence[Any]]:
    """Return the numbers (s, k) as one column each, predictions of `columns` if these are as many.

    Otherwise their loss gives them another meaning, such as a mean and a variance.
    """
    count = values.shape[1]
    if count == 1:
        return {"prediction": values[:, 0].tolist()}
    outputs = [f"output {number}" for number in range(count)]
    named = [f"prediction of {each}" for each in columns]
    return dict(zip(named if len(named) == count else outputs, values.T.tolist(), strict=True))


def batches(prepare: Preparation, data: Path, size: int) -> Iterator[Batch]:
    """Yield the samples in `data` in batches; raises DataError for data of another kind."""
    if not data.exists():
        raise DataError(f"the data must be a file or a folder, got {data}, which is not there")
    if isinstance(prepare, RowPreparation):
        use = AfterRun()
        for frame in table_parts(data, size):
            (source,) = frame.sources
            every = prepare(replace(frame, after_run=use)) if len(frame) else torch.empty(0)
            for start in range(0, len(frame), size):
                numbers = source.numbers[start : start + size].tolist()
                yield [str(number) for number in numbers], every[start : start + size]
        use.tell(str(data))
    elif data.suffix in (".npy", ".npz"):
        array = read_array(data, INPUTS, mapped=True)
        array = array[None] if _is_one_sample(array, prepare) else array
        for start in range(0, len(array), size):
            part = np.asarray(array[start : start + size])
            yield [str(start + row) for row in range(len(part))], prepare(part)
    else:
        yield from _of_images(prepare, data, size)


def _is_one_sample(array: np.ndarray, prepare: Preparation) -> bool:
    """Whether an array has no axis of samples, nor an image its only channel."""
    form = tuple(getattr(prepare, "shape", ()))
    plain = form[1:] if prepare.reads == "images" and form[:1] == (1,) else form
    return bool(form) and array.shape in (form, plain)


def _of_images(prepare: Preparation, data: Path, size: int) -> Iterator[Batch]:
    files = images(data) if data.is_dir() else [data]
    if prepare.reads != "images" or not all(each.suffix.lower() in IMAGES for each in files):
        wanted = "images or a .npy file of them" if prepare.reads == "images" else "a .npy file"
        raise DataError(f"the data of this run must be {wanted}, got {data}; convert them")
    if data.is_dir():
        tell_of_unread(data, shown_files(data), IMAGES)
    for start in range(0, len(files), size):
        part = files[start : start + size]
        yield [str(each) for each in part], prepare(part)


def images(folder: Path) -> list[Path]:
    """Return the images in a folder and below it, without hidden files, as for training."""
    return sorted(each for each in shown_files(folder) if each.suffix.lower() in IMAGES)


def total(data: Path) -> int | None:
    """Return about how many rows a text has, for progress; None if it is not known."""
    if data.suffix not in (".csv", ".tsv", ".txt") or not data.is_file():
        return None
    with data.open("rb") as file:
        start = file.read(1 << 16)
    return max(1, round(data.stat().st_size * max(start.count(b"\n"), 1) / max(len(start), 1)))
