"""Late clustering: FedAvg, then the communities of the clients' models, once.

The reference of Bettinelli et al., IEEE Big Data 2024, for discovering during training.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from fl_app.aggregation import Weighting
from fl_app.strategies.model_graph import Exponent, ModelGraph, Scale, Similarity, Snapshot
from fl_app.strategies.replies import Replies
from fl_app.strategies.setting import RULES, Setting, View, prefixed, unprefixed
from fl_app.strategies.two_phase import TwoPhase
from fl_app.types import Labels, Participation, PositiveInt, Vector


class Late(TwoPhase):
    """As FLIC, with the similarity of community discovery: of last models, not of updates."""

    def __init__(
        self,
        setting: Setting,
        *,
        participation: Participation,
        cluster_round: PositiveInt,
        similarity: Similarity = "trusted",
        exponent: Exponent = 3.0,
        scale: Scale = "ordinary",
        max_age: PositiveInt | None = None,
        rule: Literal["mean", "median"] = "mean",
        weighting: Weighting = "capped",
    ) -> None:
        super().__init__(
            setting, participation=participation, rule=RULES[rule], weighting=weighting
        )
        self.cluster_round = cluster_round
        self.graph = ModelGraph(
            setting.layout,
            setting.finding,
            similarity=similarity,
            exponent=exponent,
            scale=scale,
            max_age=max_age,
        )
        self.round = 0
        self._found: tuple[int, Snapshot] | None = None

    def check(self, model: Vector, samples: int) -> None:
        """Refuse a model that no distance can be measured from."""
        self.graph.check(model)

    def remember(self, server_round: int, replies: Replies) -> None:
        """Keep each client's last model."""
        self.round = server_round
        self.graph.put(server_round, replies, self.strides(replies))

    def is_due(self, server_round: int) -> bool:
        """After `cluster_round`."""
        return server_round >= self.cluster_round

    def find(self) -> tuple[Labels, Labels]:
        """Find the communities among the last models."""
        found = self._look()
        return found.client_ids, found.labels

    def view(self, server_round: int) -> View | None:
        """Return the communities, or, before clustering, those that would be found now."""
        every = self.setting.look_ahead_every
        if self.clustered_at is None and (every == 0 or server_round % every):
            return None
        found = self._look()
        labels = found.labels if self.clustered_at is None else self.known()[1]
        return View(found.client_ids, labels, found.similarity, found.distance)

    def _look(self) -> Snapshot:
        if self._found is None or self._found[0] != self.round:
            self._found = self.round, self.graph.look(self.round)
        return self._found[1]

    def checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Add the last models."""
        arrays, state = super().checkpoint()
        return arrays | prefixed("graph", self.graph.arrays()), state | {"round": self.round}

    def restore(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Take up what `checkpoint` returned."""
        super().restore(arrays, state)
        self.graph.restore(unprefixed("graph", arrays))
        self.round = state["round"]
