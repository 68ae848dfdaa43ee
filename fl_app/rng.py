"""Random generators keyed by (seed, round, client, purpose), free of global state.

The same key gives the same stream on every engine, in every process and after a resume, and it
does not depend on earlier draws.
"""

import random
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
        if torch.accelerator.is_available():
            torch.manual_seed(seed)
        else:  # a seed for devices that come later costs more than drawing a small network
            torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def global_seeds(seed: int) -> Iterator["GlobalStates"]:
    """Seed the global generators of torch, NumPy and Python, for the layers of a network.

    Yields their states at the start. The previous states are restored at the end, except on CUDA.
    Only one thread at a time can be in this block or that of `global_torch_seed`. A library's
    thread that draws from Python's `random` meanwhile, as Flower's heartbeat does, shifts its
    draws, and can make a network count as one that draws, which only costs time.
    """
    with global_torch_seed(seed):
        before, of_python = np.random.get_state(), random.getstate()
        np.random.seed(seed % 2**32)
        random.seed(seed)
        try:
            yield GlobalStates()
        finally:
            np.random.set_state(before)
            random.setstate(of_python)


class GlobalStates:
    """The states of the global generators when this object was made."""

    def __init__(self) -> None:
        self._states = _states()

    def moved(self) -> bool:
        """Whether any of the generators was used since."""
        return _states() != self._states


def _states() -> tuple[object, ...]:
    on_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    tensors = [torch.random.get_rng_state(), *on_devices]
    name, keys, *rest = np.random.get_state(legacy=True)
    numbers = (name, np.asarray(keys).tobytes(), *rest)
    return (*(each.numpy().tobytes() for each in tensors), numbers, random.getstate())


def cohort_size(participation: float, clients: int) -> int:
    """Return how many of the clients are drawn for a round: participation * n, at least one."""
    return max(1, round(participation * clients))
