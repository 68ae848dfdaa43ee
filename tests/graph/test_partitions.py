"""Partitions of a similarity, alone and under the test of their splits."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from fl_app.graph.communities import canonical
from fl_app.graph.contrast import cosines
from fl_app.graph.partitions import by_exemplars, by_merging, by_modularity
from fl_app.graph.significant import significant
from fl_app.testing.toy import DETECTION
from fl_app.types import Labels, Matrix

PARTITIONS: dict[str, Callable[[Matrix], Labels]] = {
    "by_modularity": by_modularity(0, how=DETECTION),
    "by_exemplars": partial(by_exemplars, damping=0.5, preference=None, seed=0),
    "average": partial(by_merging, linkage="average", resolution=1.0),
    "complete": partial(by_merging, linkage="complete", resolution=1.0),
    "single": partial(by_merging, linkage="single", resolution=1.0),
}


def _cosine(groups: int, seed: int, clients: int = 24) -> Matrix:
    """Return cosines (n, n) of noisy updates of equal groups, with a common drift."""
    draw = np.random.default_rng(seed)
    noise, signal, drift = (draw.normal(size=(rows, 400)) for rows in (clients, groups, 1))
    if groups > 1:
        noise = noise + 1.5 * signal[np.arange(clients) % groups]
    updates = noise + 2 * drift
    return cosines(updates @ updates.T)


@pytest.mark.parametrize("look", [None, 3])
@pytest.mark.parametrize("name", list(PARTITIONS))
def test_every_partition_finds_planted_groups_and_nothing_in_noise(
    name: str, look: int | None
) -> None:
    for seed in range(3):
        assert significant(_cosine(1, seed), PARTITIONS[name], look=look).max() == 0
        labels = significant(_cosine(3, seed), PARTITIONS[name], look=look)
        assert adjusted_rand_score(np.arange(24) % 3, labels) == 1.0


@pytest.mark.parametrize("name", list(PARTITIONS))
def test_every_partition_answers_few_clients_and_equal_ones(name: str) -> None:
    for clients in (1, 2, 3, 6):
        labels = PARTITIONS[name](np.ones((clients, clients)) - np.eye(clients))
        assert labels.shape == (clients,)
        assert labels.max() == 0


def test_the_tree_is_cut_at_the_largest_modularity() -> None:
    # two pairs: w = 4 with the diagonal left out, each pair has w_c = 2 and d_c = 2
    pairs = np.kron(np.eye(2), np.ones((2, 2))) - np.eye(4)
    assert by_merging(pairs, linkage="average", resolution=1.0).tolist() == [0, 0, 1, 1]
    # 2 (2/4 - 0 (2/4)^2) = 1 with two communities as with one: the coarsest of equals
    assert by_merging(pairs, linkage="average", resolution=1e-15).tolist() == [0, 0, 0, 0]


def _modularity(similarity: Matrix, labels: Labels, resolution: float) -> float:
    """Return the modularity by its definition, pair by pair."""
    total, degrees = similarity.sum(), similarity.sum(axis=1)
    same = labels[:, None] == labels
    expected = np.outer(degrees, degrees) / total
    return float(((similarity - resolution * expected) * same).sum() / total)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 1000),
    clients=st.integers(3, 9),
    resolution=st.sampled_from([0.7, 1.0, 2.0]),
)
def test_no_level_of_the_tree_has_a_larger_modularity(
    seed: int, clients: int, resolution: float
) -> None:
    from scipy.cluster import hierarchy

    upper = np.triu(np.random.default_rng(seed).uniform(size=(clients, clients)), 1)
    similarity, linkage = upper + upper.T, "average"
    found = by_merging(similarity, linkage=linkage, resolution=resolution)
    merges = hierarchy.linkage(1 - upper[np.triu_indices(clients, 1)], linkage)
    levels = hierarchy.cut_tree(merges).T
    best = max(_modularity(similarity, level, resolution) for level in levels)
    assert _modularity(similarity, found, resolution) == pytest.approx(best)
    assert any((canonical(level) == found).all() for level in levels)
