"""Federated k-means on arrays, without messages, for studies of the algorithm.

A run on any engine draws the same random numbers and gives the same centroids, up to the float32
precision of messages.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fl_app.kmeans.descent import Descent
from fl_app.kmeans.kfed import initial_centroids, local_centroids, start_seed
from fl_app.kmeans.lloyd import Centroids, LastAssignment, Points, local_update
from fl_app.kmeans.weighting import Shares
from fl_app.rng import cohort_size, generator, torch_seed


@dataclass(frozen=True, kw_only=True)
class DescentSettings:
    """Settings of the algorithm, as in `strategy=kmeans`."""

    k: int
    seed: int
    weigh: Callable[[Shares], Shares]
    rounds: int
    participation: float
    steps: int
    learning_rate: float
    momentum: float
    tolerance: float
    patience: int


def start(clients: Sequence[Points], *, k: int, seed: int, participation: float) -> Centroids:
    """Return k-FED's centroids (k, d) of the points (p_i, d) of the sampled clients."""
    own = [
        local_centroids(clients[client], k, seed=local_seed(seed, client), client=0)
        for client in sample(len(clients), participation, seed=seed, server_round=1)
    ]
    return initial_centroids(own, k, seed=start_seed(seed, 1))


def sample(clients: int, participation: float, *, seed: int, server_round: int) -> list[int]:
    """Return the clients of a round, drawn as by the engines."""
    size = cohort_size(participation, clients)
    draw = generator(seed, purpose="sample all", round=server_round)
    return sorted(draw.choice(clients, size, replace=False).tolist())


def local_seed(seed: int, client: int) -> int:
    """Return the seed of a client's local centroids in the first round, as in the engines."""
    return torch_seed(seed, purpose="batches", round=1, client=client) % 2**31


def descend(
    clients: Sequence[Points], first: Centroids, settings: DescentSettings
) -> Iterator[Descent]:
    """Yield the state after each round from centroids (k, d), until convergence.

    The first yielded round is round 2; k-FED runs in round 1.
    """
    state = Descent(first, first)
    memories = [LastAssignment() for _ in clients]
    for server_round in range(2, settings.rounds + 1):
        cohort = sample(
            len(clients), settings.participation, seed=settings.seed, server_round=server_round
        )
        local, counts = [], []
        for client in cohort:
            moved, weights = local_update(
                clients[client], state.current, steps=settings.steps, tolerance=settings.tolerance,
                memory=memories[client],
            )  # fmt: skip
            local.append(moved)
            counts.append(weights)
        state.follow(
            np.stack(local), settings.weigh(np.stack(counts).astype(float)),
            learning_rate=settings.learning_rate, momentum=settings.momentum,
        )  # fmt: skip
        yield state
        if state.still(tolerance=settings.tolerance, patience=settings.patience):
            return
