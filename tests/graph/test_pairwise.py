"""Squared distances: the plain differences beside the fast path, whatever one row holds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_app.graph.pairwise import refined, squared_distances, squared_lengths
from fl_app.graph.rows_in_memory import MOST_COLUMNS as COLUMNS


def _plain(models: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Pair by pair, from differences in double precision."""
    away = models[:, None].astype(float) - others[None].astype(float)
    return (away**2).sum(axis=2)


def test_by_hand() -> None:
    models = np.array([[0, 0], [3, 4]], np.float32)
    others = np.array([[3, 0], [3, 4], [-6, -8]], np.float32)
    expected = [[9, 25, 100], [16, 0, 225]]
    np.testing.assert_allclose(squared_distances(models, others, same=False), expected)
    np.testing.assert_allclose(squared_distances(models, models, same=True), [[0, 25], [25, 0]])
    np.testing.assert_allclose(squared_lengths(others), [9, 25, 100])


@given(
    st.integers(0, 2**31), st.integers(1, 7), st.integers(1, 5), st.integers(1, 9),
    st.lists(st.floats(-6, 17), max_size=4), st.booleans(), st.booleans(),
)  # fmt: skip
def test_every_pair_is_right_however_far_some_rows_lie(
    seed: int, n: int, m: int, d: int, scales: list[float], shared: bool, twin: bool
) -> None:
    draw = np.random.default_rng(seed)
    models = draw.normal(1, 1e-3, (n, d)).astype(np.float32)
    others = draw.normal(1, 1e-3, (m, d)).astype(np.float32)
    rows = draw.integers(0, n, len(scales)).tolist()
    for row, scale in dict(zip(rows, scales, strict=True)).items():
        models[row] *= np.float32(10**scale)
    if twin:
        models[0] = models[-1]
        others[0] = models[0]
    others = models if shared else others
    found = squared_distances(models, others, same=shared)
    np.testing.assert_allclose(found, _plain(models, others), rtol=1e-8)


@pytest.mark.parametrize("far", [1e3, 1e7, 1e15])
@pytest.mark.parametrize("liars", [1, 5, 9])
def test_distances_of_the_others_are_those_without_the_far(far: float, liars: int) -> None:
    """Near each other or not, few or most: honest pairs are what they are."""
    draw = np.random.default_rng(0)
    honest = draw.normal(1, 1e-3, (7, 500)).astype(np.float32)
    wild = (far * draw.normal(size=(liars, 500))).astype(np.float32)
    wild[: liars // 2] = wild[0]
    alone = squared_distances(honest, honest, same=True)
    both = np.concatenate([wild, honest])
    found = squared_distances(both, both, same=True)
    np.testing.assert_allclose(found[liars:, liars:], alone, rtol=1e-6)
    between = squared_distances(both, honest, same=False)
    np.testing.assert_allclose(between[liars:], alone, rtol=1e-6)


def test_rows_at_many_scales_are_all_told_apart() -> None:
    """Every scale has two rows that are near each other only beside the next one."""
    pairs = [(10.0**scale, 10.0**scale * (1 + 2**-16)) for scale in range(-3, 18, 2)]
    models = np.array(pairs, np.float32).reshape(-1, 1)
    found = squared_distances(models, models, same=True)
    np.testing.assert_allclose(found, _plain(models, models), rtol=1e-8)


def test_long_models_in_more_than_one_block() -> None:
    draw = np.random.default_rng(0)
    base = draw.normal(size=10 * COLUMNS + 7).astype(np.float32)
    models = np.stack([base + draw.normal(0, 1e-4, len(base)) for _ in range(3)])
    models = np.concatenate([models, 1e12 * base[None, :]]).astype(np.float32)
    found = squared_distances(models, models, same=True)
    plain = [[((a.astype(float) - b) ** 2).sum() for b in models] for a in models]
    np.testing.assert_allclose(found, plain, rtol=1e-8)


def test_without_far_rows_everything_is_measured_once() -> None:
    models = np.random.default_rng(0).normal(size=(6, 20))
    calls = []

    def measure(rows: slice, columns: slice) -> np.ndarray:
        calls.append((rows, columns))
        away = models[rows, None] - models[None, columns]
        return np.stack([(away**2).sum(axis=2), np.full((6, 6), 40.0)])

    refined(measure, 6, 6, same=True)
    assert calls == [(slice(None), slice(None))]
