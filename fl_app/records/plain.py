"""Conversion of numpy and Python values to strict JSON."""

import json
from collections.abc import Mapping
from math import inf, isfinite
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """Return `value` as JSON values: numpy becomes Python, keys become strings, NaN becomes None.

    Raises TypeError for a value that JSON cannot represent.
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    raise TypeError(
        f"a record must contain numbers, text, lists and mappings, got {value!r} "
        f"({type(value).__name__}); convert it first"
    )


def spent_epsilon(value: float | None) -> float:
    """Return an epsilon of a record: null, as JSON has no infinity, is that without noise."""
    return inf if value is None else value


def dumps(value: Any, *, indent: int | None = None) -> str:
    """Return `value` as strict JSON text: never the words NaN or Infinity."""
    return json.dumps(plain(value), allow_nan=False, ensure_ascii=False, indent=indent)
