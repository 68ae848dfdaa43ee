"""The one release of a client under secure aggregation that is not a sum: its noisy sketch."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import sqrt
from typing import Annotated, Any

from pydantic import Field

from fl_app.client import accountant
from fl_app.client.accountant import Release
from fl_app.client.draws import Draws
from fl_app.masking.sketch import noisy_direction, projected
from fl_app.types import Randomness, Sketch, Vector

Dimension = Annotated[int, Field(ge=2, le=100_000)]
FARTHEST = 10.0
"""Limit of a number in a sketch: 1 and this many standard deviations of the noise."""
BEYOND = 6.1
"""How many standard deviations the noise of a sketch (q,) may be longer than sqrt(q) of them: with
a probability below exp(-6.1^2 / 2) < 1e-8 it is."""
ROUNDED = 1.001
"""The length of a direction, with room for rounding."""


@dataclass(frozen=True, kw_only=True)
class SketchRelease:
    """Settings of the release: q = `dimension` numbers within (`epsilon`, `delta`).

    The neighbours are all possible data of the client, against everyone who sees the sketch: one
    Gaussian release with the sensitivity 2 of a direction, once in a run. It covers the sketch
    given the models of the rounds, and not the sums from which these are made. With
    `randomness=seed` the server can compute the noise and remove it, for experiments.
    """

    dimension: int
    epsilon: float
    delta: float
    randomness: Randomness

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "SketchRelease | None":
        """Return the release of a strategy with these options, None for one without sketches."""
        names = [each.name for each in fields(cls)]
        if not all(name in options for name in names):
            return None
        return cls(**{name: options[name] for name in names})

    @property
    def noise_multiplier(self) -> float:
        """The standard deviation of the noise on every number of a direction of length 1."""
        return accountant.update_noise(float(self.epsilon), self.delta, rounds=1)

    @property
    def booked(self) -> Release:
        """The release for the accountant."""
        return accountant.whole_update(self.noise_multiplier)

    @property
    def spent(self) -> float:
        """The epsilon that it costs; infinite without noise."""
        return accountant.spent([self.booked], self.delta)

    @property
    def largest(self) -> float:
        """Largest absolute value of a number that an honest client sends."""
        return ROUNDED + FARTHEST * self.noise_multiplier

    @property
    def longest(self) -> float:
        """Largest norm of a sketch that an honest client sends.

        One far longer than all others would be the main direction in which the server looks for
        communities, and hide theirs.
        """
        return ROUNDED + self.noise_multiplier * (sqrt(self.dimension) + BEYOND)

    def sketch(self, total: Vector, *, seed: int, server_round: int, client_id: int) -> Sketch:
        """Return the sketch (q,) of a client's cumulated updates (d,) to release."""
        draws = Draws(seed, server_round, client_id, keyed=self.randomness == "seed")
        return noisy_direction(
            projected(total, dimension=self.dimension, seed=seed),
            deviation=self.noise_multiplier,
            draw=draws.numpy("sketch noise"),
        )
