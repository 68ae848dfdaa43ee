"""What a strategy has come to after a round: what loop, records and privacy budget read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fl_app.strategies.model_evaluation import Scores
from fl_app.types import Labels, Matrix, Vector, Vectors

FEDERATED, CLUSTERED = "federated", "clustered"
"""Phases: one model for all clients, or one for each community."""


@dataclass(frozen=True)
class View:
    """The communities as the server sees them after a round, for records and figures.

    `labels` (n,) of `client_ids` (n,); `similarity` (n, n) that they were found in, and
    `distance` (n, n) where it is not just `2 - similarity`.
    """

    client_ids: Labels
    labels: Labels
    similarity: Matrix | None
    distance: Matrix | None = None

    @property
    def affinity(self) -> Matrix | None:
        """The similarity of the clients (n, n), or where there is none -distance."""
        if self.similarity is None and self.distance is not None:
            return -self.distance
        return self.similarity


@dataclass
class Event:
    """Something that happened once and belongs in the records; `clients` it happened to."""

    kind: str
    detail: str
    clients: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a strategy has come to after a round; its parts are valid until the next round."""

    models: Vectors
    """The models of the communities (k, d)."""
    members: Mapping[int, int]
    """The row of the model of each client that belongs to a community."""
    global_model: Vector | None
    """The model (d,) of all clients beside those of the communities, where there is one."""
    removed: Mapping[int, int]
    """The clients that train no more, each with the round in which it was removed."""
    phase: str
    """FEDERATED or CLUSTERED."""
    view: View | None
    """The communities, or those that would be found now; None: nothing to show."""
    events: Sequence[Event]
    """What happened in this round."""
    cohort: Sequence[int]
    """The clients that were asked to train."""
    rejected: Mapping[int | str, str]
    """The clients whose replies were not used, and why."""
    dominance: Mapping[int, float]
    """The clients that hold more than half of the weight of their community: their shares."""
    odd_updates: Mapping[int, float]
    """The clients whose update was far longer or shorter than usual: its norm in usual ones."""
    metrics: Mapping[int, Mapping[str, float]]
    """Numbers by name that clients sent beside their models."""
    training_s: float
    """Seconds that all clients together trained."""
    scores: Scores
    """What the clients measured; empty where they were not asked."""
    step: float | None
    """Norm of the movement of the models over the norm of the models; None: not measured."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Further values of the round for the records, JSON all of them."""
    stability: float | None = None
    """How far training still moves, where the method measures it."""
    measures: bool = False
    """Whether the clients should be asked for their accuracy after this round in any case."""
    finished: bool = False
    """Whether further rounds would change nothing."""

    @property
    def assignment(self) -> dict[int, int]:
        """The row of the model that each client uses, once there are communities."""
        if self.phase == FEDERATED:
            return {}
        return {**self.members, **self.scores.assigned}

    def suspects(self, benign: Callable[[Vectors, Labels], set[int]]) -> set[int]:
        """Return the clients outside of the communities that `benign` names, and the removed.

        `benign` gives rows of the models (k, d) from these and the communities' sizes (k,).
        """
        if not self.members:
            return set(self.removed)
        rows = benign(self.models, np.bincount(list(self.members.values())))
        return {c for c, row in self.members.items() if row not in rows} | set(self.removed)
