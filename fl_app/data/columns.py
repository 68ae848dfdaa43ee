"""The features of a table: numbers, categories as indicators, missing values filled in."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from logging import getLogger
from typing import Literal

import numpy as np

from fl_app.command_words import list_of
from fl_app.data.checks import DataError
from fl_app.data.frame import MISSING, Frame, of_categories, plain, shortened, warn_of_twins
from fl_app.types import Text

log = getLogger(__name__)
Missing = Literal["refuse", "mean", "median", "most_frequent"]
"""What becomes of a missing value: an error, or a statistic of the training rows."""
Categories = dict[Text, list[Text | int] | None] | list[Text | int] | None
"""Column to its categories, None: those of the training rows; or the columns alone."""
MOST_CATEGORIES = 1000
FEW_CATEGORIES = 10
UNREAD_NUMBER = re.compile(
    r"[+-]?(\d+,\d+|\d{1,3}([.,\s'\u2019]\d{3})+([.,]\d+)?|\d+([.,]\d+)?\s?%)$"
)
"""A number with a decimal comma, with groups of thousands, or in percent."""
DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T]\d{1,2}:\d{2}.*)?")
"""A day, with or without a time."""
ROUNDING = 16
"""Numbers that differ by at most so many steps of float64 are those of a constant column."""
FEWEST_STEPS = 16
"""A column whose deviation is fewer steps of float32 at its largest value is told to be coarse."""


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers as one feature: filled in by `fill`, then `(x - mean) / deviation`.

    `fill` None: a missing value is an error. `mean` None: the numbers are not scaled.
    """

    name: str
    fill: float | None
    mean: float | None
    deviation: float | None

    def features(self, frame: Frame) -> np.ndarray:
        """Return the feature (N, 1) of a table."""
        values = frame.numbers(self.name)
        absent = np.isnan(values)
        if absent.any():
            if self.fill is None:
                raise _missing(frame, self.name, absent)
            values = np.where(absent, self.fill, values)
        if self.mean is not None:
            values = (values - self.mean) / (self.deviation or 1.0)
        if frame.after_run is None:
            _warn_of_rounding(frame, self.name, values, scaled=self.mean is not None)
        return values[:, None]


@dataclass(frozen=True)
class CategoryColumn:
    """A column of words as one indicator per category; `usual` replaces a missing one.

    `usual` None: a missing value is an error. `closed`: so is a word that is no category.
    """

    name: str
    categories: Sequence[str]
    usual: str | None
    closed: bool

    def features(self, frame: Frame) -> np.ndarray:
        """Return the indicators (N, c) of a table."""
        place = {plain(word): number for number, word in enumerate(self.categories)}
        words = [self._read(word, place, frame) for word in frame.words(self.name)]
        found = np.zeros((len(words), len(self.categories)), np.float32)
        unknown = []
        for row, given in enumerate(words):
            word = self.usual if given is None else given
            if word is None:
                raise _missing(frame, self.name, np.array([each is None for each in words]))
            if plain(word) in place:
                found[row, place[plain(word)]] = 1
            elif self.closed:
                rule = f"one of data.categories.{self.name}, {shortened(self.categories)}"
                setting = "add it there on all machines"
                raise frame.error(row, self.name, rule, "correct it", setting)
            else:
                unknown.append(word)
        if unknown:
            frame.unknown(self.name, len(unknown), unknown[0])
        return found

    def _read(self, word: str | None, place: Mapping[str, int], frame: Frame) -> str | None:
        """Return a word as the categories have it, None if it is missing: tables differ in this.

        A truth value is 0 or 1 in some, and TRUE or true in others. In text files no cell has white
        space around it, and some words stand for a missing value, unless the run knows them.
        """
        if word is None or plain(word) in place:
            return word
        short = word.strip()
        if {each.lower() for each in self.categories} == {"true", "false"}:
            truths = {name: each for each in self.categories for name in _names(each)}
            short = truths.get(short.lower(), short)
        if plain(short) in place:
            return short
        return None if frame.after_run is not None and short.lower() in MISSING else word


FeatureColumn = NumberColumn | CategoryColumn


def fitted_columns(
    frame: Frame, names: Sequence[str], train: np.ndarray, *,
    categories: Categories, missing: Missing, standardise: bool,
) -> tuple[list[FeatureColumn], list[str]]:  # fmt: skip
    """Return how each column becomes features, and the settings that were left to the rows.

    A column of numbers is one feature; a column of words, or one named in `categories`, is one
    indicator per category. Statistics and categories are those of the rows `train`. With `mean`
    and `median` a missing category is the most frequent one. A category that the training rows do
    not have has no indicator, unless `categories` lists them: then it is an error.
    """
    given = by_column(categories)
    unknown = [name for name in given if name not in names]
    if unknown:
        raise DataError(
            f"data.categories must name columns with features of {frame.name}, "
            f"{shortened(names)}, got {unknown[0]!r}; correct it"
        )
    parts: list[FeatureColumn] = []
    inferred = []
    for name in names:
        if name in given or not frame.numeric(name):
            if name not in given:
                _check_words(frame, name)
            known = given.get(name)
            inferred += [] if known else [f"data.categories.{name}"]
            parts.append(_categories(frame, name, train, known, missing))
        else:
            inferred += ["data.standardise"] if standardise else []
            parts.append(_numbers(frame, name, train, missing, standardise))
    if not parts:
        raise DataError(f"{frame.name} must have a column with features, got none; add one")
    return parts, list(dict.fromkeys(inferred))


