"""What a client stores between rounds."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np


class Memory(Protocol):
    """What stays with a client between rounds and never leaves it: tensors by name."""

    def read(self, until: int) -> Mapping[str, np.ndarray]:
        """Return what was written last, up to a round; empty for a client that had not trained.

        A memory that survives no resume may return what is of a later round.
        """

    def write(self, tensors: Mapping[str, np.ndarray], server_round: int) -> None:
        """Store the tensors after a round."""


class ReadOnly:
    """The memory of a client that another one looks at: what that writes is not stored."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def read(self, until: int) -> Mapping[str, np.ndarray]:
        """Return what the client wrote last, up to a round."""
        return self.memory.read(until)

    def write(self, tensors: Mapping[str, np.ndarray], server_round: int) -> None:
        """Store nothing."""
