"""The graph of the clients' latest models, as community discovery sees it."""

from dataclasses import dataclass, field
from math import isfinite
from typing import Annotated, Literal

import numpy as np
from hydra.utils import get_object
from pydantic import AfterValidator, PositiveFloat

from fl_app.graph.communities import CommunityDetection, louvain
from fl_app.graph.normalised import normalised_similarity
from fl_app.graph.similarity import DISTANCES, Distance
from fl_app.graph.store import UpdateStore
from fl_app.graph.vector_backends import InMemory
from fl_app.params import Layout
from fl_app.strategies.replies import Replies
from fl_app.types import Labels, Matrix, Vector, Vectors, Weights


def distance_named(name: str) -> Distance:
    """Return a distance of models by its name, or by the dotted path of a function of one's own.

    Raises ValueError for a path that leads to no function.
    """
    if name in DISTANCES:
        return DISTANCES[name]
    try:
        found: Distance = get_object(name)
    except (ImportError, ValueError) as error:
        raise ValueError("the dotted path of a function that can be imported") from error
    return found


def _importable(name: str) -> str:
    distance_named(name)
    return name


DottedPath = Annotated[str, AfterValidator(_importable)]
Similarity = Literal["trusted", "cosine", "euclidean"] | DottedPath
Exponent = PositiveFloat
Scale = Literal["ordinary", "all"]
ODD = 3.0
"""An update is odd when its norm is above ODD times the usual one, or below 1 / ODD of it."""


@dataclass(frozen=True)
class ModelCommunities:
    """Clients (n,), their models (n, d), how far these are apart (n, n), and communities (n,)."""

    client_ids: Labels
    models: Vectors
    distance: Matrix
    similarity: Matrix
    labels: Labels


@dataclass
class LatestModels:
    """The last model of each client."""

    store: UpdateStore = field(default_factory=lambda: UpdateStore(InMemory()))
    """The models themselves, and the round of each."""
    odd: set[int] = field(default_factory=set)
    """The clients whose last update was odd."""

    def put(self, server_round: int, replies: Replies, strides: Weights) -> None:
        """Keep the models of a round, and whose update was odd: norms in usual ones (n,)."""
        odd = (strides > ODD) | (strides < 1 / ODD)
        each = zip(replies.client_ids.tolist(), replies.models, odd.tolist(), strict=True)
        for client_id, model, is_odd in each:
            self.store.put(client_id, model, server_round)
            (self.odd.add if is_odd else self.odd.discard)(client_id)

    def fresh(self, server_round: int, max_age: int | None) -> tuple[Labels, Vectors]:
        """Return the ids (n,) and models (n, d) of the clients heard of in `max_age` rounds."""
        ids, models = self.store.updates()
        young = self.store.fresh(server_round, max_age)
        return ids[young], models[young]


class ModelGraph:
    """The graph of last models; those older than `max_age` rounds count no more."""

    def __init__(
        self,
        layout: Layout,
        detection: CommunityDetection,
        *,
        similarity: str,
        exponent: float,
        scale: Scale,
        max_age: int | None,
    ) -> None:
        self.layout, self.detection = layout, detection
        self.between = distance_named(similarity)
        self.exponent, self.scale = exponent, scale
        self.max_age = max_age

    def check(self, model: Vector, samples: int) -> None:
        """Raise ValueError for a model (d,) whose distance to itself is no finite number.

        The distances named here are finite for every model that is; one of a user's own may
        not be, or raise.
        """
        row = model[None, :]
        to_itself = float(self.between(row, row, self.layout)[0, 0])
        if not isfinite(to_itself):
            raise ValueError(f"its distance to itself must be finite, got {to_itself}")

    def look(self, latest: LatestModels, server_round: int) -> ModelCommunities:
        """Find the communities among the models that count in this round; needs one at least."""
        ids, models = latest.fresh(server_round, self.max_age)
        distance = self.between(models, models, self.layout)
        np.fill_diagonal(distance, 0.0)
        odd = np.isin(ids, list(latest.odd)) if self.scale == "ordinary" else None
        similarity = normalised_similarity(distance, exponent=self.exponent, odd=odd)
        how = self.detection
        options = {"resolution": how.resolution, "seed": how.seed}
        labels = louvain(similarity, backend=how.backend, **options)  # type: ignore[arg-type]
        return ModelCommunities(ids, models, distance, similarity, labels)
