"""Tables of clients' own as data sets: one table, or a folder with one file per client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fl_app.data.checks import DataError, TableTarget
from fl_app.data.client_folder import read_clients
from fl_app.data.columns import Categories, Missing, by_column, features, fitted_columns
from fl_app.data.datasets import Dataset
from fl_app.data.endings import stem
from fl_app.data.fitted import Fitted, check_same, read_fitted
from fl_app.data.frame import AfterRun, Frame, difference, joined, plain, shortened, warn_of_twins
from fl_app.data.rows import Label, TableRows
from fl_app.data.split import Owners, TestShare, split_rows
from fl_app.data.table_files import ENDINGS, read_table
from fl_app.data.targets import Classes, classes_of
from fl_app.types import Text

Column = Text | int
LabelColumn = Column | list[Column] | None
"""The column to predict, or several; None: nothing is predicted."""


@dataclass(frozen=True)
class Predicted:
    """What is predicted of the rows of a table; see `table`."""

    label: LabelColumn
    target: TableTarget
    classes: Classes

    def of(self, frame: Frame, source: str, former: Mapping[str, Any] | None = None) -> "Labels":
        """Return the labels of a table with its clients in the column `source`.

        `former` is the `Label` of a run, which they keep.
        """
        found = self._of(frame, source, () if former is None else former["classes"])
        if former is not None:
            now = found.label and (found.label.column, list(found.label.classes))
            before = former["column"], list(former["classes"])
            check_same("data.label with data.classes", before, now)
        return found

    def _of(self, frame: Frame, source: str, known: Sequence[str]) -> "Labels":
        columns = _predicted(frame, self, source)
        if not columns:
            return Labels([], np.zeros(len(frame), int), None, 1, [])
        if self.target == "classification":
            values, names = classes_of(frame, columns[0], self.classes or list(known) or None)
            inferred = ["data.classes"] if self.classes is None else []
            return Labels(columns, values, Label(columns[0], names), len(names), inferred)
        column = columns if isinstance(self.label, list) else columns[0]
        label = Label(column, columns if self.target == "multilabel" else [])
        return Labels(columns, label.of(frame), label, len(columns), [])


@dataclass(frozen=True)
class Labels:
    """The labels of the rows of a table (N,) or (N, k), and how many outputs a network needs.

    `inferred` are the settings that were left to the rows.
    """

    columns: Sequence[str]
    values: np.ndarray
    label: Label | None
    outputs: int
    inferred: Sequence[str]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes, if there are any."""
        return () if self.label is None else tuple(self.label.classes)


@dataclass(frozen=True)
class Form(Predicted):
    """What the columns of a table are; see `table`."""

    categories: Categories
    exclude: Sequence[Column]
    missing: Missing
    standardise: bool
    fitted: Fitted


@dataclass(frozen=True)
class Rows:
    """A table with the rows for training and test, and the client of each row, if known."""

    frame: Frame
    train: np.ndarray
    test: np.ndarray
    clients: Sequence[str] | None = None
    source: str = ""

    def owners(self) -> Owners | None:
        """Return the clients of the rows."""
        return Owners.of(self.clients, self.train, self.test, self.source)


def table(
    *, root: Text, file: Text, test_file: Text | None, test_share: TestShare,
    label: LabelColumn, target: TableTarget, classes: Classes, categories: Categories,
    exclude: list[Column], missing: Missing, standardise: bool, client: Column | None,
    fitted: Fitted, seed: int,
) -> Dataset:  # fmt: skip
    """Load a table, `root`/`file`, with one row per sample and columns of numbers or words.

    The rows of `test_file`, or without it `test_share` of all rows, are for test. `label` is the
    column to predict: with `target` classification its values are classes, named or numbered by
    `classes`; with regression they are numbers; with multilabel, several columns of 0 and 1. None:
    nothing is predicted, and only distances are measured. `client` is the column that names the
    client of each row. All other columns but `exclude` are features; see `columns.fitted_columns`
    for `categories`, `missing` and `standardise`. `fitted` is the form of the data of a run, which
    they keep; None: it is found in the rows for training.
    In a deployment all nodes must have the same columns, and the server needs only their names.
    Raises DataError that names the file and the line or column.
    """
    rows = read_rows(Path(root), file, test_file, test_share, client, seed)
    form = Form(label, target, classes, categories, exclude, missing, standardise, fitted)
    return build(stem(Path(file)), rows, form)


def client_files(
    *, root: Text, test_share: TestShare, label: LabelColumn, target: TableTarget,
    classes: Classes, categories: Categories, exclude: list[Column], missing: Missing,
    standardise: bool, fitted: Fitted, seed: int,
) -> Dataset:  # fmt: skip
    """Load a folder with one table per client, named by the file; settings as for `table`.

    `test_share` of each client's rows are for test. `population=by_column` makes them clients.
    """
    rows = client_rows(Path(root), test_share, seed)
    form = Form(label, target, classes, categories, exclude, missing, standardise, fitted)
    return build(Path(root).name, rows, form)


