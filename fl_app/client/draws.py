"""Where a private client's noise and batches come from."""

import secrets
from dataclasses import dataclass

import numpy as np
import torch

from fl_app.rng import generator, torch_generator


@dataclass(frozen=True)
class Draws:
    """Where the noise of one client and round comes from.

    `keyed`: from the run's seed, else from the system's entropy.
    """

    seed: int
    server_round: int
    client_id: int
    keyed: bool

    def numpy(self, purpose: str) -> np.random.Generator:
        """Return a NumPy generator of this purpose."""
        if not self.keyed:
            return np.random.default_rng(secrets.randbits(128))
        return generator(self.seed, purpose=purpose, round=self.server_round, client=self.client_id)

    def torch(self, purpose: str) -> torch.Generator:
        """Return a CPU torch generator of this purpose."""
        if not self.keyed:
            return torch.Generator().manual_seed(secrets.randbits(63))
        keys = {"round": self.server_round, "client": self.client_id}
        return torch_generator(self.seed, purpose=purpose, **keys)
