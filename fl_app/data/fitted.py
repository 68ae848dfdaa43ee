"""The form of the data of a run, with which a resumed run and later evaluations go on."""

import json
from collections.abc import Mapping, Sequence
from math import isclose
from typing import Any, TypeVar
from urllib.parse import unquote

from fl_app.data.checks import DataError
from fl_app.data.frame import shortened
from fl_app.data.preparation import Preparation, preparation

P = TypeVar("P", bound=Preparation)
Fitted = str | None
"""The form of data as `written` returns it; None: it is found in the rows for training."""
ESCAPED = "%$\\'"
"""Signs that Hydra and OmegaConf would read in a setting."""
ROUNDING = 1e-6
"""Relative difference of a statistic that another machine can compute of the same rows."""


def written(form: Mapping[str, Any]) -> str:
    """Return a form, with `preprocess` and `class_names`, as the value of the setting."""
    kept = {name: form[name] for name in ("preprocess", "class_names")}
    text = json.dumps(kept, ensure_ascii=False)
    for sign in ESCAPED:
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text


def read_fitted(fitted: Fitted, kind: type[P]) -> tuple[P, list[str]] | None:
    """Return how inputs are prepared and the names of the classes; None without a form.

    Raises DataError for another kind of preparation.
    """
    if fitted is None:
        return None
    try:
        form = json.loads(unquote(fitted))
        prepared = preparation(form["preprocess"])
        names = [str(each) for each in form["class_names"]]
    except Exception as error:  # a user can give any text
        raise DataError(
            "data.fitted must be the form of the data of a run, as fl-app gives it to resumed "
            f"runs, got {fitted!r:.60} ({type(error).__name__}: {error}); set it to null"
        ) from error
    if not isinstance(prepared, kind):
        raise DataError(
            f"data must stay of the kind that the run was trained on, {type(prepared).__name__}, "
            f"got {kind.__name__}; give data of that kind, or start a new run"
        )
    return prepared, names


def check_same(setting: str, before: Any, now: Any) -> None:
    """Raise DataError for a setting with another value than that of the run."""
    if before != now:
        raise DataError(
            f"{setting} must stay as the models of the run were trained with it, "
            f"{_told(before)}, got {_told(now)}; leave it, or start a new run"
        )


def check_form(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise DataError if data have another form than those that a run was trained on.

    A form has `preprocess`, `class_names` and `classes`. What only one of both has is not compared.
    """
    told = _difference("", json.loads(json.dumps(before)), json.loads(json.dumps(now)))
    if told is not None:
        raise DataError(
            f"data must have the form that the run was trained on, {told}; restore the data, or "
            "start a new run (tables, texts and images keep their form in a run that is continued "
            "by fl-app resume=)"
        )


def _difference(name: str, before: Any, now: Any) -> str | None:
    """Return the first difference of JSON values, by the names of columns; None: they are equal."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        pairs = [(str(key), before[key], now[key]) for key in before if key in now]
    elif _nested(before) and _nested(now) and len(before) == len(now):
        named = [each.get("name", i) if isinstance(each, Mapping) else i
                 for i, each in enumerate(before)]  # fmt: skip
        pairs = list(zip(map(str, named), before, now, strict=True))
    else:
        return None if _equal(before, now) else f"{name} {_told(before)}, got {_told(now)}"
    found = (_difference(f"{name}.{key}" if name else key, *pair) for key, *pair in pairs)
    return next((each for each in found if each is not None), None)


def _nested(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(each, Mapping) for each in value)


def _equal(before: Any, now: Any) -> bool:
    """Whether two values without names are equal, numbers up to rounding."""
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(_equal, before, now))
    if isinstance(before, int | float) and isinstance(now, int | float):
        return isclose(before, now, rel_tol=ROUNDING, abs_tol=ROUNDING * ROUNDING)
    return bool(before == now)


def _told(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{shortened(value)}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
