"""Texts and integer sequences with a class each, from a table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fl_app.data.checks import TableTarget
from fl_app.data.datasets import Dataset
from fl_app.data.endings import stem
from fl_app.data.fitted import Fitted, check_same, read_fitted
from fl_app.data.rows import TextRows
from fl_app.data.split import TestShare
from fl_app.data.table import Column, Predicted, Rows, client_rows, read_rows
from fl_app.data.targets import Classes
from fl_app.data.vocabulary import (
    Tokens,
    VocabularySize,
    encoded,
    most_frequent,
    pieces,
    read_vocabulary,
)
from fl_app.types import Count, Text


@dataclass(frozen=True)
class TextForm(Predicted):
    """What the columns of a table of texts are; see `text`. `words` is a given vocabulary."""

    column: Column
    tokens: Tokens
    length: int
    vocabulary: int
    words: Sequence[str] | None
    fitted: Fitted


def text(
    *, root: Text, file: Text, test_file: Text | None, test_share: TestShare, column: Column,
    label: Column | list[Column], target: TableTarget, classes: Classes, client: Column | None,
    tokens: Tokens, length: Count, vocabulary: VocabularySize, vocabulary_file: Text | None,
    fitted: Fitted, seed: int,
) -> Dataset:  # fmt: skip
    """Load texts, one per row of `root`/`file`, as tokens (N, `length`); see `data.table.table`.

    A text is split into `tokens`; a cell with a list of integers or words is split already. Token
    0 is padding, 1 a word outside the vocabulary; 2 and on are the most frequent words of the
    training rows, `vocabulary` numbers in all, or the lines of `root`/`vocabulary_file`. Raises
    DataError that names the file and the line or column.
    """
    rows = read_rows(Path(root), file, test_file, test_share, client, seed)
    given = None if vocabulary_file is None else Path(root) / vocabulary_file
    words = None if given is None else read_vocabulary(given, vocabulary)
    form = TextForm(label, target, classes, column, tokens, length, vocabulary, words, fitted)
    return build(stem(Path(file)), rows, form)


def client_texts(
    *, root: Text, test_share: TestShare, column: Column, label: Column | list[Column],
    target: TableTarget, classes: Classes, tokens: Tokens, length: Count,
    vocabulary: VocabularySize, vocabulary_file: Text | None, fitted: Fitted, seed: int,
) -> Dataset:  # fmt: skip
    """Load a folder with one table of texts per client, named by the file; settings as for `text`.

    `test_share` of each client's rows are for test. `population=by_column` makes them clients. The
    vocabulary is one for all clients.
    """
    folder = Path(root)
    given = None if vocabulary_file is None else folder / vocabulary_file
    rows = client_rows(folder, test_share, seed, skip=given)
    words = None if given is None else read_vocabulary(given, vocabulary)
    form = TextForm(label, target, classes, column, tokens, length, vocabulary, words, fitted)
    return build(folder.name, rows, form)


def build(name: str, rows: Rows, form: TextForm) -> Dataset:
    """Return the data set of a table of texts."""
    frame, train, test = rows.frame, rows.train, rows.test
    column = frame.column(form.column, "data.column")
    former = read_fitted(form.fitted, TextRows)
    found = form.of(frame, rows.source, None if former is None else former[0].label)
    texts = pieces(frame, column, form.tokens)
    if former is not None:
        _check_tokens(column, form, former[0])
        form = replace(form, words=former[0].words)
    words = form.words or most_frequent((texts[row] for row in train), form.vocabulary)
    tokens, labels = encoded(texts, words, form.length), found.values
    inferred = [*found.inferred, *([] if form.words else ["data.vocabulary_file"])]
    label = None if found.label is None else vars(found.label)
    return Dataset(
        name, found.outputs, tokens[train], labels[train], tokens[test], labels[test],
        target=form.target, class_names=found.names, owners=rows.owners(),
        inferred=tuple(inferred),
        preparation=TextRows(label, column, form.tokens, form.length, list(words)),
    )  # fmt: skip


def _check_tokens(column: str, form: TextForm, former: TextRows) -> None:
    """Raise DataError for settings with which tokens would not be those of a run."""
    check_same("data.column", former.column, column)
    check_same("data.tokens", former.tokens, form.tokens)
    check_same("data.length", former.length, form.length)
    if form.words is not None:
        check_same("data.vocabulary_file", list(former.words), list(form.words))
