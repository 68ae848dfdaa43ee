"""Tables as people have them: what is read, what is split, and what each error names."""

import gzip
import json
import re
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from fl_app.data.datasets import DataError
from fl_app.data.frame import Frame, Source, joined
from fl_app.data.natural import encoded
from fl_app.data.preparation import preparation
from fl_app.data.rows import frame_of
from fl_app.data.table_files import as_column, read_table, without_index
from fl_app.data.targets import classes_of
from fl_app.wiring import made

table = partial(made, "data=table", seed=0)
client_files = partial(made, "data=client_files", seed=0)
by_column = partial(made, "population=by_column", seed=0)
own = partial(made, "population=own", seed=0)

PATIENTS = """age,ward,sick,hospital
{rows}
"""


SEVERAL = {"label": ["a", "b"], "target": "multilabel"}


def _write(root: Path, text: str, name: str = "points.csv") -> None:
    (root / name).write_text(text)


def _patients(root: Path, count: int = 40) -> None:
    rows = [f"{20 + i},{'abc'[i % 3]},{('no', 'yes')[i % 2]},h{i % 4}" for i in range(count)]
    _write(root, PATIENTS.format(rows="\n".join(rows)))


def test_words_become_indicators_and_classes_keep_their_names(tmp_path: Path) -> None:
    _patients(tmp_path)
    data = table(root=str(tmp_path), label="sick", exclude=["hospital"])
    assert (data.shape, data.classes, data.class_names) == ((4,), 2, ("no", "yes"))
    assert (len(data.train_labels), len(data.test_labels)) == (32, 8)
    ages, wards = data.train_images[:, 0].astype(int) - 20, data.train_images[:, 1:]
    np.testing.assert_array_equal(data.train_labels, ages % 2)
    np.testing.assert_array_equal(wards, np.eye(3)[ages % 3])
    taken, labels = data.train(np.array([0, 1]))
    assert (taken.dtype, labels.dtype) == (torch.float32, torch.int64)


def test_no_row_is_in_training_and_test_and_the_seed_chooses(tmp_path: Path) -> None:
    _patients(tmp_path)
    first, other = (table(root=str(tmp_path), label="sick", seed=seed) for seed in (0, 1))
    train, test = (set(part[:, 0].tolist()) for part in (first.train_images, first.test_images))
    assert not train & test
    assert train | test == set(range(20, 60))
    assert set(other.test_images[:, 0].tolist()) != test


@pytest.mark.parametrize(
    ("first", "rows", "warns"),
    [("0,1,2,3", 1, False), ("0,1", 1, True), ("0", 2, False), ("1,2", 2, False)],
)
def test_a_line_that_counts_columns_has_the_names_that_pandas_writes(
    first: str, rows: int, warns: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _write(tmp_path, f"{first}\n{first.replace('0', '7')}\n")
    frame = read_table(tmp_path / "points.csv")
    assert (len(frame), [*frame.columns]) == (rows, [str(i) for i in range(len(frame.columns))])
    assert ("is read as the names of its columns" in caplog.text) is warns


def test_a_second_file_has_the_rows_for_test(tmp_path: Path) -> None:
    _write(tmp_path, "x,y\n1,no\n2,yes\n")
    _write(tmp_path, "x,y\n3,yes\n", "test.csv")
    data = table(root=str(tmp_path), test_file="test.csv", label="y")
    assert data.train_images.tolist() == [[1], [2]]
    assert (data.test_images.tolist(), data.test_labels.tolist()) == ([[3]], [1])


@pytest.mark.parametrize("label", [-1, 2, "2"])
def test_arrays_and_text_without_names_have_numbered_columns(tmp_path: Path, label: Any) -> None:
    values = np.array([[1, 2, 0], [3, 4, 1], [5, 6, 1]])
    np.save(tmp_path / "points.npy", values)
    np.savetxt(tmp_path / "points.tsv", values, delimiter="\t")
    for file in ("points.npy", "points.tsv"):
        data = table(root=str(tmp_path), file=file, label=label, test_share=0)
        assert data.train_images.tolist() == [[1, 2], [3, 4], [5, 6]]
        assert data.train_labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("labels", "options", "found", "names"),
    [
        (["-1", "1", "-1"], {}, [0, 1, 0], ("-1", "1")),
        (["1.0", "2.0", "10"], {}, [0, 1, 2], ("1", "2", "10")),
        (["b", "a", "b"], {"classes": ["b", "a"]}, [0, 1, 0], ("b", "a")),
        (["2", "0", "1"], {"classes": 4}, [2, 0, 1], ("0", "1", "2", "3")),
        (["5", "3", "5"], {"classes": [3, 5]}, [1, 0, 1], ("3", "5")),
        (["01", "1", "2.0", "01"], {}, [0, 1, 2, 0], ("01", "1", "2")),
        (["+1", "-1", "1e0"], {}, [1, 0, 1], ("-1", "1")),
        (["-0", "0.0", "1"], {}, [0, 0, 1], ("0", "1")),
    ],
)
def test_labels_become_classes(
    tmp_path: Path, labels: list[str], options: dict, found: list[int], names: tuple[str, ...]
) -> None:
    _write(tmp_path, "x,y\n" + "".join(f"1,{label}\n" for label in labels))
    data = table(root=str(tmp_path), label="y", test_share=0, **options)
    assert (data.train_labels.tolist(), data.class_names) == (found, names)
    assert data.classes == len(names)


