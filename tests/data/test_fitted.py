"""Data keep the form that a run began with: scaling, fill values, categories, words and classes."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from fl_app.command_words import override
from fl_app.composition import compose
from fl_app.data.datasets import DataError, Dataset
from fl_app.data.fitted import check_form, read_fitted, written
from fl_app.data.rows import TableRows
from fl_app.wiring import made

PIL = pytest.importorskip("PIL.Image")
table = partial(made, "data=table", seed=0, label="y", test_share=0, standardise=True)
text = partial(made, "data=text", seed=0, label="y", test_share=0, length=2)
client_images = partial(made, "data=client_images", seed=0, test_share=0)
OPTIONS = {"missing": "median"}


def _table(root: Path, rows: str, fitted: str | None = None, **options: Any) -> Dataset:
    (root / "points.csv").write_text(f"x,ward,y\n{rows}")
    return table(root=str(root), fitted=fitted, **OPTIONS | options)


@pytest.fixture
def began(tmp_path: Path) -> tuple[Dataset, str]:
    """Data with numbers of mean 2, deviation 1 and median 2, and their form."""
    data = _table(tmp_path, "1,a,no\n3,c,yes\n,a,no\n1,$b,no\n3,c,yes\n")
    return data, written(data.form())


def test_a_table_keeps_what_was_found_in_its_first_rows(
    began: tuple[Dataset, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, form = began
    data = _table(tmp_path, "103,b,yes\n,d,yes\n,c,yes\n", form)
    assert (data.form(), data.inferred) == (first.form(), ())
    scaled = (103 - 2) / np.std([1, 3, 2, 1, 3])
    expected = [[scaled, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
    np.testing.assert_allclose(data.train_images, expected, rtol=1e-6)
    assert (data.train_labels.tolist(), data.class_names) == ([1, 1, 1], ("no", "yes"))
    assert "2 of 3 rows have a word that is none of its categories, such as 'b'" in caplog.text


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"standardise": False}, r"data\.standardise must stay .* true, got false"),
        ({"exclude": ["x"]}, "must have the columns with features of the run, x, ward, got no 'x'"),
        ({"classes": ["yes", "no"]}, "data.label with data.classes must stay"),
        (
            {"categories": {"ward": ["a", "b"]}},
            r"data\.categories\.ward must .*, got \[a, b\]",
        ),
        ({"categories": ["x"]}, r"data\.categories\.x must stay .* None, got \[\]"),
    ],
)
def test_settings_that_would_change_it_are_refused(
    options: dict[str, Any], told: str, began: tuple[Dataset, str], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=told):
        _table(tmp_path, "1,a,no\n3,c,yes\n", began[1], **options)
    assert len(_table(tmp_path, "1,a,no\n", began[1], categories=["ward"]).train_labels) == 1


def test_a_class_that_the_run_has_not_is_refused(
    began: tuple[Dataset, str], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="must be one of the classes no, yes, got 'well'; correct"):
        _table(tmp_path, "1,a,well\n", began[1])


def test_texts_keep_their_words(tmp_path: Path) -> None:
    (tmp_path / "texts.csv").write_text("text,y\nred red blue,no\nred,yes\n")
    form = written(text(root=str(tmp_path)).form())
    (tmp_path / "texts.csv").write_text("text,y\ngreen blue,yes\ngreen,yes\n")
    data = text(root=str(tmp_path), fitted=form)
    assert (data.train_images.tolist(), data.classes) == ([[1, 3], [1, 0]], 2)
    with pytest.raises(DataError, match=r"data\.tokens must stay .*, words, got characters"):
        text(root=str(tmp_path), fitted=form, tokens="characters")
    with pytest.raises(DataError, match="the kind that the run was trained on, TextRows, got"):
        read_fitted(form, TableRows)


def _pictures(root: Path, client: str, **colours: int) -> None:
    for name, colour in colours.items():
        (root / client / name).mkdir(parents=True)
        PIL.new("RGB", (2, 2), (colour, 0, 9)).save(root / client / name / "0.png")


def test_images_keep_their_classes_and_scale(tmp_path: Path) -> None:
    _pictures(tmp_path / "first", "w", cat=10, dog=30)
    first = client_images(root=str(tmp_path / "first"))
    _pictures(tmp_path / "other", "w", dog=200)
    data = client_images(root=str(tmp_path / "other"), fitted=written(first.form()))
    assert (data.form(), data.train_labels.tolist()) == (first.form(), [1])
    _pictures(tmp_path / "other", "w", ant=1)
    with pytest.raises(DataError, match="must be named as in the run, cat, dog, got ant"):
        client_images(root=str(tmp_path / "other"), fitted=written(first.form()))


def test_a_form_survives_a_setting(began: tuple[Dataset, str]) -> None:
    odd = {"preprocess": {"a": "it's ${x} \\' 100% \" ü"}, "class_names": ["\\"]}
    for text in (began[1], written(odd)):
        found = OmegaConf.select(compose(["data=table", override("data.fitted", text)]), "data")
        assert found["fitted"] == text
    with pytest.raises(DataError, match=r"data\.fitted must be the form .*, got 'mine'"):
        read_fitted("mine", TableRows)


def test_other_forms_are_named_by_the_column(began: tuple[Dataset, str]) -> None:
    form = began[0].form()
    (number,) = form["preprocess"]["numbers"]

    def changed(**values: Any) -> dict[str, Any]:
        return form | {"preprocess": form["preprocess"] | {"numbers": [number | values]}}

    check_form(form, form | {"new": 1})
    check_form(form, changed(mean=number["mean"] * (1 + 1e-9)))
    with pytest.raises(DataError, match=r"preprocess\.numbers\.x\.mean 2\.0, got 3\.0; restore"):
        check_form(form, changed(mean=3.0))
    with pytest.raises(DataError, match=r"class_names \[no, yes\], got \[no\]"):
        check_form(form, form | {"class_names": ["no"]})
