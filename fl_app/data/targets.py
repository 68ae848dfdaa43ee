"""The labels of a table: classes with names, several labels of 0 and 1, or numbers to predict."""

import re
from collections.abc import Sequence

import numpy as np

from fl_app.data.checks import DataError
from fl_app.data.frame import Frame, is_number, plain, shortened, truth, warn_of_twins
from fl_app.types import Count, Text

Classes = Count | list[Text | int] | None
"""Number of classes 0..k-1, or their names in order; None: the values of the rows, in order."""
MOST_CLASSES = 1000


def classes_of(frame: Frame, column: str, classes: Classes) -> tuple[np.ndarray, list[str]]:
    """Return the class of each row (N,) in 0..k-1, and the names of the classes.

    Numbers are in the order of their values, words in the order of the alphabet. Raises DataError
    for a row without class, for a number that is not whole, and for a class that is not listed.
    """
    words = _words(frame, column)
    if isinstance(classes, int):
        names = [str(number) for number in range(classes)]
    elif classes is not None:
        names = [str(each) for each in classes]
    else:
        names = _found(frame, column, words)
    either = {truth(name): name for name in names}
    if len(names) == 2 and either.keys() == {"0", "1"}:  # files have truth values in several forms
        words = [either.get(truth(word), word) for word in words]
    place = {name: number for number, name in enumerate(names)}
    if len(place) < len(names) or not names:
        raise DataError(
            f"data.classes must be different names, at least one, got {names}; list each once"
        )
    for row, word in enumerate(words):
        if word not in place:
            rule = f"one of the classes {shortened(names)}"
            raise frame.error(row, column, rule, "correct it", "set data.classes on all machines")
    return np.array([place[word] for word in words], int), names


def numbers_of(frame: Frame, column: str) -> np.ndarray:
    """Return the number to predict of each row (N,); raises DataError for a missing one."""
    values = frame.numbers(column)
    absent = np.isnan(values)
    if absent.any():
        raise frame.error(int(absent.argmax()), column, "a number to predict", "remove the row")
    return values


def truths_of(frame: Frame, column: str) -> np.ndarray:
    """Return 0 or 1 for each row (N,); raises DataError for anything else."""
    found = []
    for row, word in enumerate(frame.words(column)):
        value = None if word is None else truth(word)
        if value not in ("0", "1"):
            raise frame.error(
                row, column, "0 or 1, or false or true, for a label that a row has or has not",
                "correct it, or remove the row",
            )  # fmt: skip
        found.append(int(value))
    return np.array(found, int)


def _words(frame: Frame, column: str) -> list[str]:
    """Return the label of each row as text; whole numbers such as 1.0 become 1, but not 01."""
    found = []
    for row, word in enumerate(frame.words(column)):
        if word is None:
            raise frame.error(row, column, "the class of its row", "fill it or remove the row")
        whole = is_number(word)
        if whole and not float(word).is_integer():
            raise frame.error(
                row, column, "a whole number or a word as a class",
                "give data.target=regression to predict numbers",
            )  # fmt: skip
        found.append(_whole(word) if whole else word)
    return found


def _whole(word: str) -> str:
    """Return a whole number such as 1.0 in its usual form; long ones stay exact.

    Leading zeros stay, as in the names of clients and categories: 01 and 1 can be two codes.
    """
    word = plain(word).removeprefix("+")
    word = "0" if word == "-0" else word
    return word if re.fullmatch(r"-?\d+", word) else str(int(float(word)))


def _found(frame: Frame, column: str, words: Sequence[str]) -> list[str]:
    """Return the classes that the rows have, numbers before words."""
    numbers = {word for word in words if is_number(word)}
    names = sorted(numbers, key=lambda word: (int(word), word)) + sorted(set(words) - numbers)
    if len(names) > MOST_CLASSES:
        raise DataError(
            f"column {column!r} of {frame.name} must have at most {MOST_CLASSES:,} classes, got "
            f"{len(names):,}; give data.target=regression for numbers, or another data.label"
        )
    if len(words) and len(names) < 2:
        raise DataError(
            f"column {column!r} of {frame.name} must have at least two classes, got only "
            f"{names[0]!r}; use another data.label"
        )
    warn_of_twins(names, f"the classes of column {column!r} of {frame.name}")
    return names or ["unknown"]
