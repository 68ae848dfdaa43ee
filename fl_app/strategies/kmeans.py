"""Federated k-means: clients cluster their data points together, not their models.

Holzer et al., 2023, "Dynamically weighted federated k-means", algorithms 1 and 2.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from flwr.common import EvaluateRes, FitIns, FitRes, Parameters, Scalar
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from hydra.utils import get_object
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from sklearn.cluster import kmeans_plusplus

from fl_app.aggregation import weighted_mean
from fl_app.kmeans import weighting as rules
from fl_app.kmeans.kfed import initial_centroids
from fl_app.kmeans.lloyd import Centroids
from fl_app.kmeans.scores import agreement
from fl_app.rng import generator
from fl_app.strategies.base import CommunityStrategy, EvaluateReplies, FitReplies, roster
from fl_app.strategies.replies import Replies, encode
from fl_app.strategies.setting import Setting, View
from fl_app.types import Participation, Vectors

WEIGHTINGS = {"dynamic": lambda counts: counts, "equal": rules.equal}
Momentum = Annotated[float, Field(ge=0, lt=1)]


class KMeans(CommunityStrategy):
    """Clients take `steps` of Lloyd's algorithm, the server a step towards their mean.

    `weighting=dynamic` weighs a client's centroid by its points nearest to the one that came
    in (DWF), `equal` does not (EWF); another name is that of a function of the counts (m, k).
    `init=kfed` and `kmeans++` take the first round to ask all clients for centroids of their
    own; `random` starts from those of the network. Training ends after `patience` rounds in
    which the centroids moved no less than `tolerance` below the least so far. With `n_init`
    above 1, that many starts share the rounds, one after another, and the one whose clients
    were nearest to their centroids in its last round is kept. `only_start` ends after the
    first round: with `init=kfed` that is k-FED.
    """

    of_points = True

    def __init__(
        self,
        setting: Setting,
        *,
        participation: Participation,
        weighting: str = "dynamic",
        init: Literal["kfed", "kmeans++", "random"] = "kfed",
        steps: PositiveInt = 5,
        learning_rate: PositiveFloat = 0.01,
        momentum: Momentum = 0.8,
        tolerance: NonNegativeFloat = 1e-8,
        patience: PositiveInt = 300,
        n_init: PositiveInt = 1,
        only_start: bool = False,
    ) -> None:
        super().__init__(setting, participation=participation, rule=weighted_mean)
        self.weigh = WEIGHTINGS.get(weighting) or get_object(weighting)
        self.init, self.steps = init, steps
        self.learning_rate, self.momentum = learning_rate, momentum
        self.tolerance, self.patience = tolerance, patience
        self.n_init, self.only_start = n_init, only_start
        self.k, self.length = setting.layout.shapes[0]
        self.current = self._centroids(setting.initial[None, :])[0][0]
        self.previous = self.current
        self.begun = 1
        self.least, self.since = float("inf"), 0
        self.best: tuple[float, Centroids] | None = None
        self.agreement: dict[str, Any] = {}
        self.moved: float | None = None

    @property
    def notes(self) -> Mapping[str, Any]:
        """Movement of the round, and what was measured of clusters and classes."""
        return {"movement": self.moved, **self.agreement}

    @property
    def finished(self) -> bool:
        """Whether the centroids stand still, and no start is left."""
        if self.only_start:
            return self.moved is not None
        return self.since >= self.patience and self._start_number() >= self.n_init

    def _start_number(self) -> int:
        return min(self.n_init, 1 + (self.begun - 1) * self.n_init // self.setting.rounds)

    def _asks(self, server_round: int) -> bool:
        """Whether this is the round in which clients give centroids of their own."""
        return self.init != "random" and server_round == self.begun

    def task(self, server_round: int) -> Mapping[str, Scalar]:
        """Ask for local steps, or for the clients' own centroids."""
        own = self._asks(server_round)
        return {"steps": self.steps, "tolerance": self.tolerance, "own": own}

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Sample among all clients; all are asked in the round that starts."""
        present = list(roster(client_manager).proxies())
        if not self._asks(server_round):
            present = self.sample(server_round, present, "all")
        return self.instruct(server_round, present, client_manager)

    def aggregate_fit(
        self,
        server_round: int,
        results: FitReplies,
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters, dict[str, Scalar]]:
        """Start from the clients' own centroids, or step towards the mean of their moved ones."""
        replies = self.receive(server_round, results)
        centroids, counts = self._centroids(replies.models)
        before = self.current
        if self._asks(server_round):
            self.current = self.previous = self._first(centroids, counts)
        else:
            mean = rules.aggregate(centroids, self.weigh(counts))
            moved = rules.step(
                self.current, self.previous, mean,
                learning_rate=self.learning_rate, momentum=self.momentum,
            )  # fmt: skip
            self.previous, self.current = self.current, moved
        self._watch(server_round, float(np.linalg.norm(self.current - before)), replies)
        flat = np.concatenate([self.current.ravel(), np.zeros(self.k)]).astype(np.float32)
        self.communities.models[0] = flat
        return encode(flat), {"train_loss": replies.loss}

    def _centroids(self, models: Vectors) -> tuple[np.ndarray, np.ndarray]:
        """Return the centroids (m, k, d) and counts (m, k) in models (m, k * d + k)."""
        size = self.k * self.length
        centroids = models[:, :size].reshape(-1, self.k, self.length).astype(np.float64)
        return centroids, models[:, size:].astype(np.float64)

    def _first(self, centroids: np.ndarray, counts: np.ndarray) -> Centroids:
        """Return the first centroids (k, d) from the clients' own."""
        own = [c[n > 0] for c, n in zip(centroids, counts, strict=True)]
        draw = generator(self.setting.seed, purpose="start", round=self.begun)
        seed = int(draw.integers(2**31))
        if self.init == "kfed":
            return initial_centroids(own, self.k, seed=seed)
        pool, weights = np.concatenate(own), counts[counts > 0]
        short = np.resize(np.arange(len(pool)), max(len(pool), self.k))
        found: Centroids = kmeans_plusplus(
            pool[short], self.k, sample_weight=weights[short], random_state=seed
        )[0]
        return found

    def _watch(self, server_round: int, moved: float, replies: Replies) -> None:
        """Note how far the centroids moved, and begin the next start where one is due."""
        self.moved = moved
        if moved < self.least - self.tolerance:
            self.least, self.since = moved, 0
        else:
            self.since += 1
        share = self.setting.rounds // self.n_init
        over = server_round - self.begun + 1 >= share or self.since >= self.patience
        if self.n_init == 1 or not over:
            return
        if self.best is None or replies.loss < self.best[0]:
            self.best = replies.loss, self.current
        if self._start_number() < self.n_init and server_round < self.setting.rounds:
            self.begun, self.least, self.since = server_round + 1, float("inf"), 0
            fresh = self.setting.fresh
            if self.init == "random" and fresh is not None:
                self.current = self.previous = self._centroids(fresh(server_round)[None, :])[0][0]
        else:
            self.current = self.previous = self.best[1]

    def aggregate_evaluate(
        self,
        server_round: int,
        results: EvaluateReplies,
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Sum the clients' tables: classes are called by the majority of all their points."""
        tables, distances, samples = [], [], []
        for _, reply in results:
            packed = reply.metrics.get("table")
            if isinstance(packed, bytes) and len(packed) % (8 * self.k) == 0:
                tables.append(np.frombuffer(packed, np.int64).reshape(self.k, -1))
                distances.append(reply.loss)
                samples.append(reply.num_examples)
        self.agreement = {}
        if tables:
            distance = float(np.average(distances, weights=samples))
            self.agreement = {"distance": distance, **vars(agreement(np.sum(tables, axis=0)))}
        return super().aggregate_evaluate(server_round, results, failures)

    def view(self, server_round: int) -> View | None:
        """Return None: points are clustered here, not clients."""
        return None

    def checkpoint(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Add the centroids of this round and the last, and what is watched."""
        arrays, state = super().checkpoint()
        arrays |= {"current": self.current, "previous": self.previous}
        if self.best is not None:
            arrays["best"] = self.best[1]
        least = None if np.isinf(self.least) else self.least
        watched: Sequence[Any] = [self.begun, least, self.since, self.best and self.best[0]]
        return arrays, state | {"watched": watched}

    def restore(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Take up what `checkpoint` returned."""
        super().restore(arrays, state)
        self.current, self.previous = np.array(arrays["current"]), np.array(arrays["previous"])
        self.begun, least, self.since, loss = state["watched"]
        self.least = float("inf") if least is None else least
        self.best = None if loss is None else (loss, np.array(arrays["best"]))
