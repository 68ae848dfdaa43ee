"""Aggregates the replies of each community to one model."""

from logging import getLogger
from math import isfinite

import numpy as np

from fl_app.aggregation import WITHOUT_WEIGHTS, Rule, dominant
from fl_app.client.private_entries import SMALLEST_SHARE
from fl_app.masking.slots import SlotSums
from fl_app.params import Layout, is_finite, square_norm
from fl_app.strategies.replies import Replies
from fl_app.types import Labels, Vector, Vectors, Weights

log = getLogger(__name__)


class CommunityAggregator:
    """Applies `rule` in each community, and measures the movement of the models.

    Models of a `layout` with variances get no negative ones, whatever the rule returns: every
    client's answers would be NaN, and the server would reject them.
    `dominance` has the clients with more than half of the weight of their community in this
    round, each with its share; nobody if the rule is not `weighted`, that is, uses no weights.
    `step` is the norm of the movement of the models divided by the norm of the models; None: not
    measured. `notes` has the number of clients by model if only sums are known.
    """

    def __init__(self, rule: Rule, layout: Layout | None = None) -> None:
        self.rule, self.layout = rule, layout
        self.weighted = not any(rule is each for each in WITHOUT_WEIGHTS)
        self.dominance: dict[int, float] = {}
        self.step: float | None = None
        self.notes: dict[str, list[int]] = {}
        self._warned: set[int] = set()

    def begin(self) -> None:
        """Clear the values of the last round."""
        self.dominance, self.step, self.notes = {}, None, {}

    def update(self, models: Vectors, replies: Replies) -> None:
        """Replace the model of each community that replied, a row of `models` (k, d)."""
        moved = length = 0.0
        for row in np.unique(replies.starts):
            mine = np.flatnonzero(replies.starts == row)
            alone = len(mine) == len(replies.starts)
            received = replies.models if alone else replies.models[mine]
            model, norm = self._checked(replies.client_ids[mine], received, replies.weights[mine])
            np.subtract(model, models[row], out=models[row])  # in place: new pages are slow
            moved += float(np.linalg.norm(models[row]))
            length += norm
            models[row] = model
        self.step = moved / length if length else None

    def move(self, models: Vectors, sums: SlotSums) -> None:
        """Add to each row of `models` (k, d) the mean update of the clients that trained it.

        A variance keeps at least SMALLEST_SHARE of its value: no reply could be checked alone.
        """
        length = float(np.linalg.norm(models + sums.updates))
        self.step = float(np.linalg.norm(sums.updates)) / length if length else None
        variances = self.layout.non_negative.values() if self.layout else ()
        least = [SMALLEST_SHARE * np.abs(models[:, part]) for part in variances]
        models += sums.updates
        for part, each in zip(variances, least, strict=True):
            np.maximum(models[:, part], each, out=models[:, part])
        self.notes = {"clients_by_model": sums.counts.tolist(), "too_few": sums.too_few}

    def aggregate(self, client_ids: Labels, models: Vectors, weights: Weights) -> Vector:
        """Return the model (d,) of one community from the models (n, d) of its clients (n,)."""
        return self._checked(client_ids, models, weights)[0]

    def _checked(
        self, client_ids: Labels, models: Vectors, weights: Weights
    ) -> tuple[Vector, float]:
        """Return a model (d,), and its norm, which proves at once that it is finite."""
        self.watch(client_ids, weights)
        found = np.asarray(self.rule(models, weights))
        if found.shape == models.shape[1:] and found.dtype.kind == "f":
            model: Vector = found.astype(np.float32, copy=False)
            norm = square_norm(model) ** 0.5
            if isfinite(norm) or is_finite(model):
                return self.layout.valid(model) if self.layout else model, norm
        raise ValueError(
            f"the aggregation rule must return {models.shape[1]:,} finite numbers, got an array "
            f"{found.shape} of {found.dtype} with others; correct the rule"
        )

    def watch(self, client_ids: Labels, weights: Weights) -> None:
        """Record the client of a community (n,) that has more than half of its weight (n,)."""
        found = dominant(weights) if self.weighted else None
        if found is not None:
            self._note_dominant(int(client_ids[found[0]]), found[1])

    def _note_dominant(self, client: int, share: float) -> None:
        self.dominance[client] = max(share, self.dominance.get(client, 0.0))
        if client not in self._warned:
            log.warning(
                "client %d has %.0f %% of the weight of its community; "
                "use strategy.weighting=uniform or a lower engine.sample_cap to limit it",
                client, 100 * share,
            )  # fmt: skip
            self._warned.add(client)
