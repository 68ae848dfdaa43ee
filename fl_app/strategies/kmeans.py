"""Federated k-means: clients jointly cluster their data points.

Holzer et al., 2023, "Dynamically weighted federated k-means", algorithms 1 and 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from flwr.common import Parameters, Scalar
from flwr.server.client_manager import ClientManager
from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveFloat

from fl_app.ingress.rejection import RejectionError
from fl_app.kmeans import weighting as rules
from fl_app.kmeans.descent import Descent
from fl_app.kmeans.kfed import initial_centroids, pooled, start_seed
from fl_app.kmeans.lloyd import Centroids
from fl_app.kmeans.movement import bounded
from fl_app.kmeans.scores import improvement
from fl_app.strategies.centroid_strategy import CentroidStrategy
from fl_app.strategies.cohort import Aggregated, FitFailures, FitInstructions, FitReplies, Offer
from fl_app.strategies.model_evaluation import EvaluateFailures, EvaluateReplies
from fl_app.strategies.outcome import Outcome
from fl_app.strategies.roster import roster
from fl_app.strategies.server_context import ServerContext
from fl_app.strategies.state import Communities, MethodState
from fl_app.types import Participation, PositiveInt, Vector, Vectors
from fl_app.used_with import UsedWith, When

ROUNDING = 1e-6
"""Relative error of a count that is sent as float32."""
PATHS = 2
"""Up to this dimension, the records contain the centroids of each round, for a figure."""
MOVES = When("only_start", (False,), otherwise=When("init", ("random",)))
"""Else no round moves the centroids: the first one finds them from the clients' own."""


def _known(weighting: str) -> str:
    rules.by_name(weighting, cap=1)
    return weighting


Weighting = Annotated[str, AfterValidator(_known)]
Momentum = Annotated[float, Field(ge=0, lt=1)]


@dataclass
class Best:
    """The start with the smallest distances, and its scores."""

    distance: float
    """The mean distance of a point to its centroid."""
    centroids: Centroids
    """The final centroids of the start (k, d)."""
    agreement: dict[str, Any] = field(default_factory=dict)
    """Scores of clusters and classes, by name."""
    accuracy: dict[int, float] = field(default_factory=dict)
    """The accuracy of each measured client."""
    distances: dict[int, float] = field(default_factory=dict)
    """The mean distance that each client told."""


@dataclass(kw_only=True)
class KMeansState(MethodState):
    """The state of federated k-means in a checkpoint."""

    descent: Descent
    """The centroids of this round and of the last round, and their movement."""
    begun: int = 0
    """The first round of the current start; skipped rounds begin none."""
    number: int = 0
    """The number of the current start; 0: none has begun."""
    over: bool = True
    """Whether the current start has ended, or none has begun."""
    best: Best | None = None
    """The best start so far; None: no start has been scored."""