@pytest.mark.parametrize(
    ("target", "found"),
    [("multilabel", [[1, 0], [0, 1], [1, 1]]), ("regression", [[1, 0], [0, 1], [1, 1]])],
)
def test_several_columns_are_predicted(target: str, found: list, tmp_path: Path) -> None:
    truths = ("true", "False") if target == "multilabel" else ("1", "0.0")
    _write(tmp_path, f"sick,x,old\n{truths[0]},4,0\n{truths[1]},5,1.0\n1,6,1\n")
    data = table(root=str(tmp_path), label=["sick", "old"], target=target, test_share=0)
    assert data.train_labels.tolist() == found
    assert data.train_images.tolist() == [[4], [5], [6]]
    assert (data.target, data.classes, data.inferred) == (target, 2, ())
    assert data.class_names == (("sick", "old") if target == "multilabel" else ())
    again = preparation(json.loads(json.dumps(data.prepares.describe())))
    assert again.labels(read_table(tmp_path / "points.csv")).tolist() == found


def test_a_regression_has_float_labels(tmp_path: Path) -> None:
    _write(tmp_path, "x,price\n1,2.5\n2,-3\n")
    data = table(root=str(tmp_path), label="price", target="regression", test_share=0)
    assert (data.target, data.classes, data.train_labels.tolist()) == ("regression", 1, [2.5, -3])
    assert data.train(np.array([0]))[1].dtype == torch.float32


@pytest.mark.parametrize(
    ("missing", "number"), [("mean", 4.0), ("median", 2.0), ("most_frequent", 1.0)]
)
def test_missing_values_are_those_of_the_training_rows(
    tmp_path: Path, missing: str, number: float
) -> None:
    _write(tmp_path, "x;kind;y\n1;a;0\n1;b;1\n3;b;0\n11;;1\n;a;0\n")
    _write(tmp_path, "x;kind;y\n;?;0\n1000;b;1\n1000;b;1\n", "test.csv")
    data = table(root=str(tmp_path), test_file="test.csv", label="y", missing=missing)
    assert data.train_images[:, 0].tolist() == [1, 1, 3, 11, number]
    assert data.test_images[0].tolist() == [number, 1, 0]
    assert data.train_images[3, 1:].tolist() == [1, 0]  # a and b are equally frequent


def test_numbers_are_standardised_by_the_training_rows(tmp_path: Path) -> None:
    _write(tmp_path, "x,same,y\n1,7,0\n3,7,1\n")
    _write(tmp_path, "x,same,y\n5,8,1\n", "test.csv")
    data = table(root=str(tmp_path), test_file="test.csv", label="y", standardise=True)
    assert data.train_images.tolist() == [[-1, 0], [1, 0]]
    assert data.test_images.tolist() == [[3, 1]]


@pytest.mark.parametrize("value", ["0.1", "-7e5", "0"])
def test_a_constant_column_is_only_centred(value: str, tmp_path: Path) -> None:
    # the mean of 49 times 0.1 is not exactly 0.1, so that the deviation is 1e-17
    _write(tmp_path, "x,y\n" + "".join(f"{value},{row % 2}\n" for row in range(49)))
    _write(tmp_path, f"x,y\n{float(value) + 2},0\n", "test.csv")
    data = table(root=str(tmp_path), test_file="test.csv", label="y", standardise=True)
    assert np.abs(data.train_images).max() < 1e-9
    assert data.test_images.tolist() == [[pytest.approx(2.0)]]


