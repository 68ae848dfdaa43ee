"""Random numbers that nobody can foresee, for noise and batches of a private client."""

import secrets

import numpy as np
from numpy.typing import DTypeLike

from fl_app.types import Reals

KEY_BYTES, FIRST_BLOCK = 32, bytes(16)


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
        count = int(np.prod(size))
        pairs = (count + 1) // 2
        share = (np.frombuffer(self._stream.update(bytes(8 * pairs)), "<u8") + 0.5) * 2.0**-64
        turns = np.frombuffer(self._stream.update(bytes(4 * pairs)), "<u4")
        angle = turns.astype(np.float32) * np.float32(2.0**-31 * np.pi)
        length = np.sqrt(-2 * np.log(share)).astype(np.float32)
        found = np.concatenate([length * np.cos(angle), length * np.sin(angle)])
        return found[:count].astype(dtype).reshape(size)


Numbers = np.random.Generator | SystemNumbers
"""A source of noise."""
