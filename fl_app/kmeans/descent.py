"""The server's side of federated k-means: steps of the centroids, and convergence."""

from dataclasses import dataclass

import numpy as np

from fl_app.kmeans import weighting
from fl_app.kmeans.lloyd import Centroids


@dataclass
class Descent:
    """The centroids of this round and of the last round, (k, d) each, and their movement.

    `moved` is the Frobenius norm of the movement in this round, None in the first round of a
    start; `least` is the smallest movement so far, and `since` the number of rounds since then.
    """

    current: Centroids
    previous: Centroids
    moved: float | None = None
    least: float = float("inf")
    since: int = 0

    def begin(self, centroids: Centroids) -> None:
        """Start from initial centroids (k, d)."""
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
        """Move the centroids towards the weighted mean of the clients' centroids (m, k, d).

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
        """Whether the centroids have converged.

        That is: the smallest movement is at most `tolerance`, or there was no smaller movement
        for `patience` rounds.
        """
        return self.least <= tolerance or self.since >= patience
