"""What federated k-means and its central counterpart share: centroids as the only model."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any

import numpy as np
from flwr.common import EvaluateRes, Parameters, Scalar
from flwr.server.client_proxy import ClientProxy

from fl_app.aggregation import weighted_mean
from fl_app.kmeans.lloyd import Centroids
from fl_app.kmeans.scores import Contingency, agreement, majority
from fl_app.strategies.base import CommunityStrategy, EvaluateReplies
from fl_app.strategies.replies import encode
from fl_app.strategies.setting import Setting, View
from fl_app.types import Participation


@dataclass
class Scored:
    """What one client says of the centroids it received: table (k, c), distance, points."""

    client_id: int
    table: Contingency
    distance: float
    points: int


class OfPoints(CommunityStrategy):
    """Centroids of data points as the only model, and how clients score them.

    The layout is that of `network=centroids`: k centroids, then the counts that weigh them.
    """

    of_points = True

    def __init__(self, setting: Setting, *, participation: Participation) -> None:
        super().__init__(setting, participation=participation, rule=weighted_mean)
        shape = setting.layout.shapes[0]
        self.k, self.length = shape[0], prod(shape[1:])
        self.agreement: dict[str, Any] = {}
        self.distance: float | None = None

    def publish(self, centroids: Centroids) -> Parameters:
        """Make centroids (k, d) the model that clients receive."""
        flat = np.concatenate([centroids.ravel(), np.zeros(self.k)]).astype(np.float32)
        self.communities.models[0] = flat
        return encode(flat)

    def aggregate_evaluate(
        self,
        server_round: int,
        results: EvaluateReplies,
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Sum the clients' tables: classes are called by the majority of all their points.

        Accuracy of a client is under that one map; without classes there is only a distance.
        """
        found = super().aggregate_evaluate(server_round, results, failures)
        said = _agreeing([each for _, reply in results if (each := self._scored(reply))])
        self.agreement, self.distance = {}, None
        self.accuracy = {}
        if not said:
            return found
        points = [each.points for each in said]
        self.distance = float(np.average([each.distance for each in said], weights=points))
        self.agreement = {"distance": self.distance}
        table = np.sum([each.table for each in said], axis=0)
        if table.shape[1] > 1:
            self.agreement |= vars(agreement(table))
            right = majority(table)
            rows = np.arange(self.k)
            self.accuracy = {
                each.client_id: float(each.table[rows, right].sum() / each.points) for each in said
            }
        return found

    def _scored(self, reply: EvaluateRes) -> Scored | None:
        """Return what a client says; None where it does not fit together."""
        packed, who = reply.metrics.get("table"), reply.metrics.get("client_id")
        size = reply.num_examples
        if not isinstance(packed, bytes) or not isinstance(who, int) or size < 1:
            return None
        if not packed or len(packed) % (8 * self.k) or not isfinite(reply.loss):
            return None
        table = np.frombuffer(packed, np.int64).reshape(self.k, -1)
        if (table < 0).any() or table.sum() != size:
            return None
        return Scored(who, table, reply.loss, size)

    def view(self, server_round: int) -> View | None:
        """Return None: points are clustered here, not clients."""
        return None


def _agreeing(said: Sequence[Scored]) -> list[Scored]:
    """Return those whose tables have as many classes as most tables have."""
    widths = Counter(each.table.shape[1] for each in said).most_common(1)
    return [each for each in said if each.table.shape[1] == widths[0][0]]
