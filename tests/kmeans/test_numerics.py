"""Federated k-means on arrays: by hand, by property, and against central k-means."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.metrics import homogeneity_completeness_v_measure

from fl_app.kmeans.kfed import initial_centroids, local_centroids, pooled, remote
from fl_app.kmeans.lloyd import LastAssignment, assign, local_update, nearest_centroids, totals
from fl_app.kmeans.scores import agreement, contingency, improvement
from fl_app.kmeans.weighting import aggregate, equal, step

POINTS = np.array([[0.0], [1.0], [10.0], [12.0]])


def test_one_local_step_by_hand() -> None:
    moved, counts = local_update(POINTS, np.array([[0.0], [9.0], [99.0]]), steps=1, tolerance=0)
    assert moved.tolist() == [[0.5], [11.0], [99.0]]
    assert counts.tolist() == [2, 2, 0]


def test_counts_are_of_the_incoming_centroids_however_many_steps() -> None:
    start = np.array([[0.0], [1.5]])
    moved, counts = local_update(POINTS, start, steps=9, tolerance=1e-9)
    assert moved.tolist() == [[0.5], [11.0]]
    assert counts.tolist() == [1, 3]


def test_it_stops_when_nothing_moves_farther_than_the_tolerance() -> None:
    start = np.array([[0.0], [1.5]])
    once, _ = local_update(POINTS, start, steps=1, tolerance=0)
    loose, _ = local_update(POINTS, start, steps=9, tolerance=100.0)
    assert once.tolist() == loose.tolist()


def test_a_client_with_fewer_points_than_centroids_or_none() -> None:
    start = np.array([[0.0], [5.0], [9.0]])
    moved, counts = local_update(POINTS[:1], start, steps=3, tolerance=0)
    assert moved.tolist() == [[0.0], [5.0], [9.0]]
    assert counts.tolist() == [1, 0, 0]
    same, none = local_update(POINTS[:0], start, steps=3, tolerance=0)
    assert same.tolist() == start.tolist()
    assert none.tolist() == [0, 0, 0]


def test_weighted_aggregate_by_hand() -> None:
    centroids = np.array([[[0.0], [4.0]], [[6.0], [8.0]]])
    weights = np.array([[1.0, 0.0], [2.0, 0.0]])
    assert aggregate(centroids, weights).tolist() == [[4.0], [6.0]]
    assert aggregate(centroids, equal(weights)).tolist() == [[3.0], [6.0]]
    assert aggregate(centroids, np.zeros((2, 2))).tolist() == [[3.0], [6.0]]
    with pytest.raises(ValueError, match="finite and non-negative"):
        aggregate(centroids, -weights)


def test_step_by_hand() -> None:
    current, previous, target = np.array([[1.0]]), np.array([[0.5]]), np.array([[3.0]])
    moved = step(current, previous, target, learning_rate=0.1, momentum=0.8)
    np.testing.assert_allclose(moved, [[1.0 + 0.2 + 0.4]])
    assert step(current, previous, target, learning_rate=1.0, momentum=0.0).tolist() == [[3.0]]


@given(st.integers(0, 2**31), st.integers(1, 5), st.integers(1, 6))
def test_full_participation_and_one_step_are_central_lloyd(seed: int, k: int, m: int) -> None:
    draw = np.random.default_rng(seed)
    points = draw.normal(size=(60, 3))
    owner = draw.integers(0, m, 60)
    federated = central = draw.normal(size=(k, 3))
    for _ in range(4):
        sent = [
            local_update(points[owner == client], federated, steps=1, tolerance=0)
            for client in range(m)
        ]
        together = aggregate(
            np.stack([c for c, _ in sent]), np.stack([n for _, n in sent]).astype(float)
        )
        federated = step(federated, federated, together, learning_rate=1.0, momentum=0.0)
        central, _ = local_update(points, central, steps=1, tolerance=0)
        np.testing.assert_allclose(federated, central, atol=1e-9)


@given(st.integers(0, 2**31))
def test_assignment_is_to_the_nearest(seed: int) -> None:
    draw = np.random.default_rng(seed)
    points, centroids = draw.normal(size=(40, 4)), draw.normal(size=(6, 4))
    labels, squares = assign(points, centroids)
    assert nearest_centroids(points, centroids).tolist() == labels.tolist()
    direct = ((points[:, None] - centroids[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(squares, direct.min(axis=1), atol=1e-9)
    np.testing.assert_allclose(direct[range(40), labels], direct.min(axis=1), atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [1e4, -1e5])
@pytest.mark.parametrize("dimensions", [2, 100])
def test_two_blobs_one_apart_are_told_apart_far_from_the_origin(
    dtype: type, offset: float, dimensions: int
) -> None:
    draw = np.random.default_rng(0)
    middles = np.full((3, dimensions), offset)
    middles[1, 0] += 1
    middles[2, 1] -= 1
    owner = draw.integers(0, 3, 600)
    points = (middles[owner] + draw.normal(0, 0.05, (600, dimensions))).astype(dtype)
    # as a round sends them: in float32
    centroids = middles.astype(np.float32).astype(float)
    assert nearest_centroids(points, centroids).tolist() == owner.tolist()
    labels, squares = assign(points, centroids)
    assert labels.tolist() == owner.tolist()
    exact = ((points.astype(float) - centroids[owner]) ** 2).sum(axis=1)
    np.testing.assert_allclose(squares, exact, rtol=0.02)
    moved, counts = local_update(points, centroids + 0.1, steps=5, tolerance=0)
    np.testing.assert_allclose(moved, middles, atol=0.05)
    assert counts.tolist() == np.bincount(owner).tolist()


def test_a_centroid_far_off_changes_no_assignment_to_the_others() -> None:
    draw = np.random.default_rng(0)
    points = draw.normal(size=(200, 3)).astype(np.float32)
    centroids = draw.normal(size=(4, 3))
    far = np.concatenate([centroids, np.full((1, 3), 1e15)])
    assert nearest_centroids(points, far).tolist() == nearest_centroids(points, centroids).tolist()
    np.testing.assert_array_equal(assign(points, far)[1], assign(points, centroids)[1])


def test_no_points_have_no_labels() -> None:
    labels, squares = assign(POINTS[:0], POINTS)
    assert len(nearest_centroids(POINTS[:0], POINTS)) == len(labels) == len(squares) == 0


def test_local_steps_are_those_of_scikit_learn() -> None:
    draw = np.random.default_rng(0)
    points, start = draw.normal(size=(300, 5)), draw.normal(size=(4, 5))
    theirs = KMeans(4, init=start, n_init=1, max_iter=7, tol=0, algorithm="lloyd").fit(points)
    ours, _ = local_update(points, start, steps=7, tolerance=0)
    np.testing.assert_allclose(ours, theirs.cluster_centers_, atol=1e-9)


def test_kfed_finds_groups_that_each_client_sees_in_part() -> None:
    centres = np.array([[0.0, 0], [10, 0], [0, 10], [10, 10]])
    draw = np.random.default_rng(0)
    own = [centres[[i, (i + 1) % 4]] + draw.normal(0, 0.1, (2, 2)) for i in range(4)] * 3
    found = initial_centroids(own, 4, seed=0)
    nearest = np.linalg.norm(found[:, None] - centres[None], axis=2)
    assert sorted(nearest.argmin(axis=1).tolist()) == [0, 1, 2, 3]
    assert nearest.min(axis=1).max() < 0.2


def test_kfed_with_too_few_centroids_repeats_and_with_none_refuses() -> None:
    found = initial_centroids([np.array([[1.0, 2.0]])], 3, seed=0)
    assert found.shape == (3, 2)
    assert np.isfinite(found).all()
    with pytest.raises(ValueError, match="at least one of 2 clients must send a centroid"):
        initial_centroids([np.empty((0, 2))] * 2, 3, seed=0)


def test_centroids_are_remote_if_far_from_those_of_the_others() -> None:
    honest = [np.array([[0.0], [10.0]]) + shift for shift in (0.0, 0.5, 1.0, 1.5)]
    liar, near = np.array([[100.0], [300.0]]), [[False, False]] * 4
    # of five clients the nearest other one counts: the honest are 0.5 off, and 100 - 11.5 the liar
    assert _lists(remote([*honest, liar])) == [*near, [True, True]]
    half = np.array([[0.0], [300.0]])
    assert _lists(remote([*honest, half])) == [*near, [False, True]]
    assert _lists(remote([honest[0], liar])) == near[:2]
    assert not np.any(remote([honest[0]] * 3 + [liar])), "nothing is usual among copies"


def test_liars_who_agree_are_still_remote() -> None:
    honest = [np.array([[0.0], [10.0]]) + 0.1 * client for client in range(8)]
    liars = [np.array([[100.0]])] * 2
    assert _lists(remote([*honest, *liars])) == [[False, False]] * 8 + [[True]] * 2


def _lists(found: list[np.ndarray]) -> list[list[bool]]:
    return [each.tolist() for each in found]


def test_the_remote_centroids_of_a_client_count_as_one() -> None:
    honest = [np.array([[0.0], [10.0]]) + shift for shift in (0.0, 0.5, 1.0, 1.5)]
    liar, ones = np.array([[100.0], [300.0], [1.0]]), np.ones(2)
    pool, weights = pooled([*honest, liar], [ones] * 4 + [np.array([3.0, 1.0, 2.0])])
    assert pool.ravel().tolist() == [0, 10, 0.5, 10.5, 1, 11, 1.5, 11.5, 1, 150]
    assert weights.tolist() == [1] * 8 + [2, 4]


def test_a_liar_with_one_centroid_among_the_others_takes_one_cluster_at_most() -> None:
    centres = np.array([[0.0, 0], [10, 0], [0, 10], [10, 10]])
    draw = np.random.default_rng(0)
    own = [centres + draw.normal(0, 0.1, (4, 2)) for _ in range(12)]
    own[5][1:] = [[900.0, 0], [0, 900.0], [900.0, 900]]
    found = initial_centroids(own, 4, seed=0)
    assert np.linalg.norm(found, axis=1).max() > 100
    assert (np.linalg.norm(found[:, None] - centres, axis=2).min(axis=1) < 6).sum() == 3


def test_a_cluster_that_one_client_alone_has_is_found() -> None:
    shared = [np.array([[0.0, 0.0], [10.0, 0.0]]) + 0.1 * client for client in range(5)]
    own = np.array([[0.0, 50.0], [0.2, 50.2]])
    found = initial_centroids([*shared, own], 3, seed=0)
    np.testing.assert_allclose(sorted(found[:, 1].tolist()), [0.2, 0.2, 50.1])


def test_local_centroids_are_no_more_than_different_points() -> None:
    points = np.array([[0.0], [0.0], [5.0]])
    assert sorted(local_centroids(points, 3, seed=0, client=1).ravel().tolist()) == [0.0, 5.0]
    assert local_centroids(points[:0], 3, seed=0, client=1).shape == (0, 1)


def test_agreement_by_hand_and_as_scikit_learn_counts_it() -> None:
    table = np.array([[4, 0, 1], [0, 3, 2], [0, 0, 0]])
    found = agreement(table)
    assert found.accuracy == 7 / 10
    clusters, classes = (np.repeat(axis, table.ravel()) for axis in
                         np.indices(table.shape).reshape(2, -1))  # fmt: skip
    expected = homogeneity_completeness_v_measure(classes, clusters)
    np.testing.assert_allclose(
        (found.homogeneity, found.completeness, found.v_measure), expected, atol=1e-12
    )
    with pytest.raises(ValueError, match="must count points, got none"):
        agreement(np.zeros((2, 2), int))


def test_the_table_counts_points_by_centroid_and_class() -> None:
    labels = np.array([0, 1, 1, 1])
    table, distance = contingency(POINTS, labels, np.array([[0.0], [11.0]]), classes=3)
    assert table.tolist() == [[1, 1, 0], [0, 2, 0]]
    assert distance == (0 + 1 + 1 + 1) / 4


@given(st.integers(0, 2**31), st.integers(1, 4), st.sampled_from([0.0, 1e-8, 0.1, 0.3, 0.5]))
def test_what_a_client_remembers_changes_nothing(seed: int, k: int, tolerance: float) -> None:
    draw = np.random.default_rng(seed)
    points, first = draw.normal(size=(25, 2)), draw.normal(size=(k, 2))
    memory = LastAssignment()
    for near in (0.0, 1e-9, 0.3, 0.0, 0.5, 0.9, 1.0, 0.9, 0.5, 0.0):
        mean = local_update(points, first, steps=1, tolerance=0)[0]
        start = first + near * (mean - first)
        plain, weights = local_update(points, start, steps=4, tolerance=tolerance)
        known, _ = assign(points, start)
        found, counts = local_update(
            points, start, steps=4, tolerance=tolerance, labels=known, memory=memory
        )
        np.testing.assert_allclose(found, plain, atol=1e-12)
        assert counts.tolist() == weights.tolist()


def test_the_first_step_within_the_tolerance_is_no_result_from_farther_centroids() -> None:
    # the means of the two pairs are 0.5 and 5.85, to the first of which the third point is nearer
    points = np.array([[0.0], [1.0], [3.1], [8.6]])
    near, far, memory = np.array([[0.4], [5.7]]), np.array([[0.0], [6.0]]), LastAssignment()
    for start, expected in ((near, [0.5, 5.85]), (far, [4.1 / 3, 8.6]), (near, [0.5, 5.85])):
        found, counts = local_update(points, start, steps=4, tolerance=0.2, memory=memory)
        assert found.ravel().tolist() == pytest.approx(expected)
        assert counts.tolist() == [2, 2]


def test_points_of_many_dimensions_and_of_few_have_the_same_sums() -> None:
    draw = np.random.default_rng(0)
    points, labels = draw.normal(size=(50, 12)), draw.integers(0, 4, 50)
    many = totals(points, labels, 5)
    few = np.concatenate([totals(part, labels, 5) for part in np.split(points, 2, axis=1)], axis=1)
    np.testing.assert_allclose(many, few, atol=1e-12)
    assert many[4].tolist() == [0.0] * 12


def test_the_fall_of_the_distances_is_trimmed_and_weighted() -> None:
    falls = np.array([1.0, 2.0, 3.0, 4.0, -1e30])
    before, points = np.full(5, 10.0), np.full(5, 7.0)
    assert improvement(before, before - falls, points, cap=3.0) == pytest.approx(7 * 2.0)
    assert improvement(before[:2], before[:2] - falls[:2], points[:2], cap=3.0) == 7 * 1.5
    assert improvement(before[:3], before[:3] - falls[2:], points[:3], cap=3.0) == 7 * 3.0
    few = np.array([1.0, 2.0, 900.0])  # of which 6 count
    assert improvement(before[:3], before[:3] - falls[:3], few, cap=3.0) == 2 * 2.0