def test_long_identifiers_are_standardised(tmp_path: Path) -> None:
    _write(tmp_path, "x,y\n" + "".join(f"{2**53 + 64 * row},{row % 2}\n" for row in range(9)))
    data = table(root=str(tmp_path), label="y", test_share=0, standardise=True)
    assert data.train_images.std() == pytest.approx(1)


SPACED = ("1\u00a0{}00", "1\u202f{}00,5", "1\u2019{}00")
"""Groups of thousands as spreadsheets of some languages write them."""


@pytest.mark.parametrize("cell", ["{},5", "1.234.{}00,5", "1,{}00", "{} %", "{}.5%", *SPACED])
def test_numbers_in_a_form_that_is_not_read_are_no_categories(cell: str, tmp_path: Path) -> None:
    _write(tmp_path, "x;y\n" + "".join(f"{cell.format(row)};{row % 2}\n" for row in range(1, 9)))
    first = re.escape(repr(cell.format(1)))
    with pytest.raises(DataError, match=f"line 2, column 'x' .*decimal point alone, got {first}"):
        table(root=str(tmp_path), label="y", test_share=0)
    assert table(root=str(tmp_path), label="y", test_share=0, categories={"x": None}).shape == (8,)


def test_versions_and_dates_are_categories(tmp_path: Path) -> None:
    _write(tmp_path, "x;z;y\n1.2.3;2024-01-05;0\n1.2.4;2024-01-06;1\n")
    assert table(root=str(tmp_path), label="y", test_share=0).shape == (4,)


def test_names_of_files_may_be_in_capitals(tmp_path: Path) -> None:
    for name in ("A.CSV", "b.csv"):
        _write(tmp_path, "x,y\n1,0\n2,1\n3,1\n", name)
    _write(tmp_path, "not a table", "._b.csv")  # as macOS leaves beside b.csv
    owners = client_files(root=str(tmp_path), label="y").owners
    assert owners.names == ("A", "b")


def test_a_compressed_text_is_read_as_the_text_is(tmp_path: Path) -> None:
    _patients(tmp_path)
    whole = (tmp_path / "points.csv").read_bytes()
    (tmp_path / "packed.CSV.gz").write_bytes(gzip.compress(whole))
    plain, packed = (
        table(root=str(tmp_path), file=file, label="sick", client="hospital")
        for file in ("points.csv", "packed.CSV.gz")
    )
    assert packed.name == "packed"
    assert packed.owners.names == plain.owners.names
    np.testing.assert_array_equal(packed.train_images, plain.train_images)
    np.testing.assert_array_equal(packed.test_labels, plain.test_labels)


def test_numbers_can_be_categories_and_leading_zeros_count(tmp_path: Path) -> None:
    _write(tmp_path, "code,y\n01,0\n1,1\n01,0\n")
    for named in ({"code": None}, ["code"]):
        data = table(root=str(tmp_path), label="y", test_share=0, categories=named)
        assert data.train_images.tolist() == [[1, 0], [0, 1], [1, 0]]


def test_cells_of_a_data_frame_mean_what_those_of_the_csv_file_mean(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="the extra mlflow is not installed")
    text = "ward,smoker,code,y\n" + "a,True,1.0,0\n,False,2.0,1\nb,True,1.0,0\nb,False,2.0,1\n"
    _write(tmp_path, text)
    codes = {"code": None}
    data = table(root=str(tmp_path), label="y", test_share=0, missing="mean", categories=codes)
    rows = pandas.read_csv(tmp_path / "points.csv")
    assert (rows.smoker.dtype, rows.code.dtype) == (bool, float)
    prepared = data.prepares(rows).numpy()
    np.testing.assert_array_equal(prepared, data.train_images)
    rows["ward"] = rows["ward"].astype("string")  # NA in the place of NaN
    np.testing.assert_array_equal(data.prepares(rows).numpy(), prepared)


def test_a_column_of_names_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _write(tmp_path, "name,y\n" + "".join(f"p{row},{row % 2}\n" for row in range(20)))
    table(root=str(tmp_path), label="y", test_share=0)
    (told,) = caplog.messages
    assert "column 'name' of" in told
    assert "20 categories, such as 'p0', in 20 rows" in told


def test_words_without_an_indicator_and_columns_of_dates_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    days = "".join(f"2024-01-{day},{day % 2}\n" for day in range(10, 30))
    _write(tmp_path, f"day,y\n{days}")
    _write(tmp_path, "day,y\n2024-02-11,0\n2024-01-11,1\n", "test.csv")
    table(root=str(tmp_path), label="y", test_file="test.csv")
    names, unknown = caplog.messages
    assert "'day' of" in names
    assert "has dates, such as '2024-01-10', each of which becomes a feature" in names
    assert "20 in all; data.exclude=[day] leaves it out" in names
    assert "1 of 22 rows have a word that is none of its categories, such as" in unknown