class KMeans(CentroidStrategy):
    """Clients run `steps` iterations of Lloyd's algorithm; the server moves towards their mean.

    `weighting=dynamic` weights a client's centroid by its points nearest to the incoming centroid
    (DWF); `capped` does the same, but limits a client to `engine.sample_cap` times the median
    client, also in the scores; `equal` uses equal weights (EWF); another name is a function of
    the counts (m, k).
    With `init=kfed` and `kmeans++`, all clients send local centroids in the first round of a
    start; `random` starts from those of the network. A start ends when the smallest movement of
    the centroids is at most `tolerance`, or after `patience` rounds without a smaller movement.
    With `n_init` above 1, that many starts share the rounds, one after another; after each start
    all clients score its centroids (RequestScore in the paper), and the best centroids are used, by
    a trimmed mean of the distances: see `fl_app.kmeans.scores.improvement`.
    With `records.evaluate_at_most`, the same sample of the clients scores all starts.
    `only_start` ends the run after the first round; with `init=kfed` this is k-FED.
    """

    state: KMeansState
    used_with: ClassVar[UsedWith] = {
        "patience": When("only_start", (False,)),
        **dict.fromkeys(("weighting", "steps", "learning_rate", "momentum", "tolerance"), MOVES),
    }

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: Participation,
        weighting: Weighting,
        init: Literal["kfed", "kmeans++", "random"],
        steps: PositiveInt,
        learning_rate: PositiveFloat,
        momentum: Momentum,
        tolerance: NonNegativeFloat,
        patience: PositiveInt,
        n_init: PositiveInt,
        only_start: bool,
    ) -> None:
        super().__init__(context, participation=participation, weighting=weighting)
        self.weigh = rules.by_name(weighting, cap=context.sample_cap)
        self.init, self.steps = init, steps
        self.learning_rate, self.momentum = learning_rate, momentum
        self.tolerance, self.patience = tolerance, patience
        self.n_init, self.only_start = n_init, only_start
        self.cohort.check = self._check_counts
        self._new: Centroids | None = None
        first = self._centroids(context.initial[None, :])[0][0]
        self.state = KMeansState(
            communities=Communities.of(context.initial), descent=Descent(first, first)
        )

    def outcome(self, server_round: int) -> Outcome:
        """Add the movement of the round, and the scores of clusters and classes.

        Clients evaluate at the end of each start.
        """
        descent, measured = self.state.descent, self.evaluation.scores.agreement
        notes = {"movement": descent.moved, "start": self.state.number, **measured}
        if self.length <= PATHS:
            notes["centroids"] = descent.current.tolist()
        found = super().outcome(server_round)
        measures = self.state.over and self.state.number > 0
        return replace(found, notes=notes, measures=measures, finished=self._finished())

    def _finished(self) -> str:
        """Return why the last start has ended by itself; empty if it has not."""
        if not self.state.over or self.state.number < self.n_init:
            return ""
        if self.only_start:
            return "strategy.only_start=true ends a run after the first round"
        descent = self.state.descent
        told = f"their smallest movement was {descent.least:.3g}"
        if descent.since:
            told += f", {descent.since} rounds before"
        return f"the centroids converged: {told}" if self._still() else ""

    @property
    def _begins(self) -> bool:
        """Whether the next round that is not skipped begins a start."""
        return self.state.over and self.state.number < self.n_init

    @property
    def _asks(self) -> bool:
        """Whether the clients send local centroids in this round."""
        return self.init != "random" and self._begins

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> FitInstructions:
        """Sample from all clients; select all in the first round of a start, except for k-FED."""
        present = list(roster(client_manager).proxies())
        if self.only_start or not self._asks:
            present = self.sampler.draw(server_round, present, "all")
        task = {"steps": self.steps, "tolerance": self.tolerance, "own": self._asks}
        self._new = self._new_centroids(server_round)
        return self.instruct(server_round, present, client_manager, task)

    def offer(self, server_round: int, client_ids: Sequence[int]) -> Offer:
        """Return the centroids for all clients: new ones if they begin a random start."""
        models, rows, compared = super().offer(server_round, client_ids)
        return models if self._new is None else self.model_of(self._new)[None, :], rows, compared

    def _new_centroids(self, server_round: int) -> Centroids | None:
        """Return the centroids (k, d) of a further random start; None: none begins.

        They replace the others once a round with them succeeds.
        """
        fresh = self.context.fresh if self._begins and self.state.number else None
        if self.init != "random" or fresh is None:
            return None
        found: Centroids = self._centroids(fresh(server_round)[None, :])[0][0]
        return found

    def aggregate_fit(
        self, server_round: int, results: FitReplies, failures: FitFailures
    ) -> Aggregated:
        """Start from the clients' local centroids, or move towards the mean of their replies."""
        replies = self.receive(server_round, results, failures)
        centroids, counts = self._centroids(replies.models)
        asks = self._asks
        if self._begins:
            self._begin(server_round)
        if asks:
            self.state.descent.begin(self._first(centroids, counts))
        else:
            descent, multiple = self.state.descent, self.context.clip_update
            if multiple is not None:
                centroids = bounded(centroids, counts, descent.current, multiple=multiple)
            descent.follow(
                centroids, self.weigh(counts),
                learning_rate=self.learning_rate, momentum=self.momentum,
            )  # fmt: skip
        self.state.over = self._ends(server_round)
        return self.publish(self.state.descent.current), {"train_loss": replies.loss}

    def _check_counts(self, model: Vector, samples: int) -> None:
        """Raise RejectionError for negative counts, or a sum above the number of samples."""
        counts = model[self.k * self.length :].astype(np.float64)
        if (counts < 0).any():
            raise RejectionError("counts of points", "at least 0", f"{counts.min():g}")
        if counts.sum() > samples * (1 + ROUNDING):
            rule = f"at most the {samples} samples in sum"
            raise RejectionError("counts of points", rule, f"{counts.sum():g}")

    def _centroids(self, models: Vectors) -> tuple[np.ndarray, np.ndarray]:
        """Return the centroids (m, k, d) and counts (m, k) in models (m, k * d + k)."""
        size = self.k * self.length
        centroids = models[:, :size].reshape(-1, self.k, self.length).astype(np.float64)
        return centroids, models[:, size:].astype(np.float64)

    def _first(self, centroids: np.ndarray, counts: np.ndarray) -> Centroids:
        """Return the initial centroids (k, d) from the clients' local ones.

        If no client has points, these are the current centroids.
        """
        if not counts.any():
            return self.state.descent.current
        own = [c[n > 0] for c, n in zip(centroids, counts, strict=True) if n.any()]
        seed = start_seed(self.context.seed, self.state.begun)
        if self.init == "kfed":
            return initial_centroids(own, self.k, seed=seed)
        from sklearn.cluster import kmeans_plusplus

        pool, weights = pooled(own, [n[n > 0] for n in counts if n.any()])
        short = np.resize(np.arange(len(pool)), max(len(pool), self.k))
        found: Centroids = kmeans_plusplus(
            pool[short], self.k, sample_weight=weights[short], random_state=seed
        )[0]
        return found

    def _ends(self, server_round: int) -> bool:
        """Whether this start ends: converged, its share of the rounds used, or `only_start`."""
        last = self.context.rounds * self.state.number // self.n_init
        return self._still() or server_round >= last or self.only_start

    def _still(self) -> bool:
        return self.state.descent.still(tolerance=self.tolerance, patience=self.patience)

    def _begin(self, server_round: int) -> None:
        """Begin the next start."""
        state, new = self.state, self._new_centroids(server_round)
        current = state.descent.current if new is None else new
        state.begun, state.number, state.over = server_round, state.number + 1, False
        state.descent = Descent(current, current)

    def to_evaluate(self, server_round: int, client_ids: Sequence[int]) -> list[int]:
        """Return the same clients after each start, so that their distances can be compared."""
        compares = self._scores_a_start(server_round)
        return super().to_evaluate(0 if compares else server_round, client_ids)

    def _scores_a_start(self, server_round: int) -> bool:
        """Whether the scores after this round are those of one of several starts."""
        ended = server_round >= self.context.rounds  # which a skipped round can be too
        return self.n_init > 1 and (ended or (self.state.over and self.state.number > 0))

    def aggregate_evaluate(
        self,
        server_round: int,
        results: EvaluateReplies,
        failures: EvaluateFailures,
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Score the centroids; at the end of a start, store the best ones so far."""
        found = super().aggregate_evaluate(server_round, results, failures)
        state, scores = self.state, self.evaluation.scores
        if not self._scores_a_start(server_round):
            return found
        distance = scores.agreement.get("distance")
        if distance is not None and self._is_best(distance):
            told = {each.client_id: each.loss for each in scores.answers if each.samples}
            now = state.descent.current
            state.best = Best(distance, now, scores.agreement, scores.accuracy, told)
        ended = server_round >= self.context.rounds or self._finished()
        if ended and state.best is not None:
            state.descent.current = state.descent.previous = state.best.centroids
            scores.agreement, scores.accuracy = state.best.agreement, state.best.accuracy
            self.publish(state.best.centroids)
        return found

    def _is_best(self, distance: float) -> bool:
        """Whether the centroids with this mean distance are better than those of other starts."""
        best = self.state.best
        if best is None:
            return True
        answers = self.evaluation.scores.answers
        both = [each for each in answers if each.samples and each.client_id in best.distances]
        if not both:
            return distance < best.distance
        before = np.array([best.distances[each.client_id] for each in both])
        now, points = np.array([(each.loss, each.samples) for each in both], float).T
        return improvement(before, now, points, cap=self.context.sample_cap) > 0
