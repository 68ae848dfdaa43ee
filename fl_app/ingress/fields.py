"""Reads numbers that a client sent, with strict types and ranges."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from fl_app.ingress.rejection import RejectionError, shown

LARGEST = 1e30
"""Larger numbers could overflow in squares or sums."""
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


def _present(fields: Mapping[str, Any], name: str) -> Any:
    if name not in fields:
        raise RejectionError(name, "present", "nothing")
    return fields[name]
