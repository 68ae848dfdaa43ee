"""FLIC: plain FedAvg while the similarity graph fills, then one model per community.

Espinoza Castellon et al., IJCNN 2022, "Federated learning with incremental clustering for
heterogeneous data", algorithm 1.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from fl_app.aggregation import Weighting
from fl_app.evaluation.stability import loss_fall
from fl_app.graph.communities import find
from fl_app.graph.store import UpdateStore
from fl_app.strategies.replies import Replies
from fl_app.strategies.setting import RULES, Setting, View, prefixed, unprefixed
from fl_app.strategies.two_phase import TwoPhase
from fl_app.types import Labels, NonNegativeInt, Participation, PositiveInt

ClusterRound = PositiveInt | Literal["auto"]
MOST_WHOLE = 5000
"""Clients up to which the whole matrix is shown at the clustering, whatever is clustered on."""
Tolerance = Annotated[float, Field(gt=0, lt=1)]


class Flic(TwoPhase):
    """Louvain on `1 + cos` of the clients' latest updates, after round `cluster_round`.

    With `auto` as soon as the training loss averaged over `stability_window` rounds fell by
    less than `stability_tolerance` of the first round's loss against the window before: the
    paper says "once stable" and leaves the test open. docs/results/auto_cluster_round.md has
    the curves that chose the defaults. Updates of rounds below `ignore_before` are left out
    of the graph. The paper assigns clients never sampled only after training; here they are
    assigned whenever accuracy is measured.
    """

    def __init__(
        self,
        setting: Setting,
        *,
        participation: Participation,
        cluster_round: ClusterRound,
        ignore_before: NonNegativeInt = 0,
        rule: Literal["mean", "median"] = "mean",
        weighting: Weighting = "capped",
        stability_window: PositiveInt = 10,
        stability_tolerance: Tolerance = 0.02,
    ) -> None:
        super().__init__(
            setting, participation=participation, rule=RULES[rule], weighting=weighting
        )
        self.cluster_round = cluster_round
        self.ignore_before = ignore_before
        self.window = stability_window
        self.tolerance = stability_tolerance
        self.store = UpdateStore(setting.holding())
        self.losses: list[float] = []

    def remember(self, server_round: int, replies: Replies) -> None:
        """Keep each client's update: the model it received minus the one it returned."""
        self.losses.append(replies.usual_loss)
        if server_round < self.ignore_before:
            return
        part = self.setting.layout.direction
        before = self.communities.models[0]
        for client_id, model in zip(replies.client_ids, replies.models, strict=True):
            self.store.put(int(client_id), before[part] - model[part], server_round)

    def is_due(self, server_round: int) -> bool:
        """After `cluster_round`, or, with `auto`, once the loss stands still."""
        if self.cluster_round != "auto":
            return server_round >= self.cluster_round and len(self.store) > 0
        return self.stability is not None and self.stability < self.tolerance

    def find(self) -> tuple[Labels, Labels]:
        """Find the communities of the similarity graph."""
        return self.store.client_ids(), find(self.store, self.setting.finding)

    def view(self, server_round: int) -> View | None:
        """Return the communities, or, before clustering, those that Louvain would find now."""
        every = self.setting.look_ahead_every
        if self.clustered_at is None and (every == 0 or server_round % every or not self.store):
            return None
        dense = len(self.store) <= self.setting.finding.sparse_above
        dense |= server_round == self.clustered_at and len(self.store) <= MOST_WHOLE
        similarity = self.store.similarity()[1] if dense else None
        ids, labels = self.find() if self.clustered_at is None else self.known()
        return View(ids, labels, similarity)

    @property
    def stability(self) -> float | None:
        """Fall of the windowed training loss (see class docstring)."""
        return loss_fall(self.losses, window=self.window)

    def checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Add the update store and the loss curve."""
        arrays, state = super().checkpoint()
        return arrays | prefixed("store", self.store.arrays()), state | {"losses": self.losses}

    def restore(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Take up what `checkpoint` returned."""
        super().restore(arrays, state)
        self.store = UpdateStore.from_arrays(unprefixed("store", arrays), self.setting.holding())
        self.losses = list(state["losses"])
