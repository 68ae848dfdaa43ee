"""Spectral clustering: planted blocks, and when there is only one part."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_info, threadpool_limits

from fl_app.graph.spectral import leading_vectors, spectral_parts
from fl_app.kmeans import central

SETTINGS = {"most": 4, "below": 0.2, "seed": 0}


def _blocks(groups: np.ndarray, apart: float) -> np.ndarray:
    found = np.where(groups[:, None] == groups, 0.95, apart)
    np.fill_diagonal(found, 1.0)
    return found


@pytest.mark.parametrize("count", [2, 3])
def test_blocks_are_found_with_their_number(count: int) -> None:
    groups = np.arange(12) % count
    labels = spectral_parts(_blocks(groups, 0.2), **SETTINGS)
    np.testing.assert_array_equal(labels, groups)


def test_nothing_is_split_without_differences_or_clients() -> None:
    for n in (1, 2, 5):
        assert not spectral_parts(np.ones((n, n)), **SETTINGS).any()


def test_noise_is_not_split_below_a_strict_index_but_below_that_of_the_paper() -> None:
    draw = np.random.default_rng(0)
    points = draw.normal(0.7, 0.05, (20, 18))
    squares = ((points[:, None] - points) ** 2).mean(axis=2)
    affinity = np.exp(-10 * squares)
    assert not spectral_parts(affinity, **SETTINGS).any()
    assert spectral_parts(affinity, **{**SETTINGS, "below": 1.0}).any()


def test_the_first_vector_is_that_of_the_row_sums() -> None:
    affinity = _blocks(np.array([0, 0, 1, 1, 1]), 0.5)
    vectors = leading_vectors(affinity, 2)
    first = np.sqrt(affinity.sum(axis=1) / affinity.sum())
    np.testing.assert_allclose(np.abs(vectors[:, 0]), first)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(2), atol=1e-12)


def test_kmeans_runs_in_one_thread_as_the_order_of_its_sums_else_varies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fit, found = KMeans.fit, set[int]()

    def watched(self: KMeans, points: np.ndarray) -> KMeans:
        every = threadpool_info()
        found.update(each["num_threads"] for each in every if each["user_api"] == "openmp")
        return fit(self, points)

    monkeypatch.setattr(KMeans, "fit", watched)
    central._threads.cache_clear()  # other tests have loaded libraries of no concern to k-means
    with threadpool_limits(2, user_api="openmp"):
        spectral_parts(_blocks(np.arange(12) % 2, 0.2), **SETTINGS)
    assert found == {1}
