"""Inputs of any shape in NumPy files, such as signals (N, channels, time)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from logging import getLogger
from pathlib import Path

import numpy as np

from fl_app.data.checks import DataError, LabelKind, checked_inputs, checked_labels
from fl_app.data.client_folder import read_clients
from fl_app.data.datasets import Dataset, same_form
from fl_app.data.frame import shortened
from fl_app.data.split import Owners, TestShare, split_rows
from fl_app.types import Count, Text

log = getLogger(__name__)


@dataclass(frozen=True)
class Samples:
    """Inputs (N, ...) and labels (N, ...), and the files or arrays they are from, for messages."""

    inputs: np.ndarray
    labels: np.ndarray
    inputs_from: str
    labels_from: str

    def __post_init__(self) -> None:
        checked_inputs(self.inputs, self.inputs_from)
        _check_length(self.labels, self.labels_from, self)

    def __len__(self) -> int:
        return len(self.inputs)


def arrays(
    *, root: Text, inputs: Text, labels: Text, clients: Text | None, test_share: TestShare,
    target: LabelKind, classes: Count | None, seed: int,
) -> Dataset:  # fmt: skip
    """Load `root`/`inputs` (N, ...) and `root`/`labels` (N, ...), as `Dataset` has them.

    `clients` is a file with the client of each row (N,), numbers or names. `test_share` of the
    rows, or of each client's rows, are for test. Raises DataError that names the file.
    """
    folder = Path(root)
    found = _samples(folder / inputs, folder / labels)
    names = None
    if clients is not None:
        owners = read_array(folder / clients)
        _check_length(owners, str(folder / clients), found)
        names = _names(owners, folder / clients)
    train, test = split_rows(len(found), test_share, seed=seed, owners=names)
    owned = Owners.of(names, train, test, str(clients))
    return _dataset(Path(inputs).stem, [found], train, test, owned, target, classes)


def client_arrays(
    *, root: Text, inputs: Text, labels: Text, test_share: TestShare, target: LabelKind,
    classes: Count | None, seed: int,
) -> Dataset:  # fmt: skip
    """Load the arrays `inputs` and `labels` of each client from a folder; settings as of `arrays`.

    A client is a file `root`/<client>.npz with both, or a folder `root`/<client> with one `.npy`
    file for each. `test_share` of each client's samples are for test. Raises DataError that names
    the file.
    """
    folder = Path(root)
    found = read_clients(
        folder, partial(_of_client, inputs=inputs, labels=labels), (".npz",),
        folders=f"{inputs}.npy and {labels}.npy",
    )  # fmt: skip
    train, test, owners = found.split(test_share, seed)
    return _dataset(folder.name, found.parts, train, test, owners, target, classes)


def _of_client(path: Path, *, inputs: str, labels: str) -> Samples:
    if path.is_dir():
        return _samples(path / f"{inputs}.npy", path / f"{labels}.npy")
    return Samples(
        read_array(path, inputs), read_array(path, labels), f"{inputs} of {path}",
        f"{labels} of {path}",
    )  # fmt: skip


def _samples(inputs: Path, labels: Path) -> Samples:
    return Samples(read_array(inputs), read_array(labels), str(inputs), str(labels))


def _dataset(
    name: str, parts: Sequence[Samples], train: np.ndarray, test: np.ndarray, owners: Owners | None,
    target: LabelKind, classes: int | None,
) -> Dataset:  # fmt: skip
    """Return the data set of the samples of all parts in order; `classes` None: those they have."""
    outputs = classes or max(_classes(each.labels, target) for each in parts)
    for each in parts:
        same_form(parts[0].inputs, each.inputs, parts[0].inputs_from, each.inputs_from)
    inputs = np.concatenate([each.inputs for each in parts])
    labels = np.concatenate([
        checked_labels(each.labels, each.labels_from, samples=len(each), classes=outputs,
                       target=target)
        for each in parts
    ])  # fmt: skip
    if classes is None and target == "classification":
        _warn_of_unused_classes(labels)
    return Dataset(
        name, outputs, inputs[train], labels[train], inputs[test], labels[test], target=target,
        owners=owners, inferred=("data.classes",) if classes is None else (),
    )  # fmt: skip


def _warn_of_unused_classes(labels: np.ndarray) -> None:
    """Log that labels seem to count from 1, or to be numbers of another meaning, such as codes.

    The network has an answer for each number up to the largest one.
    """
    found = np.unique(labels)
    if not len(found):
        return
    if found[0] > 0:
        log.warning(
            "labels must begin at 0, the least one is %d: the network has an answer for classes "
            "without samples; subtract it, or give data.classes if the others come later",
            found[0],
        )
    elif 2 * len(found) <= found[-1]:
        log.warning(
            "labels must number the classes without gaps, got %d different ones up to %d: the "
            "network has an answer for each of %d classes; give numpy.unique(labels, "
            "return_inverse=True)[1], or data.classes if the others come later",
            len(found), found[-1], found[-1] + 1,
        )  # fmt: skip


def _check_length(array: np.ndarray, name: str, samples: Samples) -> None:
    if len(array) != len(samples):
        raise DataError(
            f"{name} must have one entry per row of {samples.inputs_from}, {len(samples):,}, got "
            f"{len(array):,}; save files that belong together"
        )


def read_array(path: Path, name: str | None = None, *, mapped: bool = False) -> np.ndarray:
    """Return the array of a `.npy` file, or that called `name` of a `.npz` file.

    `mapped`: a `.npy` file stays on the disk until its rows are used. Raises DataError for a file
    that is absent, damaged or has another form.
    """
    try:
        loaded = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            with loaded:
                if name is None or name not in loaded:
                    raise _without(path, name, loaded.files)
                loaded = loaded[name]
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(
            f"no array at {path}; put the file there or point data.root at it"
        ) from error
    except Exception as error:  # damaged files fail in different ways
        raise DataError(
            f"{path} must be a .npy or .npz file of numbers that can be read, got "
            f"{type(error).__name__}: {error}; save it again with numpy.save or numpy.savez"
        ) from error
    if loaded.ndim < 1:
        raise DataError(f"{path} must be one array of at least one dimension; save it as .npy")
    found: np.ndarray = loaded
    return found


def _without(path: Path, name: str | None, names: Sequence[str]) -> DataError:
    if name is None:
        return DataError(f"{path} must be one array, got a file of {shortened(names)}; save a .npy")
    return DataError(
        f"{path} must have the array {name}, got {shortened(names)}; save it by numpy.savez(path, "
        "inputs=..., labels=...)"
    )


def _names(owners: np.ndarray, path: Path) -> list[str]:
    """Return the client of each row (N,); raises DataError unless they are whole or names."""
    whole = owners
    if owners.dtype.kind == "f" and np.isfinite(owners).all():
        whole = owners.astype(np.int64)
    if owners.ndim != 1 or whole.dtype.kind not in "buiUS" or (whole != owners).any():
        raise DataError(
            f"{path} must have a whole number or a name for each row, got {owners.dtype} of shape "
            f"{owners.shape}; number the clients, and give rows of no known client one of their own"
        )
    if whole.dtype.kind == "S":
        return [str(each, "utf-8") for each in whole.tolist()]
    return [str(each) for each in whole.tolist()]


def _classes(labels: np.ndarray, target: LabelKind) -> int:
    """Return how many classes or numbers the labels have."""
    if target in ("regression", "multilabel"):
        return int(np.prod(labels.shape[1:]))
    known = labels.dtype.kind in "bui" and labels.size
    return int(labels.max()) + 1 if known else 1
