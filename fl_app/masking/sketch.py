"""A client's sketch: the direction of its own updates in few numbers, with noise."""

from dataclasses import dataclass
from math import inf

import numpy as np

from fl_app.rng import generator
from fl_app.system_numbers import Numbers
from fl_app.types import Sketch, Vector


@dataclass(frozen=True)
class OwnUpdates:
    """What a client's updates have beside those of the others, cumulated over rounds.

    `total` (d,) is the sum of the client's updates, each less the mean update of all clients in its
    round. This mean is the movement of the model, which the client sees when it gets the next one;
    until then it keeps its last `update` (d,), the model `start` (d,) and the round of it. Noise
    of batches averages out in the sum, which is without the common drift that hides what differs.
    """

    total: Vector
    start: Vector
    update: Vector
    round: int

    @classmethod
    def none(cls, parameters: int) -> "OwnUpdates":
        """Return the state of a client that has not trained a model of d parameters."""
        nothing = np.zeros(parameters, np.float32)
        return cls(nothing, nothing, nothing, 0)

    def trained(self, start: Vector, update: Vector, server_round: int) -> "OwnUpdates":
        """Return the state after a round in which the client moved `start` (d,) by `update`."""
        return OwnUpdates(self.known(start, server_round), start, update, server_round)

    def known(self, model: Vector, server_round: int) -> Vector:
        """Return the sum (d,) of the updates, with the last one if its mean is known.

        `model` (d,) is that of the round `server_round`. Over several rounds, the mean update of
        one is taken to be the mean movement. If the model has not moved, the round of the update
        was skipped: then its mean is not known, and it is not added.
        """
        moved = model - self.start
        if not self.round or not moved.any():
            return self.total
        own: Vector = self.update - moved / np.float32(max(1, server_round - self.round))
        total: Vector = self.total + own
        return total


def projected(vector: Vector, *, dimension: int, seed: int) -> Sketch:
    """Return a projection (q,) of a vector (d,) that is the same for all clients of a run.

    Each entry, with a random sign, is added to one of q sums of d / q entries, both drawn from the
    run's seed. Inner products are kept in the mean.
    """
    draw = generator(seed, purpose="sketch projection")
    signs = draw.integers(0, 2, len(vector)) * 2 - 1
    sums = draw.permutation(len(vector)) % dimension
    found = np.bincount(sums, weights=vector * signs, minlength=dimension)
    return found.astype(np.float32)


def noisy_direction(vector: Sketch, *, deviation: float, draw: Numbers) -> Sketch:
    """Return `v / |v|` (q,) plus Gaussian noise of this deviation on every entry.

    Two of these are at most 2 apart before the noise, whatever the data: the sensitivity of
    `client.accountant`, in clip bounds. It is the clipping to a bound below every norm, so that no
    bound must be chosen; the length of the updates is not told. A vector without a direction,
    zero or not finite, is the noise alone.
    """
    length = float(np.linalg.norm(vector.astype(np.float64)))
    direction = vector / np.float32(length) if 0 < length < inf else np.zeros_like(vector)
    found = direction + deviation * draw.standard_normal(len(vector))
    return found.astype(np.float32)