@pytest.mark.parametrize(
    ("first", "between", "told"),
    [(1_600_000_000, 1, "1600000001 become multiples of 128"), (20_200_101, 1, "multiples of 2"),
     (1_600_000_000, 1_000_000, ""), (16, 1, ""), (20_200_101, 0, "")],
)  # fmt: skip
def test_numbers_that_float32_hardly_tells_apart_are_told(
    first: int, between: int, told: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = [first + between * step for step in range(30)]
    _write(tmp_path, "day,y\n" + "".join(f"{n},{i % 2}\n" for i, n in enumerate(numbers)))
    table(root=str(tmp_path), label="y")
    assert [told in each for each in caplog.messages] == ([True] if told else [])
    caplog.clear()
    table(root=str(tmp_path), label="y", standardise=True)
    assert caplog.messages == []


def test_a_column_of_bytes_is_named() -> None:
    with pytest.raises(DataError, match=r"column 'v' of a table must contain .*, got bytes"):
        as_column([b"ab", None], "column 'v' of a table")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_table_in_another_encoding_is_to_be_saved_as_utf8(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "points.csv").write_bytes("größe,y\n1,no\n2,yes\n".encode(encoding))
    with pytest.raises(DataError, match=r"points.csv must be a text in UTF-8, got 0x.*save it as"):
        table(root=str(tmp_path), label="y")


def test_a_client_is_the_same_as_integer_and_as_float(tmp_path: Path) -> None:
    _write(tmp_path, "x,y,who\n1,no,1\n2,yes,02\n")
    _write(tmp_path, "x,y,who\n3,yes,1.0\n4,no,02\n", "test.csv")
    data = table(root=str(tmp_path), test_file="test.csv", label="y", client="who")
    assert data.owners.names == ("02", "1")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (None, {}, r"no table at .*points.csv; put the file there, or point data.root and data.f"),
        ("", {}, "points.csv must have at least a line of names, got an empty file"),
        ("a,b\n1,2\n3,x\n", {}, r"line 3, column 'b' of .*points.csv must be a number .*got 'x'"),
        ("a,b\nx,2\n3,4\n", {}, r"line 2, column 'a' .*got 'x'; .*data.categories.a=null"),
        ("ä,b\nx,2\n3,4\n", {}, "got 'x'; .*give \"data.categories=.'ä'.\" if the column"),
        ("a,b\n1,\n2,3\n", {}, r"line 2, column 'b' .*must be given, got nothing; .*data.missing="),
        ("a,b\n1,2\n\n3,NA\n", {}, r"line 4, column 'b' of .* must be given"),
        ("a,b\n1,inf\n", {}, r"line 2, column 'b' .*finite float32, got 'inf'"),
        ("a,b\n1,1e60\n", {}, r"line 2, column 'b' .*finite float32, got '1e60'"),
        ("a,b\n1,2\n1,2,3\n", {}, r"line 3 .* must have 2 cells like the first .*, got 3; quote"),
        ("a,b\n1,2\n1\n", {}, r"line 3 of .* must have 2 cells .*, got 1; leave the cells of mis"),
        ("a|b\n1,5|2\n", {}, r"line 2 .* 1 cells .*, got 2; .*, and separate cells by commas, sem"),
        ("1,red\n2,blue\n", {}, r"line 1 of .* names of the columns .*'red' beside 1; add a line"),
        ("# by R\na,b\n1,2\n", {}, r"line 2 .* 1 cells .*; remove lines before .* as '# by R'"),
        ("# by R, X\na,b,c\n", {}, r"line 2 .* 2 cells .*; remove lines before .* as '# by R'"),
        ("sep=;\na;b\n1;2\n", {}, r"must name every column, got no name for column 2; .*remove"),
        (",a\n0,1\n", {}, r"must name every column, got no name for column 1; .*index=False"),
        (",0,1\n0,2,4\n", {}, r"line 1 of .* got no name for column 1; .* with index=False"),
        ("a,a\n1,2\n", {}, r"names in line 1 of .* must differ, got 'a' 2 times"),
        ("a,b\n1,2\n", {"label": "c"}, r"data.label must name a column .*one of a, b, got 'c'"),
        ("a,b\n1,2\n", {"label": True}, r"data.label must .*got True; a name such as true needs q"),
        ("a,b\n1,2\n", {"exclude": ["c"]}, r"data.exclude must name a column .*got 'c'"),
        ("a,b\n1,2\n", {"categories": ["c"]}, r"data.categories must name .*got 'c'"),
        ("a,b\n1,2\n", {"categories": {"c": None}}, r"data.categories must name .*got 'c'"),
        ("a,b\n1,\n2,1\n", {"label": "b"}, r"line 2, column 'b' .*the class of its row, got noth"),
        ("a,b\n1,0.5\n2,1\n", {"label": "b"}, r"line 2, .*whole number .*'0.5'; .*=regression"),
        ("a,b\n1,1\n2,1\n", {"label": "b"}, r"column 'b' .*at least two classes, got only '1'"),
        ("a,b\n1,2\n", {"label": "b", "classes": 2}, r"line 2, .*one of the classes 0, 1, got '2'"),
        ("a,b\n1,c\n", {"label": "b", "classes": ["d", "e"]}, r"one of the classes d, e, got 'c'"),
        ("a,b\n1,2\n", {"classes": 2}, r"data.classes must be null unless data.label"),
        ("a,b\n1,\n", {"label": "b", "target": "regression"}, r"must be a number to predict"),
        ("a,b\n1,x\n", {"label": "b", "target": "regression"}, r"line 2, column 'b' .*got 'x'"),
        ("a,b\n1,2\n", {"target": "regression"}, r"data.label must name the column to predict"),
        ("a,b\n1,2\n", {"label": "b", "target": "multilabel"}, r"at least two .* got b with mult"),
        ("a,b\n1,2\n", {"label": ["a", "b"]}, r"a list of .* got \['a', 'b'\] with classif"),
        ("a,b\n1,2\n", SEVERAL | {"label": ["a", "a"]}, r"at least two different ones with multi"),
        ("a,b,c\n1,0,3\n1,2,4\n", SEVERAL, r"line 3, column 'b' .*0 or 1, .* got '2'; correct"),
        ("a,b,c\n1,0,3\n,1,4\n", SEVERAL, r"line 3, column 'a' .*0 or 1, .* got nothing; corr"),
        ("a,b,c\n1,0,3\n", SEVERAL | {"client": "a"}, r"data.client must be another column"),
        ("a,b,c\n1,0,3\n", SEVERAL | {"classes": 2}, r"data.classes must be null unless"),
        ("a,b\n1,2\n", {"exclude": ["a", "b"]}, r"must have a column with features, got none"),
        ("a,b\nx,2\n", {"categories": {"a": ["y"]}}, r"'a' .*one of data.categories.a, y, got 'x'"),
        ("a,b\n1,2\n", {"test_file": "points.csv"}, r"data.test_file must be another table than"),
        ("a,b\n1,2\n3,1\n", {"label": "b", "client": "b"}, r"data.client must be another column"),
        ("a,b\n1,2\n", {"client": "c"}, r"data.client must name a column"),
        ("a,b\n1,2\n,3\n", {"client": "a"}, r"line 3, .*the client of its row, got nothing"),
        ("a,b\n,2\n,3\n", {}, r"at least one training row, .*; leave .*data.exclude=.a.$"),
        ("a,b\n,2\n,3\n", {"missing": "mean"}, r"at least one training row, .*data.exclude=.a."),
        ('a,b\n1,2\n3,"4\n5,6\n', {}, r"line 3 of .*points.csv must begin a row .*; close its qu"),
        ("a|b\n1|2\n", {"label": "b"}, r"one of a\|b, got 'b'; separate the columns of a text by"),
    ],
)  # fmt: skip
def test_an_error_names_the_line_and_column(
    tmp_path: Path, text: str | None, options: dict, message: str
) -> None:
    if text is not None:
        _write(tmp_path, text)
    with pytest.raises(DataError, match=message):
        table(root=str(tmp_path), **{"test_share": 0} | options)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("points.npy", b"abc", r"points.npy must be a .npy file that can be read, got ValueErr"),
        ("points.parquet", b"abc", r"points.parquet (must be a .parquet file|needs the package)"),
        ("points.csv.gz", b"x,y\n", r"must be a .csv.gz file that can be read, got BadGzipF"),
        ("points.npy.gz", b"abc", r"a table must end in .csv, .*points.npy.gz; conv"),
        ("points.xls", b"abc", r"a table must end in .csv, .*points.xls; conv"),
    ],
)  # fmt: skip
def test_a_damaged_or_unknown_file_is_named(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        table(root=str(tmp_path), file=name)


@pytest.mark.parametrize(
    ("words", "numbers", "found"),
    [
        (["True", "false", None], [1.0, 0.0, np.nan], ["1", "0", None, "1", "0", None]),
        (["True", "False"], [1.0, 2.0], ["True", "False", "1", "2"]),
        (["True", "maybe"], [1.0, 0.0], ["True", "maybe", "1", "0"]),
        (["True", None], [], ["True", None]),
    ],
)
def test_truth_values_of_several_files_become_alike(
    words: list[str | None], numbers: list[float], found: list[str | None], tmp_path: Path
) -> None:
    first = frame_of([{"ok": word} for word in words])
    rows = {"ok": np.array(numbers)}
    other = Frame(rows, (Source("other", "row", np.arange(len(numbers))),))
    assert joined([first, other]).words("ok") == found
    assert joined([other, first]).words("ok") == [*found[len(words) :], *found[: len(words)]]


@pytest.mark.parametrize("classes", [[False, True], [0, 1], ["no", "yes"]])
def test_labels_that_are_truth_values_have_several_forms(classes: list[Any]) -> None:
    frame = frame_of([{"y": word} for word in ("True", "0", "false", "1.0")])
    if classes[0] == "no":
        with pytest.raises(DataError, match="one of the classes no, yes, got 'True'"):
            classes_of(frame, "y", classes)
        return
    labels, names = classes_of(frame, "y", classes)
    assert (labels.tolist(), names) == ([1, 0, 0, 1], [str(each) for each in classes])


def test_parquet_gives_what_csv_gives(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    from pyarrow import csv, parquet

    _patients(tmp_path)
    parquet.write_table(csv.read_csv(tmp_path / "points.csv"), tmp_path / "points.parquet")
    first, second = (
        table(root=str(tmp_path), file=f"points.{ending}", label="sick", missing="mean")
        for ending in ("csv", "parquet")
    )
    np.testing.assert_array_equal(first.train_images, second.train_images)
    np.testing.assert_array_equal(first.test_labels, second.test_labels)
    nothing = pyarrow.table({"a": [1.5, None], "b": ["x", "y"]})
    parquet.write_table(nothing, tmp_path / "gap.parquet")
    with pytest.raises(DataError, match=r"row 1, column 'a' of .*gap.parquet must be given"):
        table(root=str(tmp_path), file="gap.parquet", label="b")
    lists = pyarrow.table({"a": [[1.5, 2], [3]], "b": ["x", "y"]})
    parquet.write_table(lists, tmp_path / "lists.parquet")
    with pytest.raises(
        DataError, match=r"row 0, column 'a' .*must be a number or a word, got \[1.5"
    ):
        table(root=str(tmp_path), file="lists.parquet", label="b")


LARGE = [2**53 + step for step in range(4)]
"""Whole numbers of which float64 has only every second."""


@pytest.mark.parametrize("form", ["csv", "npy", "parquet", "frame"])
def test_large_whole_numbers_stay_different(tmp_path: Path, form: str) -> None:
    rows = [{"0": 1 + i, "1": LARGE[i % 4], "2": LARGE[i % 2]} for i in range(8)]
    if form == "csv":
        _write(tmp_path, "\n".join(",".join(map(str, row.values())) for row in rows))
    elif form == "npy":
        np.save(tmp_path / "points.npy", np.array([list(row.values()) for row in rows]))
    elif form == "parquet":
        pyarrow = pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "points.parquet")
    frame = frame_of(rows) if form == "frame" else read_table(tmp_path / f"points.{form}")
    assert frame.words("1") == [str(LARGE[i % 4]) for i in range(8)]
    assert classes_of(frame, "2", None)[1] == [str(each) for each in LARGE[:2]]
    assert frame.numbers("1")[0] == 2**53


def test_large_whole_numbers_of_one_file_meet_small_ones_of_another(tmp_path: Path) -> None:
    for name, number in (("a", 7), ("b", LARGE[1])):
        np.save(tmp_path / f"{name}.npy", np.array([[1, number]]))
    whole = joined([read_table(tmp_path / f"{name}.npy") for name in "ab"])
    assert whole.words("1") == ["7", str(LARGE[1])]


def test_the_index_of_pandas_is_no_feature() -> None:
    assert without_index(["age", "__index_level_0__", "index"]) == ["age", "index"]


def test_a_folder_of_parquet_files_is_one_table(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    from pyarrow import parquet

    (tmp_path / "points.parquet").mkdir()  # as Spark writes a table
    (tmp_path / "points.parquet" / "_SUCCESS").touch()
    for part in range(2):
        rows = pyarrow.table({"a": [part, part + 10], "b": ["x", "y"]})
        parquet.write_table(rows, tmp_path / "points.parquet" / f"part-{part}.parquet")
    data = table(root=str(tmp_path), file="points.parquet", label="b", test_share=0)
    assert data.train_images.ravel().tolist() == [0, 10, 1, 11]


def test_a_folder_of_other_files_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "points.csv").mkdir()
    with pytest.raises(DataError, match=r"must be a file, got the folder .*points.csv; point data"):
        table(root=str(tmp_path))


def test_delimiters_within_quotes_do_not_count(tmp_path: Path) -> None:
    _write(tmp_path, '"a, in cm, x";"b";y\n1,5;2;0\n2,5;3;1\n')
    assert list(read_table(tmp_path / "points.csv").columns) == ["a, in cm, x", "b", "y"]


def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "points.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(DataError, match="as CSV, or install the extra parquet of fl-app"):
        table(root=str(tmp_path), file="points.parquet")


def test_a_column_names_the_clients(tmp_path: Path) -> None:
    _patients(tmp_path)
    data = table(root=str(tmp_path), label="sick", client="hospital", test_share=0.3)
    assert data.owners is not None
    assert data.owners.names == ("h0", "h1", "h2", "h3")
    people = by_column(data, clients=4, train_samples=5)
    for client in range(4):
        held = people.client(client)
        assert (len(held.train_labels), len(held.test_labels)) == (5, 3)
        ages = torch.cat([held.train_images, held.test_images])[:, 0].int() - 20
        assert set((ages % 4).tolist()) == {client}
    assert people.groups.tolist() == [-1] * 4
    few = [by_column(data, clients=2, seed=seed).train for seed in range(6)]
    assert len({tuple(map(len, each)) + tuple(each[0]) for each in few}) > 1


def test_clients_of_a_run_keep_their_ids_whatever_names_come(tmp_path: Path) -> None:
    _patients(tmp_path)
    data = table(root=str(tmp_path), label="sick", client="hospital", test_share=0.3)
    assert by_column(data, clients=4, names=["h2", "h1"]).names == ("h2", "h1", "h0", "h3")
    assert by_column(data, clients=1, names=["h2", "h1"]).names == ("h2",)
    for clients in (3, 4):  # of drawn clients too
        before = by_column(data, clients=2).names
        assert by_column(data, clients=clients, names=[*before]).names[:2] == before
    with pytest.raises(DataError, match=r"must still have .* got none of gone; restore its data"):
        by_column(data, clients=4, names=["h2", "gone"])


@given(names=st.lists(st.text(), max_size=4))
def test_names_survive_a_setting(names: list[str]) -> None:
    given = OmegaConf.create({"names": encoded(names)})
    assert [unquote(each) for each in given.names] == names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clients": 5}, r"must be at most 4, the clients of hospital .*\(h0, h1, h2, h3\), got 5"),
        ({"clients": 2, "min_samples": 99}, r"at most 0, .*at least 99 training .*\(none\), got 2"),
    ],
)
def test_more_clients_than_the_data_name_are_refused(
    tmp_path: Path, options: dict, message: str
) -> None:
    _patients(tmp_path)
    data = table(root=str(tmp_path), label="sick", client="hospital")
    with pytest.raises(DataError, match=message):
        by_column(data, **options)


