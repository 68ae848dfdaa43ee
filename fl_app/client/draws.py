"""Random generators for the noise and batches of a private client."""

import secrets
from dataclasses import dataclass

import numpy as np
import torch

from fl_app.rng import generator, torch_generator


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
