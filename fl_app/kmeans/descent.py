"""The server's side of federated k-means: centroids on their way, and when they are there."""

from dataclasses import dataclass

import numpy as np

from fl_app.kmeans import weighting
from fl_app.kmeans.lloyd import Centroids


@dataclass
class Descent:
    """Centroids of this round and the last (k, d) each, and how far they still move.

    `moved` is the Frobenius norm of the round's movement, None where a start began, `least`
    the least so far, `since` the rounds since then.
    """

    current: Centroids
    previous: Centroids
    moved: float | None = None
    least: float = float("inf")
    since: int = 0

    def begin(self, centroids: Centroids) -> None:
        """Start from centroids (k, d) that the clients' own gave."""
        self.moved = None
        self.current = self.previous = centroids

    def follow(
        self,
        local: weighting.Local,
        weights: weighting.Shares,
        *,
        learning_rate: float,
        momentum: float,
    ) -> None:
        """Step towards the weighted mean of the clients' centroids (m, k, d).

        Holzer et al., 2023, algorithm 2.
        """
        mean = weighting.aggregate(local, weights)
        moved = weighting.step(
            self.current, self.previous, mean, learning_rate=learning_rate, momentum=momentum
        )
        self.previous, self.current = self.current, moved
        self.moved = float(np.linalg.norm(self.current - self.previous))
        self.since = 0 if self.moved < self.least else self.since + 1
        self.least = min(self.least, self.moved)

    def still(self, *, tolerance: float, patience: int) -> bool:
        """Whether a round moved by no more than `tolerance`, or `patience` by no less than ever."""
        return self.least <= tolerance or self.since >= patience
