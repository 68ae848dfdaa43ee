"""Numbers as text for readers, rounded so that the text claims no more than the number does."""

from decimal import ROUND_CEILING, Decimal
from math import floor, isfinite, log10

EXACT = (0.0, 0.5, 1.0)
"""Values with a meaning of their own, such as all or the half: only they are shown as they are."""
MOST_DECIMALS = 6
CLOSE = 1e-9
"""Values that differ by less are equal but for rounding errors."""
NOISE_FREE = 12
"""Significant digits of a float that no rounding error of a sum changes."""


def number(value: float, decimals: int = 3) -> str:
    """Return a number with so many decimals, or with more where two digits would not be seen.

    A number that only rounds to 1 has more decimals too, up to MOST_DECIMALS: 0.9996 is not 1.
    """
    if value == 0 or not isfinite(value):
        return f"{value:.{decimals}f}"
    needed = 1 - floor(log10(abs(value)))
    if needed > MOST_DECIMALS:
        return f"{value:.2g}"
    return f"{value:.{_apart(value, max(decimals, needed), (1.0,))}f}"


def counted(count: int, one: str, many: str) -> str:
    """Return a count with its noun."""
    return f"{count} {one if count == 1 else many}"


def share(value: float, decimals: int = 0) -> str:
    """Return a share as a percentage; what only rounds to one of EXACT has more decimals."""
    return f"{value:.{_apart(value, decimals + 2, EXACT) - 2}%}"


def _apart(value: float, decimals: int, exact: tuple[float, ...]) -> int:
    """Return at least so many decimals, with which a value is none of `exact` that it is not."""
    if any(abs(value - each) < CLOSE for each in exact):
        return decimals
    while decimals < MOST_DECIMALS and round(value, decimals) in exact:
        decimals += 1
    return decimals


def upwards(value: float) -> str:
    """Return a spent budget with two decimals or three digits, rounded up: none is understated."""
    if value <= 0 or not isfinite(value):
        return f"{value:.2f}"
    decimals = max(2, 2 - floor(log10(value)))
    exact = Decimal(f"{value:.{NOISE_FREE}g}")
    return f"{exact.quantize(Decimal(1).scaleb(-decimals), ROUND_CEILING):f}"
