"""Random generators keyed by (seed, round, client, purpose), free of global state.

The same key gives the same stream on every engine, in every process and after a resume, and it
does not depend on earlier draws.
"""

import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

SERVER = -1
"""The `client` for draws that do not belong to a client."""

_global = threading.RLock()


def _sequence(seed: int, purpose: str, round: int, client: int) -> np.random.SeedSequence:
    key = (round, client - SERVER, zlib.crc32(purpose.encode()))
    return np.random.SeedSequence(seed, spawn_key=key)


def generator(
    seed: int, *, purpose: str, round: int = 0, client: int = SERVER
) -> np.random.Generator:
    """Return the NumPy generator for one key; `seed` and `round` are at least 0."""
    return np.random.default_rng(_sequence(seed, purpose, round, client))


def torch_generator(
    seed: int, *, purpose: str, round: int = 0, client: int = SERVER
) -> torch.Generator:
    """Return the CPU torch generator for one key; `seed` and `round` are at least 0."""
    key = torch_seed(seed, purpose=purpose, round=round, client=client)
    return torch.Generator().manual_seed(key)


def torch_seed(seed: int, *, purpose: str, round: int = 0, client: int = SERVER) -> int:
    """Return a 63-bit seed for one key, for libraries that need an integer."""
    state = _sequence(seed, purpose, round, client).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))


@contextmanager
def global_torch_seed(seed: int) -> Iterator[None]:
    """Seed torch's global generator in the block, for code without a generator argument.

    The previous state is restored at the end. Only one thread at a time can be in the block.
    """
    with _global, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
