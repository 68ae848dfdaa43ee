"""Rows of a table prepared as those that a run was trained on, and their labels."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fl_app.data.checks import DataError
from fl_app.data.columns import CategoryColumn, FeatureColumn, NumberColumn, features
from fl_app.data.frame import AfterRun, Frame, Source, shortened
from fl_app.data.preparation import Preparation
from fl_app.data.table_files import as_column, read_table
from fl_app.data.targets import classes_of, numbers_of, truths_of
from fl_app.data.vocabulary import Tokens, encoded, pieces


@dataclass(frozen=True)
class Label:
    """The column to predict, and the names of its classes in order, or none for numbers.

    Of several columns, each is a class that a row has or has not, or a number.
    """

    column: str | Sequence[str]
    classes: Sequence[str]

    def of(self, frame: Frame) -> np.ndarray:
        """Return the labels (N,) or (N, k) of a table; raises DataError without a column."""
        names = [self.column] if isinstance(self.column, str) else self.column
        for name in names:
            if name not in frame.columns:
                raise DataError(
                    f"{frame.name} must have the column {name!r} with the labels, got "
                    f"{shortened(list(frame.columns))}; add it"
                )
        if isinstance(self.column, str) and self.classes:
            return classes_of(frame, self.column, list(self.classes))[0]
        read = truths_of if self.classes else numbers_of
        found = np.stack([read(frame, name) for name in names], axis=1)
        return found[:, 0] if isinstance(self.column, str) else found


@dataclass(frozen=True)
class RowPreparation(Preparation):
    """Rows of a table: a `Frame`, the path of a file, mappings by column, or a DataFrame."""

    label: Any

    reads = "tables"

    def arrays(self, given: Any) -> np.ndarray:
        frame = frame_of(given)
        use = AfterRun() if frame.after_run is None else frame.after_run
        found = self.of_frame(replace(frame, after_run=use))
        use.rows += len(frame)
        if frame.after_run is None:
            use.tell(frame.name)
        return found

    @abstractmethod
    def of_frame(self, frame: Frame) -> np.ndarray:
        """Return the inputs (N, ...) of a table."""

    def labels(self, frame: Frame) -> np.ndarray:
        """Return the labels (N,) of a table; raises DataError if the run had none."""
        if self.label is None:
            raise DataError("the data of the run must have a label for scores, got none")
        return Label(**self.label).of(replace(frame, after_run=AfterRun()))


@dataclass(frozen=True)
class TableRows(RowPreparation):
    """Columns of numbers and words as features (N, d); see `columns.fitted_columns`."""

    numbers: Sequence[Mapping[str, Any]]
    """The values of each `NumberColumn`."""
    categories: Sequence[Mapping[str, Any]]
    """The values of each `CategoryColumn`."""
    order: Sequence[str]
    """The names of all columns with features, in order."""

    @classmethod
    def of(cls, columns: Sequence[FeatureColumn], label: Label | None) -> "TableRows":
        """Return the preparation by fitted columns."""
        return cls(
            None if label is None else vars(label),
            [vars(each) for each in columns if isinstance(each, NumberColumn)],
            [vars(each) for each in columns if isinstance(each, CategoryColumn)],
            [each.name for each in columns],
        )

    @property
    def statistics(self) -> Sequence[str]:
        filled = [each["fill"] for each in self.numbers]
        filled += [each["usual"] for each in self.categories]
        found = ["data.missing"] if any(value is not None for value in filled) else []
        scaled = any(each["mean"] is not None for each in self.numbers)
        return [*found, "data.standardise"] if scaled else found

    def of_frame(self, frame: Frame) -> np.ndarray:
        built: list[FeatureColumn] = [
            *(NumberColumn(**each) for each in self.numbers),
            *(CategoryColumn(**each) for each in self.categories),
        ]
        named = {each.name: each for each in built}
        return features(frame, [named[name] for name in self.order])


@dataclass(frozen=True)
class TextRows(RowPreparation):
    """A column of texts as tokens (N, length); see `data.text.text`."""

    column: str
    tokens: Tokens
    length: int
    words: Sequence[str]

    def arrays(self, given: Any) -> np.ndarray:
        texts = given.tolist() if hasattr(given, "tolist") else given  # of NumPy and pandas
        texts = [texts] if isinstance(texts, str) else texts
        if isinstance(texts, Sequence) and all(isinstance(each, str) for each in texts):
            return self.of_frame(frame_of([{self.column: each} for each in texts]))
        return super().arrays(given)

    def of_frame(self, frame: Frame) -> np.ndarray:
        if self.column not in frame.columns:
            raise DataError(
                f"{frame.name} must have the column {self.column!r} with texts, got "
                f"{shortened(list(frame.columns))}; add it"
            )
        return encoded(pieces(frame, self.column, self.tokens), self.words, self.length)


def frame_of(given: Any) -> Frame:
    """Return rows in any of the forms of `RowPreparation` as a table."""
    if isinstance(given, Frame):
        return given
    if isinstance(given, str | Path):
        return read_table(Path(given))
    if hasattr(given, "to_dict"):  # of pandas: a table, or one row of it
        given = given.to_dict("records") if hasattr(given, "columns") else given.to_dict()
    several = isinstance(given, Iterable) and not isinstance(given, Mapping)
    rows = list(given) if several else [given]
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        got = next((type(row).__name__ for row in rows if not isinstance(row, Mapping)), "none")
        raise DataError(
            "rows must be a table's path, a DataFrame or at least one mapping of columns to cells, "
            f"got {f'a {type(given).__name__} with {got}' if several else got}; give one of these"
        )
    names = list(dict.fromkeys(str(name) for row in rows for name in row))
    columns = {
        name: as_column([row.get(name) for row in rows], f"column {name!r}") for name in names
    }
    return Frame(columns, (Source("the given rows", "row", np.arange(len(rows))),))
