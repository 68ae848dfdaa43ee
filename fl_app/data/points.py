"""Data sets of points: synthetic blobs, and tables of the clients."""

from pathlib import Path

import numpy as np
from pydantic import PositiveFloat

from fl_app.data.datasets import DataError, Dataset
from fl_app.rng import generator
from fl_app.types import Count, NonNegativeInt, Seed, Text

MOST_COORDINATES = 2**28
"""Limit for the drawn points: 2 GiB in double precision."""
TEST_SHARE = 0.2
"""Number of additional test samples, as a share of the training samples."""


def blobs(
    *,
    centres: Count,
    samples: Count,
    outliers: NonNegativeInt,
    deviation: PositiveFloat,
    dimensions: Count,
    draw: Seed | None,
    seed: int,
) -> Dataset:
    """Draw Gaussian blobs around uniform centres in [-1, 1]^d, and uniform outliers there.

    The class of a point is its centre; outliers are one more class, the last. `draw` is a seed of
    the points, for sweeps in which all seeds share the same points; None: the run's seed. Holzer
    et al., 2023, experiments: five centres in the plane, deviation 0.2, 10,000 points and 100
    outliers.
    """
    coordinates = (centres + samples + outliers) * dimensions
    if coordinates > MOST_COORDINATES:
        raise ValueError(
            "(data.centres + data.samples + data.outliers) * data.dimensions must be at most "
            f"{MOST_COORDINATES:,}, got {coordinates:,}; draw fewer points"
        )
    source = generator(seed if draw is None else draw, purpose="blobs")
    middle = source.uniform(-1, 1, (centres, dimensions))

    def points(count: int, beside: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(count) % centres
        near = middle[labels] + source.normal(0, deviation, (count, dimensions))
        far = source.uniform(-1, 1, (beside, dimensions))
        order = source.permutation(count + beside)
        every = np.concatenate([near, far]).astype(np.float32)[order]
        classes = np.concatenate([labels, np.full(beside, centres)])[order]
        return every[:, None, None, :], classes

    train = points(samples, outliers)
    test = points(max(1, round(samples * TEST_SHARE)), round(outliers * TEST_SHARE))
    return Dataset("blobs", centres + (outliers > 0), *train, *test)


def table(
    *, root: Text, file: Text, label: Text | int | None,
    classes: Count | None, seed: int,
) -> Dataset:  # fmt: skip
    """Load a client's own table from `root`/`file`: one row per point, one column per dimension.

    It is a `.npy` array, or comma-separated text with or without a first line of names. `label`
    is the name or number of the column with the classes 0..`classes` - 1; None: all columns are
    coordinates, and only distances are measured. Nothing is scaled: all clients must use the same
    units. The table is both training and test data. The server of a real deployment needs only
    its first line of names. Raises DataError for a missing file and for another form.
    """
    path = Path(root) / file
    if (label is None) != (classes is None):
        raise DataError(
            f"data.label and data.classes must be given together, got {label} and {classes}; give "
            "both, or neither if there are no classes"
        )
    names, values = _read(path)
    if not np.isfinite(values).all():
        raise DataError(f"{path} must contain only finite numbers; fill or remove missing values")
    labels = np.zeros(len(values), int)
    if label is not None and classes is not None:
        place = _place(label, names, values.shape[1], path)
        labels, values = _classes(values[:, place], classes, path), np.delete(values, place, 1)
    points = values.astype(np.float32)[:, None, None, :]
    return Dataset(path.stem, classes or 1, points, labels, points, labels)


def _read(path: Path) -> tuple[list[str], np.ndarray]:
    """Return the names of the columns, if any, and the rows (N, columns)."""
    try:
        if path.suffix == ".npy":
            values = np.load(path, allow_pickle=False)
            names: list[str] = []
        else:
            lines = path.read_text(encoding="utf-8").splitlines() or [""]
            first = [cell.strip() for cell in lines[0].split(",")]
            names = [] if all(map(_is_number, first)) else first
            rows = lines[bool(names) :]
            values = np.empty((0, len(first)))
            values = np.loadtxt(rows, delimiter=",", ndmin=2) if rows else values
    except (OSError, ValueError) as error:
        raise DataError(
            f"no table at {path}: expected an array of numbers as .npy, or comma-separated "
            f"numbers; put it there or point data.root and data.file elsewhere ({error})"
        ) from error
    if values.ndim != 2 or not np.issubdtype(values.dtype, np.number):
        raise DataError(
            f"{path} must contain numbers in rows and columns, got {values.dtype} of shape "
            f"{values.shape}; save an array (points, dimensions)"
        )
    return names, values


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _place(label: Text | int, names: list[str], columns: int, path: Path) -> int:
    """Return the number of the label's column; raises DataError if there is none."""
    if isinstance(label, str) and label in names:
        return names.index(label)
    if isinstance(label, int) and -columns <= label < columns:
        return label
    raise DataError(
        f"data.label must name a column of {path}, {names or f'0..{columns - 1}'}, got {label!r}"
    )


def _classes(values: np.ndarray, classes: int, path: Path) -> np.ndarray:
    labels: np.ndarray = values.astype(int)
    if (labels != values).any() or ((labels < 0) | (labels >= classes)).any():
        raise DataError(
            f"the classes of {path} must be whole numbers in 0..{classes - 1}, got "
            f"{values.min():g}..{values.max():g}; use the same numbers on all clients"
        )
    return labels