def test_data_without_clients_are_no_natural_partition(tmp_path: Path) -> None:
    _patients(tmp_path)
    with pytest.raises(DataError, match=r"name the client of each row, got points; give data.cli"):
        by_column(table(root=str(tmp_path), label="sick"), clients=2)


def test_a_folder_with_one_file_per_client(tmp_path: Path) -> None:
    _write(tmp_path, "x,y\n1,no\n2,yes\n3,no\n", "berlin.csv")
    _write(tmp_path, "x,y\n7,yes\n8,no\n", "aachen.csv")
    (tmp_path / "README.md").write_text("text")
    data = client_files(root=str(tmp_path), label="y")
    people = by_column(data, clients=2)
    held = [people.client(client) for client in range(2)]
    found = [sorted(torch.cat([h.train_images, h.test_images]).ravel().tolist()) for h in held]
    assert found == [[7, 8], [1, 2, 3]]
    assert [len(each.test_labels) for each in held] == [1, 1]


def test_names_that_differ_by_case_or_spacing_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cells = [("Yes", "A", "a  b"), ("yes", "a", "a b"), ("no", "b", "c")]
    _write(tmp_path, "y,x,who\n" + "".join(f"{','.join(cells[i % 3])}\n" for i in range(30)))
    assert table(root=str(tmp_path), label="y", client="who").classes == 3
    told = ["the clients of column 'who'", "the classes of column 'y'",
            "the categories of column 'x'"]  # fmt: skip
    assert [each.partition(" of " + str(tmp_path))[0] for each in caplog.messages] == told
    assert "'A' and 'a' differ by case or spacing alone" in caplog.messages[2]


