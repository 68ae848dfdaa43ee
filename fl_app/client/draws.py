"""Random generators of a client: its batches, its noise, and what its network's layers draw."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from fl_app.params import FlatModule
from fl_app.rng import generator, global_seeds, torch_generator
from fl_app.system_numbers import Numbers, SystemNumbers


@dataclass(frozen=True)
class Draws:
    """Random generators of one client in one round.

    `keyed`: seeded by the run's seed; otherwise by the system's entropy, and what hides a client's
    data is drawn from `SystemNumbers`.
    """

    seed: int
    server_round: int
    client_id: int
    keyed: bool

    def numpy(self, purpose: str) -> Numbers:
        """Return a source of noise for this purpose."""
        if not self.keyed:
            return SystemNumbers()
        return generator(self.seed, purpose=purpose, round=self.server_round, client=self.client_id)

    def hidden(self, purpose: str) -> torch.Generator | SystemNumbers:
        """Return a source of noise and batches of DP-SGD for this purpose."""
        return self.torch(purpose) if self.keyed else SystemNumbers()

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
