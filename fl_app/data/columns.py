"""The features of a table: numbers, categories as indicators, missing values filled in."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

from fl_app.data.checks import DataError
from fl_app.data.frame import Frame, shortened
from fl_app.types import Text

Missing = Literal["refuse", "mean", "median", "most_frequent"]
"""What becomes of a missing value: an error, or a statistic of the training rows."""
Categories = dict[Text, list[Text | int] | None]
"""Column to its categories; None: those of the training rows."""
MOST_CATEGORIES = 1000


def features(
    frame: Frame, names: Sequence[str], train: np.ndarray, *,
    categories: Categories, missing: Missing, standardise: bool,
) -> tuple[np.ndarray, list[str]]:  # fmt: skip
    """Return the features (N, d) float32 of all rows, and the settings that were left to the rows.

    A column of numbers is one feature; a column of words, or one named in `categories`, is one
    indicator per category. Statistics and categories are those of the rows `train`. With `mean`
    and `median` a missing category is the most frequent one. A category that the training rows do
    not have has no indicator, unless `categories` lists them: then it is an error.
    """
    unknown = [name for name in categories if name not in names]
    if unknown:
        raise DataError(
            f"data.categories must name columns with features of {frame.name}, "
            f"{shortened(names)}, got {unknown[0]!r}; correct it"
        )
    parts, inferred = [], []
    for name in names:
        if name in categories or not frame.numeric(name):
            listed = categories.get(name)
            inferred += [] if listed else [f"data.categories.{name}"]
            parts.append(_indicators(frame, name, train, listed, missing))
        else:
            inferred += ["data.standardise"] if standardise else []
            parts.append(_numbers(frame, name, train, missing, standardise)[:, None])
    if not parts:
        raise DataError(f"{frame.name} must have a column with features, got none; add one")
    return np.concatenate(parts, axis=1, dtype=np.float32), list(dict.fromkeys(inferred))


def _numbers(
    frame: Frame, name: str, train: np.ndarray, missing: Missing, standardise: bool
) -> np.ndarray:
    """Return a column of numbers (N,), filled in and scaled by its training rows."""
    values = frame.numbers(name)
    absent = np.isnan(values)
    given = values[train][~absent[train]]
    if absent.any():
        _check_missing(frame, name, absent, missing, len(given))
        values = np.where(absent, _typical(given, missing), values)
    if standardise and len(given):
        whole = values[train]
        values = (values - whole.mean()) / (whole.std() or 1.0)
    return values


def _typical(values: np.ndarray, missing: Missing) -> float:
    if missing == "mean":
        return float(values.mean())
    if missing == "median":
        return float(np.median(values))
    found, counts = np.unique(values, return_counts=True)
    return float(found[counts.argmax()])  # the smallest of equally frequent ones


def _check_missing(
    frame: Frame, name: str, absent: np.ndarray, missing: Missing, given: int
) -> None:
    """Raise DataError for the first missing cell, unless it can be filled in."""
    row = int(absent.argmax())
    if missing == "refuse":
        remedy = (
            f"fill it, remove the row, or give data.missing=most_frequent for all {absent.sum():,} "
            "missing cells of this column"
        )
        raise frame.error(row, name, "given", remedy)
    if not given:
        raise frame.error(
            row, name, "given in at least one training row",
            f"leave the column out with data.exclude=[{name}]",
        )  # fmt: skip


def _indicators(
    frame: Frame, name: str, train: np.ndarray, listed: Sequence[str | int] | None,
    missing: Missing,
) -> np.ndarray:  # fmt: skip
    """Return one indicator per category (N, c): the listed ones, or those of the training rows."""
    words = frame.words(name)
    absent = np.array([word is None for word in words], bool)
    given = [word for row in train if (word := words[row]) is not None]
    if absent.any():
        _check_missing(frame, name, absent, missing, len(given))
        often = Counter(given)
        usual = min(often, key=lambda word: (-often[word], word))
        words = [usual if word is None else word for word in words]
    known = [str(each) for each in listed] if listed else sorted(set(given))
    if len(known) > MOST_CATEGORIES:
        raise DataError(
            f"column {name!r} of {frame.name} must have at most {MOST_CATEGORIES:,} categories, "
            f"got {len(known):,}; leave it out with data.exclude=[{name}]"
        )
    place = {word: number for number, word in enumerate(known)}
    found = np.zeros((len(words), len(known)), np.float32)
    for row, word in enumerate(words):
        if word in place:
            found[row, place[word]] = 1
        elif listed:
            rule = f"one of data.categories.{name}, {shortened(known)}"
            raise frame.error(row, name, rule, "correct it or add it there on all machines")
    return found
