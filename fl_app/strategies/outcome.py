"""The outcome of a strategy after a round, for the loop, the records and the privacy budget."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fl_app.strategies.model_evaluation import Scores
from fl_app.types import Labels, Matrix, Vector, Vectors

FEDERATED, CLUSTERED = "federated", "clustered"
"""Phases: one model for all clients, or one per community."""


@dataclass(frozen=True)
class View:
    """The communities after a round, for records and figures.

    `labels` (n,) of `client_ids` (n,); the `similarity` (n, n) in which they were found, and the
    `distance` (n, n) if it is not just `2 - similarity`.
    """

    client_ids: Labels
    labels: Labels
    similarity: Matrix | None
    distance: Matrix | None = None

    @property
    def affinity(self) -> Matrix | None:
        """The similarity of the clients (n, n), or -distance if there is none."""
        if self.similarity is None and self.distance is not None:
            return -self.distance
        return self.similarity


@dataclass
class Event:
    """An event of a round for the records, with the affected `clients`."""

    kind: str
    detail: str
    clients: list[int] = field(default_factory=list)


def clustering(labels: Labels, kind: str = "clustered") -> Event:
    """Return the event of communities with these labels (n,) of their clients."""
    sizes = np.bincount(labels).tolist()
    found = f"{len(sizes)} communities of sizes {sizes}"
    return Event(kind, found if len(sizes) != 1 else f"1 community of size {sizes[0]}")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a strategy after a round; its parts are valid until the next round."""

    models: Vectors
    """The models of the communities (k, d)."""
    members: Mapping[int, int]
    """The row of the model of each client that belongs to a community."""
    global_model: Vector | None
    """The model (d,) of all clients in addition to the community models, if there is one."""
    removed: Mapping[int, int]
    """The clients removed from training, each with the round of its removal."""
    phase: str
    """FEDERATED or CLUSTERED."""
    view: View | None
    """The communities, or those that would be found now; None: there are none to show."""
    events: Sequence[Event]
    """The events of this round."""
    cohort: Sequence[int]
    """The clients that were asked to train."""
    rejected: Mapping[int | str, str]
    """The clients whose replies were rejected, with the reasons."""
    dominance: Mapping[int, float]
    """The clients with more than half of the weight of their community, with their shares."""
    odd_updates: Mapping[int, float]
    """The clients with an odd update, with its norm as a multiple of the usual norm."""
    metrics: Mapping[int, Mapping[str, float]]
    """Numbers by name that clients sent with their models."""
    training_s: float
    """Sum of the training times of all clients in seconds."""
    scores: Scores
    """The scores of the clients; empty if they did not evaluate."""
    step: float | None
    """Norm of the movement of the models over the norm of the models; None: not measured."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Further JSON values of the round for the records."""
    stability: float | None = None
    """The stability criterion, if the method has one."""
    measures: bool = False
    """Whether the clients must evaluate after this round in any case."""
    finished: str = ""
    """Why further rounds would have no effect; empty if they have one."""
    choices: Mapping[int, int] = field(default_factory=dict)
    """The row of the model that each client trained last, if clients choose anew in each round.

    They are no members, so that nobody is suspected by its community.
    """
    privacy: Mapping[str, Any] | None = None
    """What the method itself releases of the clients, as `PrivacyBudget.book` tells it."""

    @property
    def assignment(self) -> dict[int, int]:
        """The row of the model that each client uses, once there are communities.

        A client that trained counts as in `view`, also if it chose another model to evaluate.
        """
        if self.phase == FEDERATED:
            return {}
        return {**self.members, **self.scores.assigned, **self.choices}

    def suspects(self, benign: Callable[[Vectors, Labels], set[int]]) -> set[int]:
        """Return the clients outside of the benign communities, and the removed clients.

        `benign` returns rows of models (k, d), from these and the sizes (k,) of the communities.
        """
        if not self.members:
            return set(self.removed)
        rows = benign(self.models, np.bincount(list(self.members.values())))
        return {c for c, row in self.members.items() if row not in rows} | set(self.removed)
