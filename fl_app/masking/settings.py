"""Whether clients mask what they send, and by which protocol."""

from math import ceil
from typing import Annotated

from pydantic import Field

from fl_app.masking.slots import Limits
from fl_app.masking.stages import FEWEST
from fl_app.types import Count, PositiveInt

Positive = Annotated[float, Field(gt=0, le=1e6)]


class Masking:
    """No masks: the server sees every reply."""

    masks = False


class SecAgg(Masking):
    """Sums by secure aggregation: the server sees sums over clients, and no reply.

    `threshold` is the share of a client's neighbours and itself that must stay until the end of a
    sum, `neighbours` with how many others a client shares masks; None: with all of the round.
    `smallest` is the number of clients that the sum of a model must have.
    """

    masks = True

    def __init__(
        self,
        *,
        threshold: Annotated[float, Field(gt=0.5, le=1)],
        neighbours: Annotated[int, Field(ge=2)] | None,
        smallest: PositiveInt,
        largest_change: Positive,
        most_samples: Count,
        largest_loss: Positive,
    ) -> None:
        self.threshold, self.neighbours, self.smallest = threshold, neighbours, smallest
        self.limits = Limits(largest_change, float(most_samples), largest_loss)

    def needed(self, holders: PositiveInt) -> int:
        """Return how many of `holders` clients must stay: more than half, and at least FEWEST."""
        return max(ceil(self.threshold * holders), holders // 2 + 1, FEWEST)
