"""Numbers as integers modulo 2^32, and masks that look like any of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_app.masking.keystream import mask
from fl_app.masking.quantisation import dequantise, levels, quantise


def test_one_is_the_largest_integer_whose_sum_over_the_clients_fits() -> None:
    assert levels(1) == 2_147_483_647
    assert levels(20) == 107_374_182
    numbers = np.array([1, -1, 0, 0.5, -0.5])
    found = quantise(numbers, 20)
    assert found.tolist() == [107_374_182, 4_187_593_114, 0, 53_687_091, 4_241_280_205]
    assert dequantise(found, 20).tolist() == numbers.tolist()


@given(
    clients=st.integers(1, 60),
    values=st.lists(st.floats(-1, 1), min_size=1, max_size=8),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_sum_is_wrong_by_at_most_the_rounding_of_each_client(
    clients: int, values: list[float], seed: int
) -> None:
    draw = np.random.default_rng(seed)
    numbers = draw.permuted(np.resize(values, (clients, len(values))), axis=1)
    total = sum((quantise(each, clients) for each in numbers), np.zeros(len(values), np.uint32))
    found = dequantise(total, clients)
    assert np.abs(found - numbers.sum(axis=0)).max() <= clients / (2 * levels(clients)) + 1e-12


@given(
    values=st.lists(st.floats(-1, 1), min_size=1, max_size=8),
    clients=st.integers(1, 60),
    seed=st.integers(0, 2**32 - 1),
)
def test_rounding_at_random_errs_by_less_than_a_level_and_stays_in_the_range(
    values: list[float], clients: int, seed: int
) -> None:
    numbers = np.array([*values, 0.0, 1.0, -1.0])
    found = quantise(numbers, clients, np.random.default_rng(seed))
    assert found[-3:].tolist() == quantise(numbers, clients)[-3:].tolist()
    assert (np.abs(dequantise(found, clients)) <= 1).all()
    assert np.abs(dequantise(found, clients) - numbers).max() <= 1 / levels(clients) + 1e-12


@pytest.mark.parametrize("number", [1.001, -2.0, np.nan, np.inf])
def test_a_number_outside_of_the_range_is_no_part_of_a_sum(number: float) -> None:
    with pytest.raises(ValueError, match=r"numbers must be in \[-1, 1\]"):
        quantise(np.array([0.0, number]), 3)


@pytest.mark.parametrize("clients", [0, 2**20 + 1])
def test_the_number_of_clients_has_a_range(clients: int) -> None:
    with pytest.raises(ValueError, match=f"clients must be in 1..1048576, got {clients}"):
        levels(clients)


def test_a_mask_is_the_keystream_of_aes_256() -> None:
    """The key of zeros encrypts the block of zeros to dc95c078 a2408989 ad48a214 92842087."""
    found = mask(bytes(32), 4)
    assert found.tobytes().hex() == "dc95c078a2408989ad48a21492842087"
    assert mask(bytes(32), 9)[:4].tolist() == found.tolist()
    assert not np.array_equal(mask(b"\1" + bytes(31), 4), found)
    with pytest.raises(ValueError, match="seed must have 32 bytes, got 31"):
        mask(bytes(31), 4)


def test_masks_of_seeds_that_flower_would_take_for_the_same_differ() -> None:
    """`pseudo_rand_gen` reduces a seed to the exclusive or of its words of 32 bits."""
    first, second = bytes(32), b"\1\0\0\0" * 2 + bytes(24)
    assert not np.array_equal(mask(first, 8), mask(second, 8))
