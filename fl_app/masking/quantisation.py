"""Numbers in [-1, 1] as integers whose sum over all clients fits into 32 bits."""

import numpy as np

from fl_app.types import Integers, Reals

LARGEST = 2**31 - 1
"""Largest absolute value of a sum modulo 2^32 that can be told from its negative."""
MOST_CLIENTS = 2**20
"""Above this number of clients, less than 11 bits would be left for a number."""


def levels(clients: int) -> int:
    """Return the integer H that stands for 1: `floor((2^31 - 1) / clients)`.

    The sum of one integer in [-H, H] of each client is then in (-2^31, 2^31). Raises ValueError
    for a number of clients outside of 1..MOST_CLIENTS.
    """
    if not 1 <= clients <= MOST_CLIENTS:
        raise ValueError(
            f"clients must be in 1..{MOST_CLIENTS}, got {clients}; sample fewer in a round"
        )
    return LARGEST // clients


def quantise(numbers: Reals, clients: int, draw: np.random.Generator | None = None) -> Integers:
    """Return `H x mod 2^32` (l,) of numbers x (l,) in [-1, 1] as integers, with H of `levels`.

    0 becomes 0 exactly. Without `draw`, rounding is to the nearest, with an error of at most
    `1 / (2 H)`. With it, a number between two levels becomes either, with the probability of which
    it is the mean: an error below `1 / H` that is 0 on average, so that the sum of many clients
    keeps what none of them could tell alone. Flower's `quantize` draws from NumPy's global
    generator. Raises ValueError for a number outside of [-1, 1] or NaN: its sum with others could
    not be told from a sum of valid ones.
    """
    if not (np.abs(numbers) <= 1).all():  # false for NaN
        raise ValueError(
            "numbers must be in [-1, 1] to be masked, got "
            f"{np.nanmin(numbers):g}..{np.nanmax(numbers):g}; cut them before"
        )
    scaled = numbers * levels(clients)
    if draw is None:
        scaled = np.rint(scaled)
    else:
        below = np.floor(scaled)
        scaled = below + (draw.random(len(scaled)) < scaled - below)
    integers: Integers = scaled.astype(np.int64).astype(np.uint32)
    return integers


def dequantise(total: Integers, clients: int) -> Reals:
    """Return the sum (l,) of the numbers of all clients from the sum (l,) of their integers."""
    numbers: Reals = total.view(np.int32) / levels(clients)
    return numbers
