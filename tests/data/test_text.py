"""Texts and integer sequences as tokens: vocabulary, padding, and what each error names."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from fl_app.data.datasets import DataError
from fl_app.data.frame import Frame, Source
from fl_app.data.table import Rows
from fl_app.data.text import TextForm, build
from fl_app.data.vocabulary import most_frequent
from fl_app.wiring import made

text = partial(made, "data=text", seed=0)
own = partial(made, "population=own", seed=0)


def _write(root: Path, content: str, name: str = "texts.csv") -> None:
    (root / name).write_text(content)


def _two(root: Path, train: str, test: str = "text,label\nnew old,b\n", **options):
    _write(root, train)
    _write(root, test, "test.csv")
    return text(root=str(root), test_file="test.csv", **options)


def test_tokens_are_numbered_by_frequency_in_the_training_rows(tmp_path: Path) -> None:
    data = _two(tmp_path, 'text,label\n"Old dog, old!",a\nthe dog,b\n', length=6)
    # old and dog twice, then ! and , and the by alphabet; 0 is padding, 1 is unknown
    assert data.train_images.tolist() == [[3, 2, 5, 3, 4, 0], [6, 2, 0, 0, 0, 0]]
    assert data.test_images.tolist() == [[1, 3, 0, 0, 0, 0]]
    assert (data.shape, data.class_names) == ((6,), ("a", "b"))
    taken, labels = data.train(np.array([1]))
    assert (taken.dtype, labels.tolist()) == (torch.int64, [1])


def test_long_texts_are_cut_and_rare_words_are_unknown(tmp_path: Path) -> None:
    data = _two(tmp_path, "text,label\na b a c a,x\na b d,b\n", length=3, vocabulary=4)
    assert data.train_images.tolist() == [[2, 3, 2], [2, 3, 1]]
    # longer than the limit for a cell of Python's reader of CSV files
    long = _two(tmp_path, f"text,label\na{' b' * 70_000},x\na b d,b\n", length=3, vocabulary=4)
    assert long.train_images.tolist() == [[3, 2, 2], [3, 2, 1]]


def test_a_word_for_a_missing_value_is_a_text(tmp_path: Path) -> None:
    data = _two(tmp_path, "text,label\n?,a\nnull,b\nNA,a\n", "text,label\nna null,b\n", length=2)
    assert data.preparation.words == ["?", "na", "null"]
    assert data.train_images.tolist() == [[2, 0], [4, 0], [3, 0]]
    assert data.test_images.tolist() == [[3, 4]]
    _write(tmp_path, "text\n?\nnan\n", "new.csv")
    assert data.preparation(tmp_path / "new.csv").tolist() == [[2, 0], [1, 0]]
    with pytest.raises(DataError, match=r"line 3, column 'label' of .*, got nothing; fill it"):
        _two(tmp_path, "text,label\nx,a\ny,?\n")


def test_texts_have_several_labels_or_numbers(tmp_path: Path) -> None:
    _write(tmp_path, "text,rude,funny\na,1,0\nb,0,0\nc,1,1\n")
    given = {"root": str(tmp_path), "test_share": 0, "column": "text"}
    data = text(**given, label=["rude", "funny"], target="multilabel")
    assert (data.class_names, data.classes) == (("rude", "funny"), 2)
    assert data.train_labels.tolist() == [[1, 0], [0, 0], [1, 1]]
    one = text(**given, label="rude", target="regression")
    assert (one.classes, one.train_labels.tolist()) == (1, [1.0, 0.0, 1.0])


@pytest.mark.parametrize(
    ("tokens", "found"),
    [("characters", [[2, 3, 3], [2, 0, 0]]), ("spaces", [[3, 0, 0], [2, 0, 0]])],
)
def test_other_tokens(tmp_path: Path, tokens: str, found: list[list[int]]) -> None:
    data = _two(tmp_path, "text,label\nABB,a\nA,b\n", length=3, tokens=tokens)
    assert data.train_images.tolist() == found


def test_a_vocabulary_of_ones_own_is_the_same_on_all_nodes(tmp_path: Path) -> None:
    _write(tmp_path, "dog\nold\n", "words.txt")
    train = "text,label\nold dog,a\nold cat,b\n"
    data = _two(tmp_path, train, length=2, vocabulary_file="words.txt", classes=["a", "b"])
    assert data.train_images.tolist() == [[3, 2], [3, 1]]
    assert own(data, clients=2).clients == 2
    with pytest.raises(ValueError, match=r"data.classes, data.vocabulary_file must be the same"):
        own(_two(tmp_path, train), clients=2)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("text,label\n,a\n", {}, r"line 2, column 'text' of .*at least one token, got nothing"),
        ("text,label\nx,a\n...,\n", {}, r"line 3, column 'label' of .*the class of its row"),
        ("words,label\nx,a\n", {}, r"data.column must name a column .*words, label, got 'text'"),
        ("text,label\nx,a\n", {"label": "kind"}, r"data.label must name a column"),
        ("text,label\nx,a\n", {"vocabulary_file": "no.txt"}, r"no vocabulary at .*no.txt: expect"),
        ("text,label\nx,a\n", {"vocabulary_file": "texts.csv", "vocabulary": 3},
         r"texts.csv must have at most 1 different tokens, one per line, got 2, 'text,label' 1"),
        ("text,label\nx,a\n", {"length": 10**7}, None),
    ],
)  # fmt: skip
def test_an_error_names_the_line_and_column(
    tmp_path: Path, content: str, options: dict, message: str | None
) -> None:
    test = content.partition("\n")[0] + "\nx,b\n"
    if message is None:
        many = content + "x,a\n" * 30
        with pytest.raises(DataError, match=r"data.length times the 32 texts must be at most"):
            _two(tmp_path, many, **options)
        return
    with pytest.raises(DataError, match=message):
        _two(tmp_path, content, test, **options)


def test_lists_of_integers_are_tokens_as_they_are() -> None:
    lists = np.empty(2, object)
    lists[:] = [[7, -3], [7, 9]]
    frame = Frame({"ids": lists, "y": np.array([0.0, 1.0])}, (Source("mine", "row", np.arange(2)),))
    rows = Rows(frame, np.arange(1), np.arange(1, 2))
    data = build(
        "mine", rows, TextForm("y", "classification", None, "ids", "words", 3, 10, None, None)
    )
    assert (data.train_images.tolist(), data.test_images.tolist()) == ([[3, 2, 0]], [[3, 1, 0]])


def test_the_most_frequent_come_first_and_equals_by_alphabet() -> None:
    assert most_frequent([["b", "a"], ["c", "c"]], 4) == ["c", "a"]
