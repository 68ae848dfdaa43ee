"""Communities from noisy sketches: groups that are above the noise, and none from noise alone."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_app.client.sketch_release import SketchRelease
from fl_app.graph.communities import canonical, louvain
from fl_app.graph.noisy_sketches import (
    above_noise,
    mean_sketches,
    nearest_mean,
    sketch_communities,
    sketch_similarity,
    told_apart,
    without_small,
)
from fl_app.types import Labels, Vectors

PARTITION = partial(louvain, resolution=1.0, seed=0, backend="python-louvain")


def _found(sketches: Vectors, deviation: float) -> Labels:
    return sketch_communities(sketches, deviation=deviation, partition=PARTITION)


def _groups(clients: int, dimension: int, deviation: float, seed: int) -> Vectors:
    """Return sketches of two groups with opposite directions of length 1."""
    draw = np.random.default_rng(seed)
    signs = np.where(np.arange(clients) % 2, 1.0, -1.0)
    noise = deviation * draw.normal(size=(clients, dimension))
    return (signs[:, None] * np.eye(dimension)[0] + noise).astype(np.float32)


def test_only_singular_values_above_the_edge_of_the_noise_remain() -> None:
    """Worked by hand: centred rows (3, 0), (-3, 0), (0, 1), (0, -1) have s = sqrt(18), sqrt(2)."""
    rows = np.array([[4, 5], [-2, 5], [1, 6], [1, 4]], np.float32)
    whole = np.array([[9, -9, 0, 0], [-9, 9, 0, 0], [0, 0, 1, -1], [0, 0, -1, 1]], float)
    np.testing.assert_allclose(above_noise(rows, deviation=0.0), whole, atol=1e-6)
    edge = np.sqrt(3) + np.sqrt(2) + 1  # for a deviation of 1
    large = np.zeros((4, 4))
    large[:2, :2] = whole[:2, :2]
    between = (np.sqrt(2) + np.sqrt(18)) / 2 / edge
    np.testing.assert_allclose(above_noise(rows, deviation=between), large, atol=1e-6)
    assert not above_noise(rows, deviation=1.01 * np.sqrt(18) / edge).any()


@pytest.mark.parametrize(("clients", "dimension"), [(20, 4), (20, 16), (60, 8)])
def test_noise_alone_is_one_community(clients: int, dimension: int) -> None:
    draw = np.random.default_rng(1)
    split = 0
    for _ in range(200):
        rows = (0.7 * draw.normal(size=(clients, dimension))).astype(np.float32)
        split += bool(above_noise(rows, deviation=0.7).any())
        assert above_noise(rows, deviation=0.7).any() or not _found(rows, 0.7).any()
    assert split <= 4


def test_groups_above_the_noise_are_found_and_those_below_are_not_invented() -> None:
    planted = canonical(np.arange(30) % 2)
    for seed in range(5):
        assert np.array_equal(_found(_groups(30, 4, 0.15, seed), 0.15), planted)
        assert not _found(_groups(30, 64, 3.0, seed), 3.0).any()


@pytest.mark.parametrize("seed", range(3))
def test_the_longest_sketch_that_is_read_hides_no_groups(seed: int) -> None:
    """One liar among twelve clients; numbers that each could be noise would hide both groups."""
    release = SketchRelease(dimension=64, epsilon=100.0, delta=1e-5, randomness="seed")
    noise = release.noise_multiplier * np.random.default_rng(seed).normal(size=(12, 64))
    signs = np.where(np.arange(12) % 2, 1.0, -1.0)[:, None]
    rows = signs * np.full(64, 1 / 8) + noise
    for each, groups in ((release.largest, 1), (release.longest / 8, 2)):
        rows[0] = each
        honest = _found(rows.astype(np.float32), release.noise_multiplier)[1:]
        assert len({*honest.tolist()}) == groups
        assert len({*honest[::2].tolist()}) == len({*honest[1::2].tolist()}) == 1


def test_clients_that_are_few_or_alike_are_one_community() -> None:
    assert _found(np.zeros((1, 3), np.float32), 0.0).tolist() == [0]
    assert _found(np.eye(2, 3, dtype=np.float32), 0.0).tolist() == [0, 0]
    assert _found(np.ones((5, 3), np.float32), 0.0).tolist() == [0] * 5


def test_communities_that_noise_hides_are_not_told_apart() -> None:
    """Worked by hand: two clients each at 1 and -1 on a line, so D = 4 and 1/a + 1/b = 1.

    Half of D is twice the noise up to `2 = 2 s sqrt(4 + s^2)`, that is s^2 = sqrt(5) - 2.
    """
    rows, labels = np.array([[1.0], [1.0], [-1.0], [-1.0]], np.float32), np.array([0, 0, 1, 1])
    least = float(np.sqrt(np.sqrt(5.0) - 2.0))
    for deviation, apart in ((0.0, True), (0.99 * least, True), (1.01 * least, False)):
        assert told_apart(rows, deviation=deviation)(labels, 0, 1) is apart


def test_different_clients_without_groups_are_one_community_if_noise_is_strong() -> None:
    """Their own directions put a few singular values above the edge, in which all seem split."""
    above = split = 0
    for seed in range(30):
        draw = np.random.default_rng(seed)
        own = draw.normal(size=(20, 64)) / np.sqrt(np.arange(1, 65))
        own /= np.linalg.norm(own, axis=1, keepdims=True)
        rows = (own + 0.2 * draw.normal(size=own.shape)).astype(np.float32)
        above += bool(above_noise(rows, deviation=0.2).any())
        split += bool(_found(rows, 0.2).any())
    assert above == 30
    assert split <= 2


@given(st.permutations(range(12)), st.integers(0, 5))
@settings(max_examples=20, deadline=None)
def test_the_order_of_the_clients_is_of_no_effect(order: list[int], seed: int) -> None:
    rows = _groups(12, 4, 0.1, seed)
    found, moved = _found(rows, 0.1), _found(rows[order], 0.1)
    assert np.array_equal(moved, canonical(found[order]))
    similarity = sketch_similarity(rows, deviation=0.1)
    again = sketch_similarity(rows[order], deviation=0.1)
    np.testing.assert_allclose(again, similarity[np.ix_(order, order)], atol=1e-6)


def test_small_communities_are_joined_with_the_nearest_ones() -> None:
    """Means 0, 10 and 2: the last one has a client and is nearest to the first."""
    rows = np.array([[0], [10], [0], [10], [2], [0], [10]], np.float32)
    labels = np.array([0, 1, 0, 1, 2, 0, 1])
    assert without_small(rows, labels, smallest=3).tolist() == [0, 1, 0, 1, 0, 0, 1]
    assert without_small(rows, labels, smallest=1).tolist() == labels.tolist()
    assert without_small(rows, labels, smallest=4).tolist() == [0] * 7
    assert without_small(rows[:2], np.array([0, 0]), smallest=5).tolist() == [0, 0]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=15), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_no_community_but_the_only_one_is_too_small(labels: list[int], smallest: int) -> None:
    rows = np.random.default_rng(len(labels)).normal(size=(len(labels), 3)).astype(np.float32)
    found = without_small(rows, np.array(labels), smallest=smallest)
    sizes = np.bincount(found)
    assert len(sizes) == 1 or sizes.min() >= smallest
    for label in {*labels}:  # a community is joined as a whole
        assert len({*found[np.array(labels) == label].tolist()}) == 1


def test_means_and_the_nearest_of_them() -> None:
    rows = np.array([[0, 0], [2, 2], [4, 0]], np.float32)
    means = mean_sketches(rows, np.array([0, 0, 1]))
    assert means.tolist() == [[1, 1], [4, 0]]
    assert nearest_mean(means, np.array([3, 0])) == 1
