"""Tables in memory: columns of cells, and the place of each row in its file for messages."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from logging import getLogger
from math import isnan
from typing import Any
from unicodedata import normalize

import numpy as np

from fl_app.command_words import is_key, list_of
from fl_app.data.checks import DataError

log = getLogger(__name__)
MISSING = {"", "na", "n/a", "nan", "null", "?"}
"""Cells of a text that stand for a missing value, in lower case."""
NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|infinity)$", re.IGNORECASE)
WHOLE = re.compile(r"^([+-]?\d+)\.0*$")
TRUTHS = {"true": "1", "false": "0"}
"""Truth values, which some files have as numbers and others as words."""
LONGEST_TRUTH = len("false")
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Source:
    """A file, and the numbers (rows,) of its rows there; `unit` is what they count, as "line"."""

    name: str
    unit: str
    numbers: np.ndarray


@dataclass
class AfterRun:
    """What rows for a finished run have in common: fixed settings, and words unknown to the run.

    A large file is read in parts, which share one.
    """

    rows: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def tell(self, name: str) -> None:
        """Log a warning for each column of `name` with unknown words."""
        for column, rows in self.unknown.items():
            _warn_of_unknown(column, name, rows, self.rows, self.examples[column])


def _warn_of_unknown(column: str, name: str, rows: int, of: int, example: str) -> None:
    """Log how many rows of a table have a word without an indicator."""
    log.warning(
        "column %r of %s: %d of %d rows have a word that is none of its categories, such as %r, "
        "and so no indicator", column, name, rows, of, example,
    )  # fmt: skip


@dataclass(frozen=True)
class Frame:
    """Columns (N,) by name: float64 with NaN for a missing number, or objects with None.

    Objects are texts, also of whole numbers that float64 would change, or lists where a file can
    hold them. Rows come from the sources in order.
    """

    columns: Mapping[str, np.ndarray]
    sources: tuple[Source, ...]
    after_run: AfterRun | None = None
    """Given if the rows are for a finished run."""
    originals: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The columns (N,) with words for a missing value, such as ?, which texts can consist of."""

    def __len__(self) -> int:
        return sum(len(source.numbers) for source in self.sources)

    @property
    def name(self) -> str:
        """The first file, and how many more there are."""
        more = f" and {len(self.sources) - 1} more" if len(self.sources) > 1 else ""
        return f"{self.sources[0].name}{more}"

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum([len(source.numbers) for source in self.sources])

    def place(self, row: int, column: str) -> str:
        """Return where a cell is, for messages."""
        which = int(np.searchsorted(self._ends, row, side="right"))
        source = self.sources[which]
        number = source.numbers[row - int(self._ends[which])]
        return f"{source.unit} {number}, column {column!r} of {source.name}"

    def column(self, name: str | int, setting: str) -> str:
        """Return the name of a column, given by name or number; raises DataError without one."""
        names = list(self.columns)
        if isinstance(name, str) and name in names:
            return name
        remedy = "use one of these"
        if isinstance(name, bool):
            remedy = f"a name such as {str(name).lower()} needs quotes"
        elif isinstance(name, int) and -len(names) <= name < len(names):
            return names[name]
        if len(names) == 1:
            remedy = "separate the columns of a text by commas, semicolons or tabs"
        raise DataError(
            f"{setting} must name a column of {self.name}, one of {shortened(names)}, got "
            f"{name!r}; {remedy}"
        )

    def texts(self, name: str) -> np.ndarray:
        """Return a column (N,) of texts or lists, in which only an empty cell is missing."""
        return self.originals.get(name, self.columns[name])

    def words(self, name: str) -> list[str | None]:
        """Return a column as texts, None where missing; a whole number has no decimal point."""
        column = self.columns[name]
        if column.dtype.kind == "f":
            return [_word(cell) for cell in column.tolist()]
        return [None if cell is None else str(cell) for cell in column.tolist()]

    def numeric(self, name: str) -> bool:
        """Whether a column has a number, so that all its cells must be numbers."""
        column = self.columns[name]
        cells = [cell for cell in column.tolist() if cell is not None]
        return column.dtype.kind == "f" or not cells or any(map(is_number, cells))

    def numbers(self, name: str) -> np.ndarray:
        """Return a column as float64 (N,) with NaN for a missing cell; raises DataError."""
        column = self.columns[name]
        values = column if column.dtype.kind == "f" else self._parsed(name, column)
        wrong = np.abs(values) > LARGEST
        if wrong.any():
            raise self.error(int(wrong.argmax()), name, "a finite float32", "correct it")
        return values

    def _parsed(self, name: str, column: np.ndarray) -> np.ndarray:
        values = np.full(len(column), np.nan)
        truths = {} if self.after_run is None else TRUTHS
        for row, given in enumerate(column.tolist()):
            if given is None:
                continue
            cell = truths.get(given.lower(), given) if isinstance(given, str) else given
            if not is_number(cell):
                raise self.error(
                    row, name, "a number like the others of its column", "correct it",
                    f"give {of_categories(name)} if the column has categories",
                )  # fmt: skip
            values[row] = float(cell)
        return values

    def unknown(self, column: str, rows: int, example: str) -> None:
        """Tell, now or after all parts of a table, how many rows have a word without indicator."""
        if self.after_run is None:
            _warn_of_unknown(column, self.name, rows, len(self), example)
            return
        self.after_run.unknown[column] += rows
        self.after_run.examples.setdefault(column, example)

    def error(self, row: int, column: str, rule: str, remedy: str, setting: str = "") -> DataError:
        """Return the error for a cell that breaks a rule.

        `setting` is another remedy, which is of no use once the run has ended.
        """
        cell = self.columns[column][row]
        nothing = cell is None or (isinstance(cell, float) and isnan(cell))
        got = "nothing" if nothing else repr(cell.item() if isinstance(cell, np.generic) else cell)
        more = f", or {setting}" if setting and self.after_run is None else ""
        return DataError(f"{self.place(row, column)} must be {rule}, got {got}; {remedy}{more}")