@pytest.mark.parametrize("other", ["berlin.tsv", "Berlin.csv", "berlin .csv", "berlin.csv.gz"])
def test_two_files_of_one_client_are_refused(tmp_path: Path, other: str) -> None:
    # otherwise rows of one file would be for training and for test
    for name in ("berlin.csv", other, "lyon.csv"):
        _write(tmp_path, "x,y\n1,0\n2,1\n", name)
    with pytest.raises(DataError, match=rf"must have different names.* {other}.*; rename"):
        client_files(root=str(tmp_path), label="y")


def test_files_that_give_no_client_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("berlin.csv", "lyon.csv"):
        _write(tmp_path, "x,y\n1,0\n2,1\n", name)
    _write(tmp_path, "x,y\n", "oslo.csv")
    for name in ("rome.xlsx", "README", ".hidden"):
        _write(tmp_path, "not a table", name)
    assert client_files(root=str(tmp_path), label="y").owners.names == ("berlin", "lyon")
    unread, empty = caplog.messages
    assert "has files that are not read: 1 no ending, 1 .xlsx; convert those" in unread
    assert empty.endswith("no rows, and so no client, in oslo.csv")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({}, r"no clients at .*expected a file ending in .csv, .* for each client; put them"),
        ({"a.csv": "x,y\n1,0\n", "b.csv": "x,z\n1,0\n"},
         r"b.csv must have the 2 columns of .*a.csv, got no 'y', and 'z' in addition; use"),
        ({"a.csv": "x,y\n1,0\n", "b.csv": "x,y,z\n1,0,0\n"}, r"got 'z' in addition; use tables"),
        ({"a.csv": "x,y\n1,0\n", "b.csv": "x,y\n1,0\none,1\n"},
         r"line 3, column 'x' of .*b.csv must be a number"),
    ],
)  # fmt: skip
def test_files_of_clients_of_several_forms_are_refused(
    tmp_path: Path, texts: dict[str, str], message: str
) -> None:
    for name, text in texts.items():
        _write(tmp_path, text, name)
    with pytest.raises(DataError, match=message):
        client_files(root=str(tmp_path), label="y" if texts else None)