def features(frame: Frame, columns: Sequence[FeatureColumn]) -> np.ndarray:
    """Return the features (N, d) float32 of a table's rows; raises DataError for a wrong cell."""
    for column in columns:
        if column.name not in frame.columns:
            raise DataError(
                f"{frame.name} must have the column {column.name!r} like the data of the run, got "
                f"{shortened(list(frame.columns))}; add it"
            )
    return np.concatenate([each.features(frame) for each in columns], axis=1, dtype=np.float32)


def _names(truth: str) -> tuple[str, str]:
    """Return how true or false is written, in lower case."""
    return truth.lower(), str(int(truth.lower() == "true"))


def _missing(frame: Frame, name: str, absent: np.ndarray) -> DataError:
    """Return the error for the first of the missing cells."""
    setting = (
        f"give data.missing=most_frequent for all {absent.sum():,} missing cells of this column"
    )
    remedy = "fill it or remove the row"
    return frame.error(int(absent.argmax()), name, "given", remedy, setting)


def _numbers(
    frame: Frame, name: str, train: np.ndarray, missing: Missing, standardise: bool
) -> NumberColumn:
    """Return a column of numbers with the statistics of its training rows."""
    values = frame.numbers(name)
    absent = np.isnan(values)
    given = values[train][~absent[train]]
    _check_missing(frame, name, absent, missing, len(given))
    fill = _typical(given, missing) if missing != "refuse" and len(given) else None
    if not standardise or not len(given):
        return NumberColumn(name, fill, None, None)
    whole = values[train]
    whole = whole if fill is None else np.where(np.isnan(whole), fill, whole)
    largest = float(np.abs(whole).max())
    _, power = np.frexp(largest)  # without it squares of numbers near 1e-200 are 0
    deviation = float(np.ldexp(np.ldexp(whole, -power).std(), power))
    varies = np.ptp(whole) > ROUNDING * np.spacing(largest)
    return NumberColumn(name, fill, float(whole.mean()), deviation if varies else 0.0)


def _warn_of_rounding(frame: Frame, name: str, values: np.ndarray, *, scaled: bool) -> None:
    """Log a warning for numbers (N,) that are large beside their differences, as dates can be."""
    rounded = values.astype(np.float32)
    step = float(np.spacing(np.abs(rounded).max(initial=0)))
    lost = np.flatnonzero(rounded != values)
    if len(lost) and np.ptp(values) > 0 and float(values.std()) < FEWEST_STEPS * step:
        log.warning(
            "column %r of %s: numbers such as %.12g become multiples of %g in float32, which hides "
            "much of their differences; %ssubtract a constant, or leave "
            "the column out with %s", name, frame.name, values[lost[0]], step,
            "" if scaled else "give data.standardise=true, ", list_of("data.exclude", name),
        )  # fmt: skip


def by_column(categories: Categories) -> dict[str, list[str | int] | None]:
    """Return the categories of columns by name, None for those of the training rows."""
    if isinstance(categories, dict):
        return categories
    return {str(name): None for name in categories or ()}


def _check_words(frame: Frame, name: str) -> None:
    """Raise DataError for lists, and for words that are all numbers in a form that is not read."""
    lists = [row for row, cell in enumerate(frame.columns[name]) if isinstance(cell, list)]
    if lists:
        remedy = "give each number a column, or use data=arrays for vectors and data=text for texts"
        raise frame.error(lists[0], name, "a number or a word", remedy)
    words = frame.words(name)
    given = [row for row, word in enumerate(words) if word is not None]
    if given and all(UNREAD_NUMBER.match(str(words[row])) for row in given):
        remedy = (
            "write the numbers of this column so, or give "
            f"{of_categories(name)} if they are categories"
        )
        raise frame.error(given[0], name, "a number with a decimal point alone", remedy)


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
    if not absent.any():
        return
    if not given:  # with which no setting can fill it in
        raise frame.error(
            int(absent.argmax()), name, "given in at least one training row",
            f"leave the column out with {list_of('data.exclude', name)}",
        )  # fmt: skip
    if missing == "refuse":
        raise _missing(frame, name, absent)


def _categories(
    frame: Frame, name: str, train: np.ndarray, listed: Sequence[str | int] | None,
    missing: Missing,
) -> CategoryColumn:  # fmt: skip
    """Return a column of words with its categories: those listed, or of the training rows."""
    words = frame.words(name)
    absent = np.array([word is None for word in words], bool)
    given = [word for row in train if (word := words[row]) is not None]
    _check_missing(frame, name, absent, missing, len(given))
    often = Counter(given)
    fills = missing != "refuse" and often
    usual = min(often, key=lambda word: (-often[word], word)) if fills else None
    known = [str(each) for each in listed] if listed else sorted(often)
    if len(known) > MOST_CATEGORIES:
        raise DataError(
            f"column {name!r} of {frame.name} must have at most {MOST_CATEGORIES:,} categories, "
            f"got {len(known):,}; leave it out with {list_of('data.exclude', name)}"
        )
    if not listed and len(known) > FEW_CATEGORIES and all(map(DATE.fullmatch, known)):
        log.warning(
            "column %r of %s has dates, such as %r, each of which becomes a feature of its own, "
            "%d in all; %s leaves it out, a number such as the day of the year is one feature",
            name, frame.name, known[0], len(known), list_of("data.exclude", name),
        )  # fmt: skip
    elif not listed and len(known) > max(FEW_CATEGORIES, len(train) // 2):
        log.warning(
            "column %r of %s has %d categories, such as %r, in %d rows for training, so that most "
            "rows have one of their own; %s leaves it out, a number such as the day "
            "of a date is one feature", name, frame.name, len(known), known[0], len(train),
            list_of("data.exclude", name),
        )  # fmt: skip
    warn_of_twins(known, f"the categories of column {name!r} of {frame.name}")
    return CategoryColumn(name, known, usual, bool(listed))