def is_number(cell: Any) -> bool:
    """Whether a text is a decimal number."""
    return isinstance(cell, str) and NUMBER.match(cell) is not None


def truth(word: str) -> str:
    """Return a truth value in any form as 0 or 1; other words without a needless decimal point."""
    return TRUTHS.get(word.lower(), plain(word))


def plain(word: str) -> str:
    """Return a whole number such as 1.0 without its decimal point; other words as they are.

    Files of floats write what other files have as integers.
    """
    return WHOLE.sub(r"\1", word)


def joined(frames: Sequence[Frame]) -> Frame:
    """Return the rows of all frames; raises DataError unless all have the same columns."""
    first = frames[0]
    for other in frames[1:]:
        if other.columns.keys() != first.columns.keys():
            raise DataError(
                f"{other.name} must have the {len(first.columns)} columns of {first.name}, got "
                f"{difference(list(first.columns), list(other.columns))}; use tables of one form"
            )
    columns = {name: _together([frame.columns[name] for frame in frames]) for name in first.columns}
    originals = {
        name: _together([frame.texts(name) for frame in frames])
        for name in dict.fromkeys(name for frame in frames for name in frame.originals)
    }
    sources = tuple(source for frame in frames for source in frame.sources)
    return Frame(columns, sources, originals=originals)


def difference(wanted: Sequence[str], given: Sequence[str]) -> str:
    """Return how the columns of a table differ from those of another."""
    absent = [name for name in wanted if name not in given]
    more = [name for name in given if name not in wanted]
    told = [f"no {shortened([repr(name) for name in absent])}"] if absent else []
    told += [f"{shortened([repr(name) for name in more])} in addition"] if more else []
    return ", and ".join(told)


def _together(parts: list[np.ndarray]) -> np.ndarray:
    """Return parts of a column as one; numbers become texts if another file has texts there.

    Truth values that are 0 and 1 in one file, as those of Parquet, and words in another become 0
    and 1 in all.
    """
    kinds = {part.dtype.kind for part in parts if len(part)}
    if kinds == {"f", "O"}:
        parts = [_texts(part) if part.dtype.kind == "f" else part for part in parts]
    elif len(kinds) == 1:
        parts = [part for part in parts if len(part)]
    whole = np.concatenate(parts)
    return whole if whole.dtype.kind == "f" else _truths(whole)


def _truths(cells: np.ndarray) -> np.ndarray:
    """Return cells (N,) that are all truth values, some of them as words, as 0 and 1."""
    if any(len(str(cell)) > LONGEST_TRUTH for cell in cells.tolist()):  # soon, among texts
        return cells
    given = {str(cell) for cell in cells.tolist() if cell is not None}
    values = {cell: truth(cell) for cell in given}
    words = sum(cell.lower() in TRUTHS for cell in given)
    if not 0 < words < len(given) or not {*values.values()} <= {"0", "1"}:
        return cells
    found = np.empty(len(cells), object)
    found[:] = [None if cell is None else values[str(cell)] for cell in cells.tolist()]
    return found


def _texts(numbers: np.ndarray) -> np.ndarray:
    texts = np.empty(len(numbers), object)
    texts[:] = [_word(cell) for cell in numbers.tolist()]
    return texts


def _word(number: float) -> str | None:
    if isnan(number):
        return None
    return str(int(number)) if number.is_integer() else repr(number)


def shortened(names: Sequence[Any], most: int = 8) -> str:
    """Return the first names for a message."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def folded(name: str) -> str:
    """Return a name without what some systems, and people, do not tell apart: case and spacing."""
    return " ".join(normalize("NFC", name).casefold().split())


def warn_of_twins(names: Iterable[str], told: str) -> None:
    """Log two names, of what `told` says, that differ by case or spacing alone."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(folded(name), name)) != name:
            log.warning(
                "%s: %r and %r differ by case or spacing alone and are two; write them alike if "
                "they are one", told, other, name,
            )  # fmt: skip
            return


def of_categories(name: str) -> str:
    """Return the override by which a column has categories."""
    return f"+data.categories.{name}=null" if is_key(name) else list_of("data.categories", name)
