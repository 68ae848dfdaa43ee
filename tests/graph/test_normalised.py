"""Normalised similarity: by hand, the paper's formula where nobody is far, and with liars."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_app.graph import communities, normalised
from fl_app.graph.normalised import OUT_OF_SCALE, in_scale

louvain = partial(communities.louvain, resolution=1.0, seed=0, backend="python-louvain")
normalised_similarity = partial(normalised.normalised_similarity, exponent=3.0)


def _paper(distance: np.ndarray, exponent: float) -> np.ndarray:
    """The paper's formula over all pairs."""
    apart = distance[~np.eye(len(distance), dtype=bool)]
    found = (1 - (distance - apart.min()) / (apart.max() - apart.min())).clip(0, 1) ** exponent
    np.fill_diagonal(found, 0.0)
    return found


def _distances(points: np.ndarray) -> np.ndarray:
    return np.linalg.norm(points[:, None] - points[None], axis=2)


def _groups(sizes: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Clients 0.1 to 0.2 apart within their group, and about 0.5 between."""
    draw = np.random.default_rng(seed)
    centres = np.eye(len(sizes)) * 0.35
    middle = np.repeat(centres, sizes, axis=0)
    return _distances(middle + draw.normal(0, 0.06, middle.shape))


def _with_liars(distance: np.ndarray, count: int, far: float, apart: float) -> np.ndarray:
    """Put liars `far` from everyone, and `apart` from each other, before the clients."""
    n = len(distance) + count
    found = np.full((n, n), far)
    found[:count, :count] = apart
    found[count:, count:] = distance
    np.fill_diagonal(found, 0.0)
    return found


def _first(count: int, n: int) -> np.ndarray:
    return np.arange(n) < count


def test_by_hand() -> None:
    distance = np.array([[0.0, 1, 2], [1, 0, 3], [2, 3, 0]])
    expected = np.array([[0.0, 1, 0.125], [1, 0, 0], [0.125, 0, 0]])
    np.testing.assert_allclose(normalised_similarity(distance), expected)
    np.testing.assert_allclose(normalised_similarity(distance, exponent=1.0)[0], [0, 1, 0.5])


def test_with_a_client_out_of_scale_by_hand() -> None:
    # medians 1, 2, 2, 80; reaches 2, 2, 2, 80: the fourth is out, minimum 1 and maximum 2 remain
    distance = np.array([[0.0, 1, 1.5, 80], [1, 0, 2, 80], [1.5, 2, 0, 80], [80, 80, 80, 0]])
    assert in_scale(distance).tolist() == [True, True, True, False]
    odd = np.array([False, True, False, True])
    found = normalised_similarity(distance, exponent=1.0, odd=odd)
    np.testing.assert_allclose(found, [[0, 1, 0.5, 0], [1, 0, 0, 0], [0.5, 0, 0, 0], [0, 0, 0, 0]])


def test_a_far_client_that_trains_as_the_others_sets_the_scale() -> None:
    distance = _with_liars(_groups((9,)), 3, 5.0, 0.12)
    nobody, near = np.zeros(12, bool), np.arange(12) == 7
    paper = normalised_similarity(distance)
    np.testing.assert_array_equal(normalised_similarity(distance, odd=nobody), paper)
    np.testing.assert_array_equal(normalised_similarity(distance, odd=near), paper)
    assert louvain(paper).tolist() == [1] * 3 + [0] * 9


def test_equal_distances_are_all_similar_and_one_client_has_no_pair() -> None:
    equal = 0.7 * (1 - np.eye(3))
    np.testing.assert_array_equal(normalised_similarity(equal), 1 - np.eye(3))
    np.testing.assert_array_equal(normalised_similarity(np.zeros((1, 1))), [[0.0]])
    np.testing.assert_array_equal(normalised_similarity(1 - np.eye(2)), 1 - np.eye(2))
    far = normalised_similarity(_with_liars(equal, 1, 1e30, 0.0), odd=_first(1, 4))
    np.testing.assert_array_equal(far[1:, 1:], 1 - np.eye(3))
    assert not far[0].any()
    with pytest.raises(ValueError, match="exponent must be positive, got 0"):
        normalised_similarity(equal, exponent=0.0)


@given(st.integers(0, 2**31), st.integers(3, 12), st.floats(0.5, 4))
def test_it_is_the_papers_where_nobody_is_out_of_scale(seed: int, n: int, exponent: float) -> None:
    distance = _distances(np.random.default_rng(seed).uniform(size=(n, 4)) + np.eye(n, 4))
    odd = in_scale(distance)
    np.testing.assert_array_equal(
        normalised_similarity(distance, exponent=exponent, odd=odd), _paper(distance, exponent)
    )


@pytest.mark.parametrize("sizes", [(7, 6), (7, 5), (3, 2), (4, 4, 4), (6, 6), (10, 9, 1)])
def test_groups_of_like_size_are_all_in_scale_however_far_apart(sizes: tuple[int, ...]) -> None:
    distance = 1e4 * _distances(np.repeat(np.eye(len(sizes)), sizes, axis=0))
    distance += _groups(sizes)
    np.fill_diagonal(distance, 0.0)
    assert in_scale(distance).all()


@pytest.mark.parametrize("sizes", [(5, 5), (4, 3, 3), (4, 4, 4)])
@pytest.mark.parametrize("apart", [0.0, 0.15, 1e6])
@pytest.mark.parametrize("far", [80.0, 1e6, 1e30])
def test_liars_near_each_other_or_not_do_not_merge_the_groups(
    sizes: tuple[int, ...], apart: float, far: float
) -> None:
    honest = _groups(sizes)
    alone = normalised_similarity(honest)
    assert louvain(alone).tolist() == np.repeat(range(len(sizes)), sizes).tolist()
    distance = _with_liars(honest, 2, far, apart)
    with_liars = normalised_similarity(distance, odd=_first(2, len(distance)))
    np.testing.assert_array_equal(with_liars[2:, 2:], alone)
    assert not with_liars[:2, 2:].any()
    labels = louvain(with_liars)
    assert len(set(labels[2:])) == len(sizes)
    assert not set(labels[:2]) & set(labels[2:])


@given(st.integers(0, 2**31), st.integers(3, 14), st.floats(1e3, 1e30), st.floats(0, 1e30))
def test_fewer_than_a_third_set_no_scale(seed: int, n: int, far: float, apart: float) -> None:
    honest = 0.5 + np.random.default_rng(seed).uniform(0, 0.5, (n, n))
    honest = (honest + honest.T) * (1 - np.eye(n)) / 2
    liars = max(1, (n - 1) // 2)
    distance = _with_liars(honest, liars, far, apart)
    found = normalised_similarity(distance, odd=np.ones(len(distance), bool))
    np.testing.assert_array_equal(found[liars:, liars:], _paper(honest, 3.0))
    assert (found >= 0).all()
    assert (found <= 1).all()


def test_a_far_group_keeps_its_own_community() -> None:
    """It may as well be honest: only its distance to the others is cut."""
    distance = _with_liars(_groups((9,)), 3, 100 * OUT_OF_SCALE, 0.12)
    labels = louvain(normalised_similarity(distance, odd=_first(3, 12)))
    assert len(set(labels[:3])) == 1
    assert labels[0] not in labels[3:]
