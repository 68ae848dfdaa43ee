"""The settings by which data keep the form that the models of a run were trained with."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fl_app.data import arrays
from fl_app.data.fitted import check_form, check_same, written
from fl_app.data.population import own
from fl_app.records.reading import read_config
from fl_app.records.serving import read_form

OWN = f"{own.__module__}.{own.__name__}"
"""The population whose nodes each find in their own rows what the server cannot know."""
ARRAYS = tuple(
    f"{each.__module__}.{each.__name__}" for each in (arrays.arrays, arrays.client_arrays)
)

UNREAD = ("missing", "vocabulary")
"""Settings of data that only a form without a former one follows; others are compared with it."""


def settings(folder: Path, tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the group `data` with which data keep the form of a run in `folder`.

    `tree` is the configuration. Empty without a form, if the settings are given, and for data of
    which only the size or a user's function decides the form: these are compared alone.
    """
    form, data = read_form(folder), tree["data"]
    if form is None or tree["population"].get("_target_") == OWN:
        return {}
    if "fitted" in data and data["fitted"] is None:
        return {"fitted": written(form)}
    if data.get("_target_") in ARRAYS and data["classes"] is None:
        return {"classes": form["classes"]}
    return {}


def check_settings(folder: Path, options: Mapping[str, Any]) -> None:
    """Raise DataError for a setting that has another value than in the run, and would do nothing.

    `options` are those of the data, which keep the form of the run in `folder` if they have it.
    """
    if options.get("fitted") is None:
        return
    before: Mapping[str, Any] = {}
    with suppress(ValueError):  # a resume writes a damaged configuration anew
        before = read_config(folder).get("data") or {}
    for name in UNREAD:
        if name in before and name in options:
            check_same(f"data.{name}", before[name], options[name])


def check(folder: Path, population: str, form: Mapping[str, Any]) -> None:
    """Raise DataError if data have another form than those that the run in `folder` began with.

    `population` is the path of the function that splits them.
    """
    before = read_form(folder)
    if before is not None and population != OWN:
        check_form(before, form)
