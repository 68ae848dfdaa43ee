"""DCFL's distance against its formula, affinity propagation and the Dunn index by hand."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_app.graph import communities
from fl_app.graph.communities import NotConvergedWarning
from fl_app.graph.dcfl_distance import dcfl_between, dcfl_distance, dcfl_divergence
from fl_app.graph.validity import dunn_index

affinity_propagation = partial(
    communities.affinity_propagation, damping=0.5, preference=None, seed=0
)


def _direct(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> float:
    """The paper's formula for one pair."""
    bd = np.linalg.norm(b - d)
    scale = bd * (np.linalg.norm(b - a) + np.linalg.norm(d - c))
    if scale == 0:
        return float(bd)
    return float(bd * np.exp(2 * ((b - a) - (d - c)) @ (b - d) / scale))


def test_the_distance_by_hand() -> None:
    starts = np.array([[0, 0], [4, 0]], np.float32)
    # towards each other: w = (1 - -1) * (1 - 3) / (2 * 2) = -1
    meeting = np.array([[1, 0], [3, 0]], np.float32)
    expected = 2 * np.exp(-2)
    np.testing.assert_allclose(
        dcfl_distance(starts, meeting), [[0, expected], [expected, 0]], rtol=1e-6
    )
    parting = np.array([[-1, 0], [5, 0]], np.float32)
    np.testing.assert_allclose(dcfl_distance(starts, parting)[0, 1], 6 * np.exp(2), rtol=1e-6)
    np.testing.assert_allclose(dcfl_divergence(starts, parting)[0, 1], np.exp(2), rtol=1e-6)


@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 7), st.floats(0, 100))
def test_it_is_the_formula_wherever_the_models_lie(
    seed: int, n: int, d: int, offset: float
) -> None:
    draw = np.random.default_rng(seed)
    starts = (draw.normal(size=(n, d)) + offset).astype(np.float32)
    ends = (starts + draw.normal(size=(n, d))).astype(np.float32)
    found = dcfl_distance(starts, ends)
    wide = starts.astype(float), ends.astype(float)
    direct = np.array(
        [[_direct(wide[0][i], wide[1][i], wide[0][j], wide[1][j]) for j in range(n)]
         for i in range(n)]
    )  # fmt: skip
    np.testing.assert_allclose(found, direct, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found, found.T, rtol=1e-6)


def test_clients_that_meet_are_at_no_distance_and_those_that_rest_at_the_plain_one() -> None:
    starts = np.array([[0, 0], [5, 5], [3, 4]], np.float32)
    ends = np.array([[1, 2], [1, 2], [3, 4]], np.float32)
    assert dcfl_distance(starts, ends)[0, 1] == 0.0
    resting = dcfl_between(starts[2:], starts[2:], starts[:1], starts[:1])
    np.testing.assert_allclose(resting, [[5.0]])


@pytest.mark.parametrize("far", [1e7, 1e15])
@pytest.mark.parametrize("liars", [1, 4])
def test_honest_pairs_are_those_without_the_far_rows(far: float, liars: int) -> None:
    draw = np.random.default_rng(0)
    starts = draw.normal(1, 1e-3, (9, 200)).astype(np.float32)
    ends = (starts + draw.normal(0, 1e-3, (9, 200))).astype(np.float32)
    honest = slice(liars, None)
    for table in (ends, starts):
        table[:liars] *= np.float32(far)
        for measure in (dcfl_distance, dcfl_divergence):
            found = measure(starts, ends)
            assert np.isfinite(found).all()
            alone = measure(starts[honest], ends[honest])
            np.testing.assert_allclose(found[honest, honest], alone, rtol=1e-6)
        between = dcfl_between(starts, ends, starts[honest], ends[honest])
        np.testing.assert_allclose(between[honest], alone_distance(starts, ends, liars), rtol=1e-6)


def alone_distance(starts: np.ndarray, ends: np.ndarray, liars: int) -> np.ndarray:
    """The paper's formula for the honest pairs, in double precision."""
    wide = starts[liars:].astype(float), ends[liars:].astype(float)
    n = len(wide[0])
    return np.array(
        [[_direct(wide[0][i], wide[1][i], wide[0][j], wide[1][j]) for j in range(n)]
         for i in range(n)]
    )  # fmt: skip


def _on_a_line(*places: float) -> np.ndarray:
    at = np.array(places, float)
    return np.abs(at[:, None] - at[None, :])


def test_affinity_propagation_finds_far_groups_without_their_number() -> None:
    distance = _on_a_line(0, 1, 2, 50, 51, 52, 53)
    assert affinity_propagation(distance).tolist() == [1, 1, 1, 0, 0, 0, 0]
    assert affinity_propagation(distance, preference=-1e6).tolist() == [0] * 7


@pytest.mark.parametrize("n", [1, 2, 5])
def test_clients_all_equally_far_are_one_community(n: int) -> None:
    assert affinity_propagation(1.0 - np.eye(n)).tolist() == [0] * n
    assert affinity_propagation(np.zeros((n, n))).tolist() == [0] * n


@pytest.mark.parametrize("copies", [2, 3, 4, 5])
def test_copies_of_one_client_do_not_join_the_next_community(copies: int) -> None:
    draw = np.random.default_rng(0)
    groups = np.repeat(range(3), [5, 3, 4])
    points = 2 * np.eye(3)[groups] + draw.normal(0, 0.005, (12, 3))
    points[:copies] = points[0]
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    found = affinity_propagation(distance)
    assert len({(a, b) for a, b in zip(groups.tolist(), found.tolist(), strict=True)}) == 3
    assert found.max() == 2


@pytest.mark.parametrize(("damping", "tried"), [(0.5, [0.5, 0.9]), (0.9, [0.9]), (0.95, [0.95])])
def test_messages_that_do_not_settle_are_reported_after_each_damping_once(
    monkeypatch: pytest.MonkeyPatch, damping: float, tried: list[float]
) -> None:
    from sklearn.cluster import AffinityPropagation

    seen = []

    def unsettled(self: AffinityPropagation, matrix: np.ndarray) -> AffinityPropagation:
        seen.append(self.damping)
        self.labels_, self.n_iter_ = np.full(len(matrix), -1), self.max_iter
        return self

    monkeypatch.setattr(AffinityPropagation, "fit", unsettled)
    with pytest.warns(NotConvergedWarning, match=f"3 clients did not converge.*{tried[-1]};"):
        found = affinity_propagation(_on_a_line(0, 1, 5), damping=damping)
    assert found.tolist() == [0, 0, 0]
    assert seen == tried


def test_dunn_index_by_hand() -> None:
    distance = _on_a_line(0, 1, 4, 6)
    assert dunn_index(distance, np.array([0, 0, 1, 1])) == 3 / 2
    assert dunn_index(distance, np.array([0, 0, 0, 1])) == 2 / 4
    assert dunn_index(distance, np.arange(4)) == float("inf")
    assert np.isnan(dunn_index(distance, np.zeros(4, int)))
    assert dunn_index(np.zeros((3, 3)), np.array([0, 0, 1])) == 0.0
