"""How clients were rewarded in rounds with each other client: the interaction matrix of FedGWC."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from fl_app.types import Labels, Matrix, Weights


def _empty() -> Matrix:
    return np.zeros((0, 0))


@dataclass
class Interactions:
    """Mean rewards of clients in rounds with each other client, updated round by round."""

    clients: list[int] = field(default_factory=list)
    """The client of each row, in the order in which they came."""
    rewards: np.ndarray = field(default_factory=_empty)
    """Row k: the mean reward of client k in rounds with each other client (n, n)."""
    meetings: np.ndarray = field(default_factory=_empty)
    """The number of these rounds (n, n), with diagonal 0."""

    def rows_of(self, client_ids: Sequence[int]) -> Labels:
        """Return the rows (m,) of clients, which are added if they are new."""
        row = {client: place for place, client in enumerate(self.clients)}
        fresh = [client for client in client_ids if client not in row]
        if fresh:  # else nothing of (n, n) is copied
            row |= {client: place for place, client in enumerate(fresh, len(row))}
            self.clients += fresh
            grown = 0, len(fresh)
            self.rewards = np.pad(self.rewards, (grown, grown))
            self.meetings = np.pad(self.meetings, (grown, grown))
        return np.array([row[client] for client in client_ids], int)

    def meet(self, client_ids: Sequence[int], rewards: Weights, alpha: float | None) -> float:
        """Add the rewards (m,) of one round of different clients; return the mean squared change.

        `P_kj <- (1 - alpha) P_kj + alpha reward_k` for all pairs; the first reward is taken as it
        is. `alpha` None: `P_kj` is the mean of the rewards. Raises ValueError for fewer than two
        clients.
        """
        if len(client_ids) < 2:
            raise ValueError(f"at least two clients must meet, got {len(client_ids)}; give more")
        rows = self.rows_of(client_ids)
        pairs = np.ix_(rows, rows)
        self.meetings[pairs] += 1 - np.eye(len(rows))
        count = np.maximum(self.meetings[pairs], 1)
        weight = 1 / count if alpha is None else np.where(count == 1, 1.0, alpha)
        moved = weight * (rewards[:, None] - self.rewards[pairs])
        np.fill_diagonal(moved, 0.0)
        self.rewards[pairs] += moved
        return float((moved**2).sum() / (len(rows) * (len(rows) - 1)))

    def among(self, client_ids: Sequence[int]) -> tuple[Matrix, Matrix]:
        """Return the mean rewards of clients with each other (m, m), and who has met whom."""
        rows = self.rows_of(client_ids)
        pairs = np.ix_(rows, rows)
        return self.rewards[pairs], (self.meetings[pairs] > 0).astype(float)

    def forget(self, client_ids: Collection[int]) -> None:
        """Forget the rewards of clients."""
        rows = self.rows_of(list(client_ids))
        for matrix in (self.rewards, self.meetings):
            matrix[rows, :] = 0.0
            matrix[:, rows] = 0.0
