"""Scales, knees, distances and means of descriptors by hand, and what liars can do to them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import DBSCAN

from fl_app.graph.client_graph import ClientGraph
from fl_app.graph.communities import canonical, density
from fl_app.graph.descriptors import (
    DescriptorDistance,
    centroids,
    knee,
    limits,
    nearest_rows,
    scaled,
)
from fl_app.graph.detection import ByDensity

# two clients, two blocks of two numbers; the second client lacks the second block
BLOCKS = np.array([[[0.0, 4.0], [1.0, 3.0]], [[2.0, 1.0], [-1.0, -1.0]]])
HAS = np.array([[True, True], [True, False]])


def test_each_block_has_a_scale_of_its_own() -> None:
    low, high = limits(BLOCKS, HAS)
    np.testing.assert_array_equal(low, [0, 1])
    np.testing.assert_array_equal(high, [4, 3])
    found = scaled(BLOCKS, HAS, low, high)
    np.testing.assert_allclose(found, [[0, 1, 0, 1], [0.5, 0.25, 0, 0]])


def test_a_block_without_a_spread_or_a_client_is_zero() -> None:
    blocks = np.full((3, 2, 2), 7.0)
    has = np.array([[True, False]] * 3)
    low, high = limits(blocks, has)
    np.testing.assert_array_equal([low, high], [[7, 0], [7, 0]])
    assert not scaled(blocks, has, low, high).any()


@given(st.floats(1e3, 1e12), st.integers(0, 9), st.booleans())
def test_a_liar_sets_no_scale_and_goes_no_further_than_one_beyond(
    far: float, liar: int, up: bool
) -> None:
    blocks = np.random.default_rng(1).uniform(0, 1, (10, 3, 4))
    has = np.ones((10, 3), bool)
    others = np.arange(10) != liar
    blocks[liar] = far if up else -far
    lied, honest = limits(blocks, has), limits(blocks[others], has[others])
    np.testing.assert_array_equal(lied, honest)
    found = scaled(blocks, has, *lied)
    np.testing.assert_array_equal(found[liar], np.full(12, 2.0 if up else -1.0, np.float32))


def test_the_knee_by_hand() -> None:
    # in the unit square (0, 0), (1/4, .1), (1/2, .2), (3/4, .5), (1, 1): the third is lowest
    assert knee(np.array([11.0, 6.0, 1.0, 2.0, 3.0])) == 3.0
    assert knee(np.array([2.0, 2.0])) == 2.0
    assert knee(np.array([5.0])) == 5.0


def test_communities_by_density_by_hand() -> None:
    points = np.array([0.0, 1.0, 2.0, 10.0, 20.0, 21.0])
    distance = np.abs(points[:, None] - points)
    assert density(distance, radius=1.0).tolist() == [0, 0, 0, 2, 1, 1]
    assert density(distance, radius=0.5).tolist() == [0, 1, 2, 3, 4, 5]
    assert density(distance, radius=9.0).tolist() == [0, 0, 0, 0, 1, 1]
    assert density(np.zeros((3, 3)), radius=0.0).tolist() == [0, 0, 0]
    assert density(np.zeros((1, 1)), radius=0.0).tolist() == [0]


@pytest.mark.parametrize("seed", range(3))
def test_density_is_dbscan_with_clients_alone_as_communities(seed: int) -> None:
    points = np.random.default_rng(seed).normal(size=(80, 2))
    distance = np.linalg.norm(points[:, None] - points, axis=2)
    plain = DBSCAN(eps=0.3, min_samples=2, metric="precomputed").fit(distance).labels_
    alone = plain < 0
    plain[alone] = plain.max() + 1 + np.arange(alone.sum())
    assert 5 < plain.max() < 70
    np.testing.assert_array_equal(density(distance, radius=0.3), canonical(plain))


def _graph(points: list[list[float]], radius: object = "knee", scale: float = 1.0) -> ClientGraph:
    graph = ClientGraph(DescriptorDistance(), ByDensity(radius=radius, scale=scale))
    for client, point in enumerate(points):
        graph.put(client, np.array(point, np.float32), 1)
    return graph


def test_the_radius_is_at_the_knee_of_the_distances_to_the_nearest_client() -> None:
    # distances to the nearest: 1, 1, 1, 1, 5, 9; the fourth is furthest below the diagonal
    points = [[0.0, 0], [1, 0], [0, 30], [1, 30], [6, 0], [0, 9]]
    assert _graph(points).labels().tolist() == [0, 0, 1, 1, 2, 3]
    assert _graph(points, scale=5.0).labels().tolist() == [0, 0, 1, 1, 0, 2]
    assert _graph(points, radius=9.0).labels().tolist() == [0, 0, 1, 1, 0, 0]
    assert _graph([[3.0, 4.0]]).labels().tolist() == [0]


def test_clients_that_send_one_descriptor_do_not_part_the_others() -> None:
    groups = [[float(step), side] for side in (0.0, 30.0) for step in range(4)]
    liars = [[90.0, 90.0]] * 2  # at a distance of 0 to each other, which would be the knee
    assert _graph([*groups, *liars]).labels().tolist() == [0] * 4 + [1] * 4 + [2] * 2


def test_far_clients_do_not_join_the_others() -> None:
    steps = [0.0, 1.0, 2.0, 3.0, 4.2]
    groups = [[step, side] for side in (0.0, 1.5) for step in steps]
    far = [[900.0, 0.0], [0.0, 900.0]]  # with them the knee would be 1.2, not 1
    assert _graph([*groups, *far], scale=1.3).labels().tolist() == _two(steps)
    assert _graph(groups, scale=1.3).labels().tolist() == _two(steps)[:-2]


def _two(steps: list[float]) -> list[int]:
    return [0] * len(steps) + [1] * len(steps) + [2, 3]


def test_the_distance_and_the_means_by_hand() -> None:
    graph = _graph([[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]])
    np.testing.assert_allclose(graph.matrix(), [[0, 5, 3], [5, 0, 4], [3, 4, 0]])
    vectors = graph.vectors.read(np.arange(3))
    means = centroids(vectors, np.array([1, 0, 0]))
    np.testing.assert_allclose(means, [[3, 2], [0, 0]])
    assert nearest_rows(np.array([[1, 0], [2, 2]], np.float32), means).tolist() == [1, 0]


@pytest.mark.parametrize("clients", [2, 5, 9])
def test_equal_clients_are_one_community_and_their_order_does_not_matter(clients: int) -> None:
    draw = np.random.default_rng(clients)
    points = draw.normal(size=(clients, 3)).tolist()
    assert set(_graph([points[0]] * clients).labels().tolist()) == {0}
    order = draw.permutation(clients)
    labels = _graph(points).labels()
    again = _graph([points[k] for k in order]).labels()
    same = labels[:, None] == labels
    np.testing.assert_array_equal((again[:, None] == again), same[np.ix_(order, order)])
