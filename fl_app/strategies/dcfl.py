"""DCFL: communities that are found anew whenever the old ones no longer fit.

Augello et al., PerCom Workshops 2023, "DCFL: dynamic clustered federated learning under
differential privacy settings", algorithm 1.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from flwr.common import FitRes, Parameters, Scalar
from flwr.server.client_proxy import ClientProxy
from pydantic import Field

from fl_app.graph.communities import NotConvergedWarning, affinity_propagation
from fl_app.graph.dcfl_distance import dcfl_between, dcfl_distance, dcfl_divergence
from fl_app.graph.holdings import InMemory
from fl_app.graph.similarity import euclidean_between, flic_similarity
from fl_app.graph.store import UpdateStore
from fl_app.graph.validity import dunn_index
from fl_app.strategies.base import CommunityStrategy, FitReplies, Rows
from fl_app.strategies.replies import Replies, encode
from fl_app.strategies.setting import RULES, Communities, Event, Setting, View, prefixed, unprefixed
from fl_app.types import Labels, Matrix, Participation, PositiveInt, Vector, Vectors

Damping = Annotated[float, Field(ge=0.5, lt=1)]


class Dcfl(CommunityStrategy):
    """Affinity propagation on the distances of update vectors, when the Dunn index says so.

    An update vector goes from the model a client received to the one it returned; the latest
    of each client counts for `max_age` rounds (the paper leaves partial participation open).
    Communities are found anew while there is one alone or the index of the present ones is
    below 1. A community's model is the plain mean (`rule`: or the median) of its members'
    latest models, the global model that of all. A newcomer trains the global model first, then
    joins the community whose last step lies nearest to its own, and then trains that one's.
    `distance` takes parts of the paper's own, for its ablation.
    """

    def __init__(
        self,
        setting: Setting,
        *,
        participation: Participation,
        distance: Literal["complete", "divergence", "cosine", "euclidean"] = "complete",
        damping: Damping = 0.5,
        preference: float | None = None,
        max_age: PositiveInt | None = None,
        rule: Literal["mean", "median"] = "mean",
    ) -> None:
        super().__init__(setting, participation=participation, rule=RULES[rule])
        self.kind = distance
        self.damping, self.preference = damping, preference
        self.max_age = max_age
        self.starts, self.ends = UpdateStore(InMemory()), UpdateStore(InMemory())
        self.everyone = setting.initial
        self.before = setting.initial[None, :].copy()
        self.dunn: float | None = None
        self.found: tuple[Labels, Matrix] | None = None

    @property
    def notes(self) -> Mapping[str, Any]:
        """The Dunn index of the communities as they were before this round."""
        finite = self.dunn is not None and np.isfinite(self.dunn)
        return {"dunn": self.dunn if finite else None}

    @property
    def global_model(self) -> Vector | None:
        """The plain mean of the latest models of all clients that count."""
        return self.everyone

    def attribute(self, client_ids: Sequence[int]) -> tuple[Vectors, list[Rows]]:
        """Return community models and the global one (k + 1, d), and each client's row."""
        models, members = self.communities.models, self.communities.members
        stock = np.concatenate([models, self.everyone[None, :]])
        return stock, [(members.get(client, len(models)),) for client in client_ids]

    def aggregate_fit(
        self,
        server_round: int,
        results: FitReplies,
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters, dict[str, Scalar]]:
        """Keep the update vectors, find communities where the old ones fail, average inside."""
        sent = np.concatenate([self.communities.models, self.everyone[None, :]])
        replies = self.receive(server_round, results)
        self._remember(server_round, replies, sent)
        ids, starts, ends = self._fresh(server_round)
        distance = self._distance(starts, ends)
        labels = self._labels(ids, distance, starts, ends)
        count = int(labels.max()) + 1
        self.before = self._steps_from(count, labels, starts)
        models = np.stack([self._middle(ends[labels == row]) for row in range(count)])
        self.communities = Communities(
            models, dict(zip(ids.tolist(), labels.tolist(), strict=True))
        )
        self.everyone = self._middle(ends)
        self.found = ids, distance
        return encode(self.everyone), {"train_loss": replies.loss}

    def _middle(self, models: Vectors) -> Vector:
        """Return the plain mean, or the median, (d,) of models (m, d)."""
        return self.rule(models, np.ones(len(models)))

    def _remember(self, server_round: int, replies: Replies, sent: Vectors) -> None:
        received = zip(
            replies.client_ids.tolist(), replies.starts.tolist(), replies.models, strict=True
        )
        for client, row, model in received:
            self.starts.put(client, sent[row], server_round)
            self.ends.put(client, model, server_round)

    def _fresh(self, server_round: int) -> tuple[Labels, Vectors, Vectors]:
        """Return ids (m,), starts and ends (m, d) of the update vectors that count."""
        ids, ends = self.ends.updates()
        starts = self.starts.updates()[1]
        young = self.ends.fresh(server_round, self.max_age)
        return ids[young], starts[young], ends[young]

    def _distance(self, starts: Vectors, ends: Vectors) -> Matrix:
        part = self.setting.layout.direction
        starts, ends = starts[:, part], ends[:, part]
        if self.kind == "complete":
            return dcfl_distance(starts, ends)
        if self.kind == "divergence":
            return dcfl_divergence(starts, ends)
        if self.kind == "cosine":
            distance: Matrix = 2.0 - flic_similarity(ends - starts)
        else:
            distance = euclidean_between(ends, ends, self.setting.layout)
        np.fill_diagonal(distance, 0.0)
        return distance

    def _labels(self, ids: Labels, distance: Matrix, starts: Vectors, ends: Vectors) -> Labels:
        """Return the communities (m,) of this round: the old ones while they fit."""
        members = self.communities.members
        labels = np.array([members.get(client, -1) for client in ids.tolist()])
        old = labels >= 0
        if old.any():
            self.dunn = dunn_index(distance[np.ix_(old, old)], labels[old])
            if len(np.unique(labels[old])) > 1 and self.dunn >= 1:
                return self._joined(labels, starts, ends)
        return self._cluster(distance)

    def _joined(self, labels: Labels, starts: Vectors, ends: Vectors) -> Labels:
        """Give each newcomer the community whose last step is nearest to its own."""
        new = labels < 0
        if new.any():
            part = self.setting.layout.direction
            models = self.communities.models
            nearness = dcfl_between(
                starts[new][:, part], ends[new][:, part], self.before[:, part], models[:, part]
            )
            labels = labels.copy()
            labels[new] = nearness.argmin(axis=1)
        # a community whose members are all too old is gone: rows have no holes
        return np.unique(labels, return_inverse=True)[1]

    def _cluster(self, distance: Matrix) -> Labels:
        level: float | Literal["median"] = "median" if self.preference is None else self.preference
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", NotConvergedWarning)
            labels = affinity_propagation(
                distance, damping=self.damping, preference=level, seed=self.setting.seed
            )
        self.events += [Event("not converged", str(each.message)) for each in caught]
        sizes = np.bincount(labels).tolist()
        kind = "reclustered" if self.communities.members else "clustered"
        self.events.append(Event(kind, f"{len(sizes)} communities of sizes {sizes}"))
        return labels

    @staticmethod
    def _steps_from(count: int, labels: Labels, starts: Vectors) -> Vectors:
        """Return where each community's members started from on average (k, d)."""
        return np.stack([starts[labels == row].mean(axis=0) for row in range(count)])

    def view(self, server_round: int) -> View | None:
        """Return the communities after this round."""
        if self.found is None:
            return None
        ids, distance = self.found
        labels = np.array([self.communities.members[client] for client in ids.tolist()])
        return View(ids, labels, None, distance)

    def checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Add the update vectors, the global model and the communities' last steps."""
        arrays, state = super().checkpoint()
        arrays |= {"everyone": self.everyone, "before": self.before}
        arrays |= prefixed("starts", self.starts.arrays()) | prefixed("ends", self.ends.arrays())
        return arrays, state | {"dunn": self.notes["dunn"]}

    def restore(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Take up what `checkpoint` returned."""
        super().restore(arrays, state)
        self.everyone, self.before = np.array(arrays["everyone"]), np.array(arrays["before"])
        self.starts = UpdateStore.from_arrays(unprefixed("starts", arrays), InMemory())
        self.ends = UpdateStore.from_arrays(unprefixed("ends", arrays), InMemory())
        self.dunn = state["dunn"]
