"""What every strategy receives from the wiring."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fl_app.aggregation import Rule, median, weighted_mean
from fl_app.graph.communities import CommunityDetection
from fl_app.graph.vector_backends import InMemory, VectorBackend
from fl_app.params import Layout
from fl_app.types import Labels, Vector, Vectors

RuleName = Literal["mean", "median"]
RULES: Mapping[RuleName, Rule] = {"mean": weighted_mean, "median": median}
"""Aggregation rules by the name that a configuration gives them."""


def largest(models: Vectors, sizes: Labels) -> set[int]:
    """Return the row of the largest community, the first of equals."""
    return {int(sizes.argmax())}


def in_memory(*, length: int, whole: bool) -> VectorBackend:
    """Return a backend that is exact, whatever lies there."""
    return InMemory()


@dataclass(frozen=True, kw_only=True)
class ServerContext:
    """What the wiring hands to every strategy; `initial` is the first model (d,)."""

    seed: int
    rounds: int
    layout: Layout
    initial: Vector
    min_success: int
    evaluate_every: int
    evaluate_at_most: int | None
    largest_update: float | None
    """Times the usual norm of a round's updates beyond which an update is rejected; None: off."""
    clip_update: float | None
    """Times the usual norm of a round's updates to which longer ones are shortened; None: off."""
    sample_cap: float
    """Times the median of a round's samples that a client may weigh, with weighting=capped."""
    detection: CommunityDetection
    vector_backend: Callable[..., VectorBackend] = in_memory
    """Makes an empty backend for vectors of `length` numbers that are read back if `whole`."""
    look_ahead_every: int
    benign: Callable[[Vectors, Labels], set[int]]
    """Which communities are taken for benign, from their models (k, d) and sizes (k,)."""
    fresh: Callable[[int], Vector] | None = None
    """Draws first models beyond `initial`, by number: for methods that start from several."""
    union: Callable[[], np.ndarray] | None = None
    """Brings all clients' training points (p, d) together, where a simulation has them."""
