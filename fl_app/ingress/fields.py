"""Reads numbers that a client sent, with strict types and ranges."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np

from fl_app.ingress.rejection import RejectionError, shown
from fl_app.learner_reports import LARGEST
from fl_app.types import Vector

MOST_SAMPLES = 2**40
"""Samples that one client may claim, so that sums over clients are exact in double precision."""
LONGEST_TRAINING_S = 1e9


def integer(fields: Mapping[str, Any], name: str, low: int, high: int) -> int:
    """Return the integer `name` in [low, high], not a boolean; raises RejectionError."""
    value = _present(fields, name)
    if type(value) is not int or not low <= value <= high:
        raise RejectionError(name, f"an integer in {low}..{high}", shown(value))
    return value


def number(
    fields: Mapping[str, Any], name: str, low: float = -LARGEST, high: float = LARGEST
) -> float:
    """Return the finite number `name` in [low, high] as a float; raises RejectionError."""
    value = _present(fields, name)
    if type(value) not in (int, float) or not low <= value <= high or not isfinite(value):
        raise RejectionError(name, f"a number in {low:g}..{high:g}", shown(value))
    return float(value)


def vector(fields: Mapping[str, Any], name: str, length: int, low: float, high: float) -> Vector:
    """Return the vector `name` (length,) in [low, high], sent as little-endian float32.

    Raises RejectionError. A limit holds as float32 rounds it, so that no honest value is outside.
    """
    data = _present(fields, name)
    rule = f"{length} finite float32 numbers in {low:g}..{high:g}, {4 * length} bytes"
    if type(data) is not bytes or len(data) != 4 * length:
        raise RejectionError(name, rule, shown(data))
    found = np.frombuffer(data, "<f4")
    least, most = found.min(), found.max()
    if not np.float32(low) <= least <= most <= np.float32(high):  # false for NaN
        raise RejectionError(name, rule, f"numbers in {least:g}..{most:g}")
    return np.clip(found.astype(np.float64), low, high)


def _present(fields: Mapping[str, Any], name: str) -> Any:
    if name not in fields:
        raise RejectionError(name, "present", "nothing")
    return fields[name]
