"""Inputs of any shape in NumPy files, such as signals (N, channels, time)."""

from pathlib import Path

import numpy as np

from fl_app.data.checks import DataError, LabelKind
from fl_app.data.datasets import Dataset
from fl_app.data.split import Owners, TestShare, split_rows
from fl_app.types import Count, Text


def arrays(
    *, root: Text, inputs: Text, labels: Text, clients: Text | None, test_share: TestShare,
    target: LabelKind, classes: Count | None, seed: int,
) -> Dataset:  # fmt: skip
    """Load `root`/`inputs` (N, ...) and `root`/`labels` (N, ...), as `Dataset` has them.

    `clients` is a file with the client of each row (N,), numbers or names. `test_share` of the
    rows, or of each client's rows, are for test. Raises DataError that names the file.
    """
    folder = Path(root)
    found, given = read_array(folder / inputs), read_array(folder / labels)
    owners = None if clients is None else read_array(folder / clients)
    for name, array in ((labels, given), (clients, owners)):
        if array is not None and len(array) != len(found):
            raise DataError(
                f"{folder / str(name)} must have one entry per row of {folder / inputs}, "
                f"{len(found):,}, got {len(array):,}; save files that belong together"
            )
    inferred = ("data.classes",) if classes is None else ()
    names = None if owners is None else _names(owners, folder / str(clients))
    train, test = split_rows(len(found), test_share, seed=seed, owners=names)
    outputs = classes or _classes(given, target)
    return Dataset(
        Path(inputs).stem, outputs, found[train], given[train], found[test], given[test],
        target=target, owners=Owners.of(names, train, test, str(clients)), inferred=inferred,
    )  # fmt: skip


def read_array(path: Path, *, mapped: bool = False) -> np.ndarray:
    """Return the array (N, ...) in a file, `mapped` from the disk; raises DataError."""
    try:
        loaded: np.ndarray = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except FileNotFoundError as error:
        raise DataError(
            f"no array at {path}; put the file there or point data.root at it"
        ) from error
    except Exception as error:  # damaged files fail in different ways
        raise DataError(
            f"{path} must be a .npy file of numbers that can be read, got "
            f"{type(error).__name__}: {error}; save it again with numpy.save"
        ) from error
    if not isinstance(loaded, np.ndarray) or loaded.ndim < 1:
        raise DataError(f"{path} must be one array of at least one dimension; save it as .npy")
    return loaded


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
