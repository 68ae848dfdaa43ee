"""The bound on how far a client's centroids are from those that it received."""

import numpy as np
import pytest

from fl_app.kmeans.movement import bounded

rng = np.random.default_rng(0)
START = rng.normal(0, 1, (4, 3))
HONEST = START + rng.normal(0, 0.2, (9, 4, 3))
COUNTS = rng.integers(1, 20, (9, 4)).astype(float)


@pytest.mark.parametrize("length", [100.0, 1e15])
def test_a_far_centroid_moves_nearer_in_its_direction(length: float) -> None:
    local, direction = HONEST.copy(), np.array([0.6, 0.0, 0.8])
    local[4, 2] = START[2] + length * direction
    found = bounded(local, COUNTS, START, multiple=2)
    moved = found[4, 2] - START[2]
    assert 1 < np.linalg.norm(moved) < 10
    np.testing.assert_allclose(moved / np.linalg.norm(moved), direction, atol=1e-9)
    local[4, 2] = found[4, 2]
    np.testing.assert_array_equal(found, local)


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("start", [START, np.zeros((4, 3)), START - 1e3])
def test_no_honest_centroid_is_far(offset: float, start: np.ndarray) -> None:
    local = HONEST + offset
    assert bounded(local, COUNTS, start + offset, multiple=2) is local


def test_a_cluster_of_one_client_alone_is_not_far_from_where_it_started() -> None:
    start, local, counts = START.copy(), HONEST.copy(), COUNTS.copy()
    start[3], counts[:, 3], counts[2, 3] = 1e4, 0, 5
    local[:, 3] = start[3]
    local[2, 3] += 0.1
    assert bounded(local, counts, start, multiple=2) is local


def test_centroids_without_points_or_majority_tell_no_usual_reach() -> None:
    counts = COUNTS.copy()
    counts[2:] = 0
    assert bounded(HONEST, counts, START, multiple=2) is HONEST
    same = np.repeat(START[None, :], 9, axis=0)
    assert bounded(same, COUNTS, START, multiple=2) is same


def test_a_liar_far_from_the_origin_moves_no_farther_than_one_at_it() -> None:
    local = HONEST.copy()
    local[4] = START + 1e3
    here = bounded(local, COUNTS, START, multiple=2)
    there = bounded(local + 1e6, COUNTS, START + 1e6, multiple=2) - 1e6
    np.testing.assert_allclose(there, here, atol=1e-6)