def client_rows(folder: Path, test_share: float, seed: int, *, skip: Path | None = None) -> Rows:
    """Return the rows of a folder with one table per client, a share of each for test."""
    found = read_clients(folder, read_table, ENDINGS, skip=skip)
    train, test, _ = found.split(test_share, seed)
    return Rows(joined(found.parts), train, test, found.clients, found.source)


def build(name: str, rows: Rows, form: Form) -> Dataset:
    """Return the data set of a table."""
    former = read_fitted(form.fitted, TableRows)
    frame = rows.frame if former is None else replace(rows.frame, after_run=AfterRun())
    others = {frame.column(each, "data.exclude") for each in form.exclude}
    others |= {rows.source} & set(frame.columns)
    found = form.of(frame, rows.source, None if former is None else former[0].label)
    names = [each for each in frame.columns if each not in {*others, *found.columns}]
    if former is not None:
        prepared, inferred = former[0], list[str]()
        _check_features(frame, names, form, prepared)
        inputs = prepared.arrays(rows.frame)
    else:
        columns, more = fitted_columns(
            frame, names, rows.train,
            categories=form.categories, missing=form.missing, standardise=form.standardise,
        )  # fmt: skip
        prepared, inferred = TableRows.of(columns, found.label), [*found.inferred, *more]
        inputs = features(frame, columns)
    labels, train, test = found.values, rows.train, rows.test
    return Dataset(
        name, found.outputs, inputs[train], labels[train], inputs[test], labels[test],
        target=form.target, class_names=found.names, owners=rows.owners(),
        inferred=tuple(inferred), preparation=prepared,
    )  # fmt: skip


def _check_features(frame: Frame, names: Sequence[str], form: Form, former: TableRows) -> None:
    """Raise DataError for columns or settings with which features would not be those of a run."""
    if told := difference(former.order, names):
        raise DataError(
            f"{frame.name} must have the columns with features of the run, "
            f"{shortened(former.order)}, got {told}; give the former, and leave out others with "
            "data.exclude"
        )
    if former.numbers:
        scaled = any(each["mean"] is not None for each in former.numbers)
        check_same("data.standardise", scaled, form.standardise)
    known = {each["name"]: [*each["categories"]] for each in former.categories}
    for name, listed in by_column(form.categories).items():
        if name not in known or listed:
            now = [str(each) for each in listed or ()]
            check_same(f"data.categories.{name}", known.get(name), now)


def _predicted(frame: Frame, form: Predicted, source: str) -> list[str]:
    """Return the names of the columns to predict; raises DataError for those of no target."""
    given = form.label if isinstance(form.label, list) else [form.label]
    names = [frame.column(each, "data.label") for each in given if each is not None]
    if source in names:
        raise DataError(
            f"data.client must be another column than data.label, got {source!r} for both; each "
            "client would have one class"
        )
    classes = form.target == "classification"
    if isinstance(form.label, list):
        fits = not classes and len(names) == len(set(names)) > 1
    else:
        fits = classes or (form.target == "regression" and form.label is not None)
    if not fits:
        raise DataError(
            "data.label must name the column to predict with data.target=classification, a list "
            "of at least two different ones with multilabel, and either with regression, got "
            f"{form.label} with {form.target}; correct one of them"
        )
    if form.classes is not None and not (classes and names):
        raise DataError(
            "data.classes must be null unless data.label names a column and data.target is "
            f"classification, got {form.classes}; remove it or set these"
        )
    return names


def read_rows(
    root: Path, file: str, test_file: str | None, test_share: float, client: Column | None,
    seed: int,
) -> Rows:  # fmt: skip
    """Return the rows of a table for training, and those of a second one or a share for test."""
    frame = read_table(root / file)
    if test_file is None:
        return shared_rows(frame, test_share, client, seed)
    other = root / test_file
    if other.resolve() == (root / file).resolve():
        raise DataError(
            f"data.test_file must be another table than data.file, got {other} for both, and a "
            "model must not be tested on its training rows; set it to null for data.test_share"
        )
    return two_tables(frame, read_table(other), client)


def shared_rows(frame: Frame, test_share: float, client: Column | None, seed: int) -> Rows:
    """Return the rows of a table, a share of which are for test."""
    clients, source = _clients(frame, client)
    train, test = split_rows(len(frame), test_share, seed=seed, owners=clients)
    return Rows(frame, train, test, clients, source)


def two_tables(frame: Frame, other: Frame, client: Column | None) -> Rows:
    """Return the rows of a table for training and those of another for test."""
    whole = joined([frame, other])
    clients, source = _clients(whole, client)
    return Rows(whole, np.arange(len(frame)), np.arange(len(frame), len(whole)), clients, source)


def _clients(frame: Frame, client: Column | None) -> tuple[list[str] | None, str]:
    """Return the name of each row's client, and the column that names it."""
    if client is None:
        return None, ""
    column = frame.column(client, "data.client")
    found: list[str] = []
    for row, word in enumerate(frame.words(column)):
        if word is None:
            raise frame.error(row, column, "the client of its row", "fill it or remove the row")
        found.append(plain(word))
    warn_of_twins(dict.fromkeys(found), f"the clients of column {column!r} of {frame.name}")
    return found, column
