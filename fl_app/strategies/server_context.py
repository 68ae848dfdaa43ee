"""The arguments that every strategy receives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fl_app.aggregation import Rule, median, weighted_mean
from fl_app.graph.communities import CommunityDetection
from fl_app.graph.vector_backends import VectorBackend
from fl_app.params import Layout
from fl_app.types import Labels, Vector, Vectors
from fl_app.used_with import UsedWith, When

RuleName = Literal["mean", "median"]
RULES: Mapping[RuleName, Rule] = {"mean": weighted_mean, "median": median}
"""Aggregation rules by their name in the configuration."""
WEIGHTED: UsedWith = {"weighting": When("rule", ("mean",))}
"""The `used_with` of methods with these rules: a median has no weights."""


def largest(models: Vectors, sizes: Labels) -> set[int]:
    """Return the row of the largest community, the first of equals."""
    return {int(sizes.argmax())}


@dataclass(frozen=True, kw_only=True)
class ServerContext:
    """The arguments that every strategy receives; `initial` is the first model (d,)."""

    seed: int
    rounds: int
    layout: Layout
    initial: Vector
    min_success: int
    evaluate_every: int
    evaluate_at_most: int | None
    largest_update: float | None
    """Updates above this multiple of the usual norm are rejected; None: off."""
    clip_update: float | None
    """Updates above this multiple of the usual norm are shortened; None: off."""
    sample_cap: float
    """Largest weight of a client as a multiple of the median samples, with weighting=capped."""
    detection: CommunityDetection
    vector_backend: Callable[..., VectorBackend]
    """Creates an empty backend for vectors (length,); `whole`: the vectors themselves are read."""
    look_ahead_every: int
    contrast: bool
    """Whether a graph of updates holds cumulated ones, and its communities must be significant."""
    or_own: bool
    """Whether the method's own graph is asked where contrast finds one community."""
    private: bool
    """Whether a privacy hides what clients send, so that they are asked for nothing else."""
    noise_varies: bool
    """Whether the noise on updates follows a bound that changes from round to round."""
    metrics: tuple[str, ...]
    """Names of the metrics of the task, which clients report with their scores."""
    classes: int | None
    """Number of classes of the data; None: unknown."""
    inputs: int | None
    """Number of numbers in one sample; None: unknown, or samples are not numbers."""
    has_accuracy: bool
    """Whether the task has an accuracy, which the learner tells."""
    least_loss: float
    """The least loss that a client can have, as 0 of cross-entropy without noise on losses."""
    benign: Callable[[Vectors, Labels], set[int]]
    """Returns the communities assumed benign, from their models (k, d) and sizes (k,)."""
    fresh: Callable[[int], Vector] | None
    """Draws further initial models by number, for methods that start from several."""
    union: Callable[[], np.ndarray] | None
    """Returns the training points (p, d) of all clients, in a simulation."""
