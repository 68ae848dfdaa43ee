"""Points without pictures: synthetic blobs, and tables that clients bring."""

from pathlib import Path

import numpy as np
from pydantic import PositiveFloat

from fl_app.data.datasets import DataError, Dataset
from fl_app.rng import generator
from fl_app.types import Count, NonNegativeInt, Seed, Text

MOST_COORDINATES = 2**28
"""Of the points that are drawn: 2 GiB in double precision."""
TEST_SHARE = 0.2
"""Of the training samples, drawn besides as test data."""


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
    """Draw Gaussian blobs around centres uniform in [-1, 1]^d, and outliers uniform there.

    A point's class is its centre; outliers are a class of their own, the last. `draw` numbers
    the points that all seeds of a sweep share; None: each seed draws its own. Holzer et al.,
    2023, experiments: five centres in the plane, deviation 0.2, 10,000 points and 100 outliers.
    """
    coordinates = (centres + samples + outliers) * dimensions
    if coordinates > MOST_COORDINATES:
        raise ValueError(
            f"data.centres, data.samples and data.outliers together times data.dimensions must be "
            f"at most {MOST_COORDINATES:,}, got {coordinates:,}; draw fewer points"
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
    """Load a client's own table from `root`/`file`: a row a point, a column a dimension.

    A `.npy` array, or comma-separated text with or without a first line of names. `label` is
    the name or number of the column that holds classes 0..`classes` - 1; None: all columns
    are coordinates, and only distances are measured. Nothing is scaled: all clients must
    share their units. The table is training and test data at once; the server of a real
    deployment needs its first line of names alone. Raises DataError for a
    file that is not there, or not of this form.
    """
    path = Path(root) / file
    if (label is None) != (classes is None):
        raise DataError(
            f"data.label={label} and data.classes={classes} go together; give both, or neither "
            "where no classes are known"
        )
    names, values = _read(path)
    if not np.isfinite(values).all():
        raise DataError(f"{path} must hold finite numbers only; fill in or drop its gaps")
    labels = np.zeros(len(values), int)
    if label is not None and classes is not None:
        place = _place(label, names, values.shape[1], path)
        labels, values = _classes(values[:, place], classes, path), np.delete(values, place, 1)
    points = values.astype(np.float32)[:, None, None, :]
    return Dataset(path.stem, classes or 1, points, labels, points, labels)


def _read(path: Path) -> tuple[list[str], np.ndarray]:
    """Return the names of the columns, where there are any, and the rows (N, columns)."""
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
            f"{path} must hold numbers in rows and columns, got {values.dtype} of shape "
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
    """Return the number of the label's column; raises DataError where there is none."""
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
            f"{values.min():g}..{values.max():g}; number them alike on all clients"
        )
    return labels
