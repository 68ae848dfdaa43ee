"""Models as vectors, vectors as bytes, generators by key."""

import io

import numpy as np
import pytest
import torch
from torch import nn

from fl_app.client.networks import mcmahan_cnn, small_cnn
from fl_app.params import FlatModule, from_bytes, is_finite, to_bytes
from fl_app.rng import generator, torch_generator


def test_the_cnn_of_mcmahan_has_its_published_size() -> None:
    assert FlatModule(mcmahan_cnn((1, 28, 28), 10)).layout.size == 1_663_370


def test_a_loaded_vector_is_the_model() -> None:
    flat = FlatModule(nn.Linear(2, 1))
    flat.load(np.array([3, 4, 5], np.float32))
    assert flat.module(torch.tensor([[1.0, 10.0]])).item() == 48.0
    flat.module.weight.data += 1
    np.testing.assert_array_equal(flat.vector(), [4, 5, 5])


def test_kernels_of_convolutions_lie_as_these_like_them_and_keep_their_place() -> None:
    module = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(3, 1))
    flat = FlatModule(module)
    vector = np.arange(flat.layout.size, dtype=np.float32)
    flat.load(vector)
    kernel = module[0].weight
    assert kernel.is_contiguous(memory_format=torch.channels_last)
    assert kernel[1, 0].tolist() == [[8.0, 9.0], [10.0, 11.0]]
    with torch.no_grad():
        kernel += 1
    expected = vector + (vector < 24)
    assert np.array_equal(flat.vector(), expected)


def test_float_buffers_follow_the_trainable_part_and_counters_stay() -> None:
    flat = FlatModule(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    assert flat.layout.names[-2:] == ("1.running_mean", "1.running_var")
    assert flat.layout.direction == slice(0, 10)
    assert flat.layout.size == 14
    flat.module(torch.ones(4, 2))
    assert flat.vector()[10:].any()
    assert flat.module[1].num_batches_tracked.item() == 1


def test_a_vector_of_another_network_is_refused() -> None:
    with pytest.raises(ValueError, match="same network"):
        FlatModule(small_cnn((1, 8, 8), 10)).load(np.zeros(3, np.float32))


def test_bytes_are_those_of_numpy_save_and_come_back() -> None:
    vector = np.arange(5, dtype=np.float32)
    stream = io.BytesIO()
    np.save(stream, vector)
    assert to_bytes(vector) == stream.getvalue()
    np.testing.assert_array_equal(from_bytes(to_bytes(vector)), vector)


def test_finite_even_where_the_square_overflows() -> None:
    assert is_finite(np.full(3, 1e30, np.float32))
    assert not is_finite(np.array([1, np.nan], np.float32))
    assert not is_finite(np.array([1, -np.inf], np.float32))


def test_keys_tell_streams_apart_and_repeat_them() -> None:
    keys = [
        {"seed": s, "purpose": p, "round": r, "client": c}
        for s in (0, 1) for p in ("a", "b") for r in (0, 1) for c in (-1, 0)
    ]  # fmt: skip
    drawn = {generator(**key).integers(2**62) for key in keys}
    assert len(drawn) == len(keys)
    assert drawn == {generator(**key).integers(2**62) for key in keys}
    seeds = {torch_generator(**key).initial_seed() for key in keys}
    assert len(seeds) == len(keys)
