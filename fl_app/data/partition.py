"""Partitions of samples among clients, as lists of indices."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fl_app.rng import generator


def iid(
    labels: np.ndarray, clients: int, draw: np.random.Generator, *, samples: int | None
) -> list[np.ndarray]:
    """Split shuffled samples into `clients` disjoint lists of `samples` each.

    None: as many as possible. Raises ValueError if there are too few samples.
    """
    each = samples_each(len(labels), clients, samples)
    order = draw.permutation(len(labels))
    return [order[client * each : (client + 1) * each] for client in range(clients)]


class WithReplacement(Sequence[np.ndarray]):
    """Lists of `samples` each, drawn with replacement on access, for any number of clients.

    A client's list depends only on (seed, purpose, client) and needs no memory before.
    """

    def __init__(
        self, available: int, clients: int, samples: int | None, *, seed: int, purpose: str
    ) -> None:
        if samples is None:
            raise ValueError(
                "population.draw=replacement needs population.train_samples and .test_samples, "
                "got null; give both"
            )
        self.available, self.clients, self.samples = available, clients, samples
        self.seed, self.purpose = seed, purpose

    def __len__(self) -> int:
        return self.clients

    def __getitem__(self, client: Any) -> Any:
        draw = generator(self.seed, purpose=self.purpose, client=range(self.clients)[client])
        return draw.integers(0, self.available, self.samples)


def by_size(
    labels: np.ndarray, sizes: Sequence[int], draw: np.random.Generator
) -> list[np.ndarray]:
    """Split shuffled samples into disjoint lists of the given sizes, whose sum must fit."""
    if sum(sizes) > len(labels):
        raise ValueError(
            f"the sum of the sizes must be at most {len(labels)}, the number of samples, got "
            f"{sum(sizes)}; lower population.train_samples"
        )
    order = draw.permutation(len(labels))
    return np.split(order[: sum(sizes)], np.cumsum(sizes)[:-1])


def by_counts(
    labels: np.ndarray, counts: np.ndarray, draw: np.random.Generator
) -> list[np.ndarray]:
    """Split samples into disjoint lists with exactly `counts` (n, c) of each class.

    Raises ValueError for the first class with too few samples.
    """
    piles = [draw.permutation(np.flatnonzero(labels == c)) for c in range(counts.shape[1])]
    for c, (pile, needed) in enumerate(zip(piles, counts.sum(axis=0), strict=True)):
        if needed > len(pile):
            raise ValueError(
                f"the clients need {needed} samples of class {c}, the data set has {len(pile)}; "
                "lower population.clients or the samples per client"
            )
    ends = counts.cumsum(axis=0)
    lists = [
        np.concatenate(
            [pile[ends[i, c] - counts[i, c] : ends[i, c]] for c, pile in enumerate(piles)]
        )
        for i in range(len(counts))
    ]
    return [draw.permutation(each) for each in lists]


def by_distribution(
    labels: np.ndarray,
    distributions: np.ndarray,
    draw: np.random.Generator,
    *,
    samples: int | None,
) -> list[np.ndarray]:
    """Split samples into disjoint lists that follow class distributions (n, c), row by row.

    If a class has no samples left, a client draws from the other classes in proportion to its own
    distribution, and if these are empty too, uniformly from the remaining classes. All lists have
    the same size.
    """
    each = samples_each(len(labels), len(distributions), samples)
    piles = [
        list(draw.permutation(np.flatnonzero(labels == c))) for c in range(distributions.shape[1])
    ]
    taken: list[list[int]] = [[] for _ in distributions]
    wishes = [draw.choice(len(piles), each, p=row) for row in distributions]
    for turn in range(each):
        for client, wish in enumerate(wishes):
            pile = wish[turn]
            if not piles[pile]:
                pile = _substitute(piles, distributions[client], draw)
            taken[client].append(piles[pile].pop())
    return [np.array(indices, int) for indices in taken]


def _substitute(
    piles: Sequence[Sequence[int]], distribution: np.ndarray, draw: np.random.Generator
) -> int:
    left = np.array([len(pile) > 0 for pile in piles], float)
    chances = distribution * left
    chances = chances if chances.sum() > 0 else left
    return int(draw.choice(len(piles), p=chances / chances.sum()))


def samples_each(available: int, clients: int, samples: int | None) -> int:
    """Return the number of samples per client; raises ValueError if there are too few."""
    each = available // clients if samples is None else samples
    if each < 1 or each * clients > available:
        raise ValueError(
            f"{clients} clients of {max(each, 1)} samples need {clients * max(each, 1)} samples, "
            f"the data set has {available}; lower population.clients or the samples per client"
        )
    return each
