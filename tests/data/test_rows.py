"""Rows for a finished run: the forms that they have, and what is told of them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fl_app.data.columns import CategoryColumn, NumberColumn
from fl_app.data.datasets import DataError
from fl_app.data.frame import AfterRun
from fl_app.data.rows import Label, TableRows, TextRows, frame_of

FITTED = TableRows(
    vars(Label("sick", ["no", "yes"])),
    [vars(NumberColumn("flag", None, 0.0, 2.0))],
    [vars(CategoryColumn("ward", ["?", "A", "B"], None, closed=False)),
     vars(CategoryColumn("old", ["False", "True"], None, closed=True))],
    ["flag", "ward", "old"],
)  # fmt: skip
PATIENT = {"flag": 1, "ward": "B", "old": "True"}


@pytest.mark.parametrize(
    "other",
    [{"flag": "True"}, {"flag": np.True_}, {"ward": " B "}, {"old": 1}, {"old": "TRUE"},
     {"old": np.True_}],
)  # fmt: skip
def test_rows_for_a_finished_run_can_be_written_as_in_another_file(other: dict[str, Any]) -> None:
    wanted = [[0.5, 0, 0, 1, 0, 1]]
    assert FITTED(PATIENT | other).tolist() == wanted
    assert FITTED({**PATIENT, "ward": "?"}).tolist()[0][1:4] == [1, 0, 0]  # a word of this run
    pandas = pytest.importorskip("pandas")
    assert FITTED(pandas.Series(PATIENT | other, dtype=object)).tolist() == wanted


@pytest.mark.parametrize(
    ("other", "told"),
    [({"flag": "x"}, "row 0, column 'flag' .*, got 'x'; correct it"),
     ({"flag": float("inf")}, "got inf; correct it"),
     ({"ward": " "}, "'ward' of the given rows must be given, got ' '; fill it or remove the row"),
     ({"old": "maybe"}, "got 'maybe'; correct it"),
     ({"sick": "x"}, "got 'x'; correct it")],
)  # fmt: skip
def test_rows_for_a_finished_run_are_not_mended_by_settings(
    other: dict[str, Any], told: str
) -> None:
    rows = frame_of({"sick": "no", **PATIENT, **other})
    with pytest.raises(DataError, match=f"{told}$"):
        (FITTED.labels if "sick" in other else FITTED)(rows)


def test_what_is_no_row_is_told_and_unknown_words_are_counted_over_all_parts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wrongs: list[Any] = [[], [1, PATIENT], None]
    for wrong, got in zip(wrongs, ("a list with none", "a list with int", "NoneType"), strict=True):
        with pytest.raises(DataError, match=f"at least one mapping .*, got {got}; give"):
            FITTED(wrong)
    use = AfterRun()
    for ward in ("C", "B", "D"):
        FITTED(replace(frame_of(PATIENT | {"ward": ward}), after_run=use))
    use.tell("x.csv")
    (told,) = caplog.messages
    assert "column 'ward' of x.csv: 2 of 3 rows have a word that is none of its categories" in told


def test_texts_come_as_arrays_and_series_too() -> None:
    pandas = pytest.importorskip("pandas")
    prepare = TextRows(None, "text", "words", 2, ["fine"])
    for given in ("Fine day", ["Fine day"], np.array(["Fine day"]), pandas.Series(["Fine day"])):
        assert prepare(given).tolist() == [[2, 1]]
    with pytest.raises(DataError, match=r"at least one mapping .*, got int; give"):
        prepare(5)
