"""Epochs of local training: a number, or a distribution over slow and other clients."""

from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from fl_app.rng import generator
from fl_app.types import NonNegativeInt


@dataclass(frozen=True, kw_only=True)
class Epochs:
    """In each round a client is slow with probability `share`, and does `low` to `high` epochs.

    All numbers from `low` to `high` are equally likely; a client that is not slow does `high`. Li
    et al., MLSys 2020, section 5.2 (stragglers), in which `low` is 1.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    low: NonNegativeInt
    high: NonNegativeInt
    share: Annotated[float, Field(ge=0, le=1)]

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError("a number, or low, high and share with low at most high")
        return self

    def draw(self, seed: int, *, server_round: int, client: int) -> int:
        """Return the epochs of a client in a round."""
        source = generator(seed, purpose="epochs", round=server_round, client=client)
        if source.random() >= self.share:
            return self.high
        return int(source.integers(self.low, self.high, endpoint=True))


def most(epochs: int | Epochs) -> int:
    """Return the largest number of epochs."""
    return epochs if isinstance(epochs, int) else epochs.high
