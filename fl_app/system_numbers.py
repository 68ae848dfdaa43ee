"""Random numbers that nobody can foresee, for noise and batches of a private client."""

import secrets

import numpy as np
from numpy.typing import DTypeLike

from fl_app.types import Reals

KEY_BYTES, FIRST_BLOCK = 32, bytes(16)
PAIRS = 1 << 14
"""Pairs of normal numbers that are drawn at once, which fit into the caches of a core."""


class SystemNumbers:
    """Numbers from AES-256 in counter mode, under a new key of the operating system.

    Its methods are those of `numpy.random.Generator`. The generators of NumPy and torch are made
    for experiments: torch's on the CPU has 2^32 streams, which a server can try, and numbers that
    are seen, as noise where an update is zero, tell the following ones.
    """

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        key = algorithms.AES(secrets.token_bytes(KEY_BYTES))
        self._stream = Cipher(key, modes.CTR(FIRST_BLOCK)).encryptor()

    def random(self, count: int) -> Reals:
        """Return numbers (count,), equally likely in [0, 1), multiples of 2^-53."""
        found = np.frombuffer(self._stream.update(bytes(8 * count)), "<u8")
        return (found >> np.uint64(11)) * 2.0**-53

    def standard_normal(
        self, size: int | tuple[int, ...] = (), dtype: DTypeLike = np.float64
    ) -> np.ndarray:
        """Return standard normal numbers of this shape, at most 9.5 in size.

        `sqrt(-2 ln u) cos(2 pi v)` and the same with sin, with u of 64 bits, since it decides how
        far the numbers go, and v of 32 bits: Box and Muller, 1958.
        """
        found = np.empty(int(np.prod(size)), dtype)
        for start in range(0, len(found), 2 * PAIRS):
            self._fill(found[start : start + 2 * PAIRS])
        return found.reshape(size)

    def _fill(self, found: np.ndarray) -> None:
        """Set at most 2 PAIRS numbers to new ones."""
        pairs = (len(found) + 1) // 2
        drawn = self._stream.update(bytes(12 * pairs))
        share = (np.frombuffer(drawn, "<u8", pairs) + 0.5) * 2.0**-64
        turns = np.frombuffer(drawn, "<u4", pairs, 8 * pairs)
        angle = turns.astype(np.float32) * np.float32(2.0**-31 * np.pi)
        length = np.sqrt(np.float32(-2) * np.log(share).astype(np.float32))
        found[:pairs] = length * np.cos(angle)
        found[pairs:] = (length * np.sin(angle))[: len(found) - pairs]


Numbers = np.random.Generator | SystemNumbers
"""A source of noise."""
