"""A client's sketch: its own updates less the common drift, in few numbers, with noise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_app.masking.sketch import OwnUpdates, noisy_direction, projected
from fl_app.types import Vector


def _vector(*numbers: float) -> Vector:
    return np.array(numbers, np.float32)


def test_each_update_counts_less_the_movement_of_the_model() -> None:
    """Worked by hand: the model moves by the mean of all updates."""
    client = OwnUpdates.none(2)
    assert client.known(_vector(9, 9), 1).tolist() == [0, 0]
    client = client.trained(_vector(0, 0), _vector(3, 1), 1)
    assert client.known(_vector(1, 1), 2).tolist() == [2, 0]  # (3, 1) - (1, 1)
    client = client.trained(_vector(1, 1), _vector(0, 4), 2)
    # the model moved by (2, 6) in the two rounds 2 and 3, by (1, 3) in each
    assert client.known(_vector(3, 7), 4).tolist() == [2 - 1, 0 + 4 - 3]


def test_an_update_of_a_skipped_round_is_left_out() -> None:
    client = OwnUpdates.none(2).trained(_vector(1, 1), _vector(5, 5), 1)
    assert client.known(_vector(1, 1), 2).tolist() == [0, 0]
    again = client.trained(_vector(1, 1), _vector(2, 0), 2)
    assert again.known(_vector(2, 2), 3).tolist() == [1, -1]


def test_the_sums_of_all_clients_cancel() -> None:
    draw = np.random.default_rng(0)
    clients, model = [OwnUpdates.none(5)] * 4, np.zeros(5, np.float32)
    for server_round in range(1, 4):
        updates = draw.normal(size=(4, 5)).astype(np.float32)
        pairs = zip(clients, updates, strict=True)
        clients = [each.trained(model, update, server_round) for each, update in pairs]
        model = model + updates.mean(axis=0)
    left = sum(each.known(model, 4) for each in clients)
    assert np.abs(left).max() < 1e-5


def test_a_projection_is_the_same_for_all_and_keeps_inner_products_in_the_mean() -> None:
    one, other = _vector(1, 2, 0, 1, 0, 3), _vector(0, 1, 1, 1, 2, 1)
    both = [projected(one, dimension=3, seed=4) for _ in range(2)]
    assert np.array_equal(*both)
    products = [
        projected(one, dimension=3, seed=seed) @ projected(other, dimension=3, seed=seed)
        for seed in range(2000)
    ]
    assert np.mean(products) == pytest.approx(6, abs=0.4)  # 2 + 1 + 3


@given(st.integers(1, 40), st.integers(2, 9), st.integers(0, 9))
@settings(max_examples=30, deadline=None)
def test_a_projection_is_linear(length: int, dimension: int, seed: int) -> None:
    draw = np.random.default_rng(length)
    one, other = draw.normal(size=(2, length)).astype(np.float32)
    both = projected(one + 2 * other, dimension=dimension, seed=seed)
    apart = [projected(each, dimension=dimension, seed=seed) for each in (one, other)]
    assert both.shape == (dimension,)
    np.testing.assert_allclose(both, apart[0] + 2 * apart[1], atol=1e-4)


def test_without_noise_only_the_direction_is_told() -> None:
    draw = np.random.default_rng(0)
    for scale in (1e-6, 1.0, 1e6):
        told = noisy_direction(_vector(3, 4) * scale, deviation=0.0, draw=draw)
        np.testing.assert_allclose(told, [0.6, 0.8], rtol=1e-6)
    for lost in (0, np.nan, np.inf):
        assert noisy_direction(_vector(0, lost), deviation=0.0, draw=draw).tolist() == [0, 0]


def test_every_number_has_the_noise_of_the_budget() -> None:
    draw = np.random.default_rng(0)
    told = np.stack(
        [noisy_direction(_vector(0, 5, 0), deviation=2.0, draw=draw) for _ in range(4000)]
    )
    np.testing.assert_allclose(told.mean(axis=0), [0, 1, 0], atol=0.12)
    np.testing.assert_allclose(told.std(axis=0), [2, 2, 2], rtol=0.04)
    assert np.abs(np.corrcoef(told.T) - np.eye(3)).max() < 0.06