def test_files_of_clients_may_have_their_columns_in_another_order(tmp_path: Path) -> None:
    _write(tmp_path, "x,z,y\n1,5,0\n2,6,1\n", "a.csv")
    _write(tmp_path, "y,x,z\n0,3,7\n1,4,8\n", "b.csv")
    data = client_files(root=str(tmp_path), label="y", test_share=0)
    assert data.train_images.tolist() == [[1, 5], [2, 6], [3, 7], [4, 8]]
    assert data.train_labels.tolist() == [0, 1, 0, 1]


def test_nodes_of_their_own_state_the_form_of_their_tables(tmp_path: Path) -> None:
    _patients(tmp_path)
    open_, closed = (
        table(root=str(tmp_path), label="sick", exclude=["hospital"], **given)
        for given in (
            {"standardise": True},
            {"classes": ["no", "yes"], "categories": {"ward": ["a", "b", "c"]}},
        )
    )
    rule = r"data.classes, data.standardise, data.categories.ward must be the same on all nodes"
    with pytest.raises(ValueError, match=rule):
        own(open_, clients=2)
    assert own(closed, clients=2).clients == 2
    _write(tmp_path, "age,ward,sick,hospital\n")  # the server's
    names = table(
        root=str(tmp_path), label="sick", exclude=["hospital"], classes=["no", "yes"],
        categories={"ward": ["a", "b", "c"]},
    )  # fmt: skip
    assert (names.shape, names.classes) == (closed.shape, closed.classes)


@pytest.mark.parametrize("size", [1e-310, 1e-200])
def test_a_column_of_tiny_numbers_is_standardised(
    size: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _write(tmp_path, "x,y\n" + "".join(f"{row * size},{row % 2}\n" for row in range(1, 9)))
    data = table(root=str(tmp_path), label="y", test_share=0, standardise=True)
    assert data.train_images.std() == pytest.approx(1)
    assert not caplog.messages
