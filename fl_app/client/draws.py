"""Random generators of a client: its batches, its noise, and what its network's layers draw."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from fl_app.params import FlatModule
from fl_app.rng import generator, global_seeds, torch_generator


@dataclass(frozen=True)
class Draws:
    """Random generators of one client in one round.

    `keyed`: seeded by the run's seed; otherwise by the system's entropy.
    """

    seed: int
    server_round: int
    client_id: int
    keyed: bool

    def numpy(self, purpose: str) -> np.random.Generator:
        """Return a NumPy generator for this purpose."""
        if not self.keyed:
            return np.random.default_rng(secrets.randbits(128))
        return generator(self.seed, purpose=purpose, round=self.server_round, client=self.client_id)

    def torch(self, purpose: str) -> torch.Generator:
        """Return a CPU torch generator for this purpose."""
        if not self.keyed:
            return torch.Generator().manual_seed(secrets.randbits(63))
        keys = {"round": self.server_round, "client": self.client_id}
        return torch_generator(self.seed, purpose=purpose, **keys)

    def seed_of(self, purpose: str) -> int:
        """Return a 63-bit seed for this purpose."""
        return self.torch(purpose).initial_seed()


@contextmanager
def keyed_layers(flat: FlatModule, seed: int, *, trains: bool = True) -> Iterator[None]:
    """Key what the network's layers draw in the block, such as dropout, by `seed`.

    Layers draw from global generators, so that only one thread at a time can train a network that
    draws. The first training shows whether the network draws, and stores it in `flat.draws`. If it
    does not draw, later blocks do not wait for other threads. Without `trains` nothing is stored.
    """
    if flat.draws is False:
        yield
        return
    with global_seeds(seed) as states:
        yield
        if flat.draws is None and trains:
            flat.draws = states.moved()
