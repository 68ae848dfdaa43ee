"""Common base of federated and central k-means: centroids are the only model."""

from collections import Counter
from math import prod

import numpy as np
from flwr.common import Parameters, Scalar

from fl_app.aggregation import weighted_mean
from fl_app.ingress.evaluations import EvaluationAnswer
from fl_app.ingress.rejection import RejectionError, shown
from fl_app.kmeans.lloyd import Centroids
from fl_app.kmeans.scores import Scored, pooled
from fl_app.kmeans.weighting import CAPPED
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.encoding import encode
from fl_app.strategies.graph_settings import NO_SUSPECTS
from fl_app.strategies.model_evaluation import EvaluateFailures, EvaluateReplies
from fl_app.strategies.outcome import View
from fl_app.strategies.replies import FAR
from fl_app.strategies.server_context import ServerContext
from fl_app.types import Participation, Vector

MOST_CLASSES = 100_000
"""Largest number of classes in a client's table."""


def score_cap(weighting: object, sample_cap: float) -> float:
    """Return the limit of a client's points in scores: that of its centroids, if they have one."""
    return sample_cap if weighting == CAPPED else np.inf


class CentroidStrategy(CommunityStrategy):
    """Centroids of data points as the only model, and their scores by the clients.

    The layout is that of `network=centroids`: k centroids, then their counts of points.
    """

    model_kind = "centroids"
    graph_use = NO_SUSPECTS
    screens_direction = True
    clusters_points = True
    clips_updates = False
    reads_scores = True

    def __init__(
        self, context: ServerContext, *, participation: Participation, weighting: str = CAPPED
    ) -> None:
        super().__init__(context, participation=participation, rule=weighted_mean)
        self.score_cap = score_cap(weighting, context.sample_cap)
        shape = context.layout.shapes[0]
        self.k, self.length = shape[0], prod(shape[1:])
        self.evaluation.check = self._check_score

    def publish(self, centroids: Centroids) -> Parameters:
        """Set the model that clients receive to centroids (k, d)."""
        self.state.communities.models[0] = model = self.model_of(centroids)
        return encode(model)

    def model_of(self, centroids: Centroids) -> Vector:
        """Return the model (k * d + k,) of centroids (k, d), with counts of 0."""
        model: Vector = np.concatenate([centroids.ravel(), np.zeros(self.k)]).astype(np.float32)
        return model

    def aggregate_evaluate(
        self,
        server_round: int,
        results: EvaluateReplies,
        failures: EvaluateFailures,
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Sum the clients' tables: each cluster gets the majority class of all its points.

        The accuracy of each client uses this map. Without classes there is only a distance.
        """
        super().aggregate_evaluate(server_round, results, failures)
        scored, scores = self._agreeing(), self.evaluation.scores
        scores.accuracy = {}
        if scored:
            scores.agreement, scores.accuracy = pooled(scored, cap=self.score_cap, far=FAR)
        return None, scores.metrics

    def _check_score(self, answer: EvaluationAnswer) -> None:
        """Reject a table that breaks a rule; ignore a client without points."""
        if answer.samples:
            self._scored(answer)

    def _scored(self, answer: EvaluationAnswer) -> Scored:
        """Return the score of a client; raises RejectionError if a value breaks a rule."""
        points, packed = answer.samples, answer.table
        if points > answer.introduced:
            raise RejectionError("num_examples", f"at most {answer.introduced}", str(points))
        if not packed or len(packed) % (8 * self.k) or len(packed) > 8 * self.k * MOST_CLASSES:
            raise RejectionError("table", f"{self.k} rows of 64-bit integers", shown(packed))
        table = np.frombuffer(packed, np.int64).reshape(self.k, -1)
        if self.context.classes not in (None, table.shape[1]):
            rule = f"of {self.context.classes} classes, as the data have"
            raise RejectionError("table", rule, str(table.shape[1]))
        # entries are bounded before the sum, so that it cannot overflow
        if (table < 0).any() or (table > points).any() or table.sum(dtype=float) != points:
            raise RejectionError("table", f"counts with the sum {points}", "others")
        if answer.loss < 0:
            raise RejectionError("loss", "at least 0", shown(answer.loss))
        return Scored(answer.client_id, table, answer.loss, points)

    def _agreeing(self) -> list[Scored]:
        """Return the scores whose tables have the number of classes that most tables have.

        Without a number that more than half of them have, nobody is rejected, and there is none.
        """
        scored = [
            self._scored(answer) for answer in self.evaluation.scores.answers if answer.samples
        ]
        widths = Counter(each.table.shape[1] for each in scored)
        width = next((width for width, tables in widths.items() if 2 * tables > len(scored)), None)
        if width is None:
            return []
        for each in scored:
            if each.table.shape[1] != width:
                error = RejectionError(
                    "table", f"of {width} classes, as most tables are", str(each.table.shape[1])
                )
                self.evaluation.reject(each.client_id, error)
                self.evaluation.scores.remove(each.client_id)
        return [each for each in scored if each.table.shape[1] == width]

    def view(self, server_round: int) -> View | None:
        """Return None, since points are clustered and not clients."""
        return None
