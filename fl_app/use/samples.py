"""Samples of a client that was not part of a run: a table, images or arrays."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fl_app.data.arrays import read_array
from fl_app.data.checks import DataError, checked_labels
from fl_app.data.frame import shortened
from fl_app.data.images import ENDINGS as IMAGES
from fl_app.data.images import shown_files
from fl_app.data.rows import RowPreparation, frame_of
from fl_app.data.unread import tell_of_unread
from fl_app.use.predict import INPUTS, batches, check_tokens, images
from fl_app.use.run import FinishedRun

LABELS = "labels"
"""The array of a `.npz` file with the labels."""
BATCH = 500
"""Samples that are read at once."""
FORMS = {
    "tables": "a table",
    "images": "a folder <class>/<image>, or a .npz file with inputs and labels",
    "arrays": "a .npz file with inputs and labels",
}


def labelled(run: FinishedRun, path: Path) -> tuple[Tensor, Tensor]:
    """Return inputs (s, ...) and labels (s, ...); raises DataError for data of another kind."""
    prepare = run.preprocess
    if not path.exists():
        raise DataError(f"the data must be a file or a folder, got {path}, which is not there")
    if isinstance(prepare, RowPreparation):
        frame = frame_of(path)
        return prepare(frame), _checked(run, prepare.labels(frame), len(frame), path)
    if path.suffix == ".npz":
        given, labels = (read_array(path, name) for name in (INPUTS, LABELS))
        inputs = prepare(given)
        check_tokens(run.network(), inputs)
        return inputs, _checked(run, labels, len(inputs), path)
    if prepare.reads != "images" or not path.is_dir():
        raise DataError(
            f"the data must be {FORMS[prepare.reads]} for this run, got {path}; numpy.savez(path, "
            "inputs=..., labels=...) saves such a file"
        )
    tell_of_unread(path, shown_files(path), IMAGES)
    folders = sorted(each for each in path.iterdir() if each.is_dir())
    inside = {each: images(each) for each in folders if not each.name.startswith(".")}
    files = [(each, _class(run, folder)) for folder, found in inside.items() for each in found]
    if not files:
        raise DataError(f"{path} must have images in <class>/<image>, got none; add them")
    labels = np.array([label for _, label in files])
    return prepare([each for each, _ in files]), _checked(run, labels, len(files), path)


def unlabelled(run: FinishedRun, path: Path) -> Tensor:
    """Return inputs (s, ...) in any form of `fl-app predict`, or of a `.npz` file with inputs.

    Labels are not read. Raises DataError for data of another kind or without samples.
    """
    parts = [inputs for _, inputs in batches(run.preprocess, path, BATCH)]
    inputs = _some(torch.cat(parts) if parts else torch.empty(0), path)
    check_tokens(run.network(), inputs)
    return inputs


def _some(inputs: Tensor, path: Path) -> Tensor:
    if not len(inputs):
        raise DataError(f"{path} must have at least one sample, got none; add rows")
    return inputs


def on_device(inputs: Tensor, labels: Tensor, where: torch.device) -> tuple[Tensor, Tensor]:
    """Return samples as the clients of a run have them."""
    return inputs.to(where), labels.to(where)


def _checked(run: FinishedRun, labels: np.ndarray, samples: int, path: Path) -> Tensor:
    if not samples:
        raise DataError(f"{path} must have at least one sample, got none; add rows")
    found = checked_labels(
        labels, str(path), samples=samples, classes=int(run.serving["classes"]),
        target=run.target,  # type: ignore[arg-type]
    )  # fmt: skip
    return torch.from_numpy(found)


def _class(run: FinishedRun, folder: Path) -> int:
    if folder.name not in run.labels:
        raise DataError(
            f"a folder of images must be named like a class of the run, {shortened(run.labels)}, "
            f"got {folder}; rename it"
        )
    return run.labels.index(folder.name)
