"""Models as vectors, vectors as bytes, generators by key."""

import io
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm

from fl_app.client.networks import mcmahan_cnn
from fl_app.params import FlatModule, from_bytes, is_finite, to_bytes
from fl_app.records.models import StateForm
from fl_app.rng import generator, torch_generator
from fl_app.wiring import made

small_cnn = partial(made, "network=small_cnn")


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


class Plain(nn.Sequential):
    """A network of a user, whose tensors lie as in plain torch."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return scores by `view`, which needs the answers of a convolution in plain memory."""
        return self[1](self[0](images).view(-1, 12))


@pytest.mark.parametrize("chosen", [torch.contiguous_format, torch.channels_last])
def test_kernels_of_a_user_lie_as_their_constructor_made_them(chosen: torch.memory_format) -> None:
    module = Plain(nn.Conv2d(2, 3, 2), nn.Linear(12, 1)).to(memory_format=chosen)
    kernel = FlatModule(module).module[0].weight
    assert kernel.is_contiguous(memory_format=chosen)
    if chosen == torch.contiguous_format:
        assert module(torch.ones(5, 2, 3, 3)).shape == (5, 1)


def test_float_buffers_follow_the_trainable_part_and_counters_stay() -> None:
    flat = FlatModule(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    assert flat.layout.names[-2:] == ("1.running_mean", "1.running_var")
    assert flat.layout.direction == slice(0, 10)
    assert flat.layout.size == 14
    flat.module(torch.ones(4, 2))
    assert flat.vector()[10:].any()
    assert flat.module[1].num_batches_tracked.item() == 1


def test_running_variances_are_known_by_name_and_place() -> None:
    module = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2), nn.BatchNorm1d(3))
    layout = FlatModule(module).layout
    assert layout.non_negative == {"0.running_var": slice(18, 20), "2.running_var": slice(23, 26)}
    vector = np.full(26, -1, np.float32)
    valid = layout.valid(vector)
    assert np.flatnonzero(valid == 0).tolist() == [18, 19, 23, 24, 25]
    assert (vector == -1).all()
    assert layout.valid(valid) is valid


def test_frozen_parameters_are_no_part_of_the_vector() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3).requires_grad_(False), nn.Flatten(), nn.Linear(2, 1))
    flat = FlatModule(module)
    assert flat.layout.names == ("2.weight", "2.bias")
    assert flat.layout.direction == slice(0, flat.layout.size) == slice(0, 3)
    assert set(flat.constants) == {"0.weight", "0.bias"}


def test_a_load_sets_what_does_not_travel_to_what_it_was() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    module[2].requires_grad_(False)
    flat = FlatModule(module)
    start, frozen = flat.vector(), module[2].weight.clone()
    flat.module(torch.ones(4, 2))
    module[2].weight.data += 1
    flat.load(start)
    assert module[1].num_batches_tracked.item() == 0
    assert torch.equal(module[2].weight, frozen)


def test_constants_may_come_from_another_copy_of_the_network() -> None:
    first, second = (
        FlatModule(nn.Sequential(nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 1)))
        for _ in range(2)
    )
    shared = FlatModule(second.module, constants=first.constants)
    assert torch.equal(shared.module[0].weight, first.module[0].weight)
    assert shared.constants is first.constants


def test_a_buffer_that_a_layer_replaces_is_read_and_put_back() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    flat, norm = FlatModule(module), module[1]
    registered = norm.running_mean
    norm.running_mean = torch.tensor([3.0, 4.0])
    norm.num_batches_tracked = norm.num_batches_tracked + 5
    vector = flat.vector()
    assert vector[-4:].tolist() == [3, 4, 1, 1]
    assert norm.running_mean is registered
    norm.running_mean = torch.tensor([5.0, 6.0])
    flat.load(vector)
    assert norm.running_mean.tolist() == [3, 4]
    assert norm.num_batches_tracked.item() == 0


def test_an_infinite_buffer_is_a_constant_and_other_precisions_keep_theirs() -> None:
    module = nn.Linear(2, 1).to(torch.bfloat16)
    module.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
    module.register_buffer("steps", torch.tensor([0.5], dtype=torch.float64))
    flat = FlatModule(module)
    assert flat.layout.names == ("weight", "bias", "steps")
    assert set(flat.constants) == {"mask"}
    flat.load(np.array([1, 2, 3, 0.25], np.float32))
    assert module.weight.dtype == torch.bfloat16
    assert module.steps.dtype == torch.float64
    assert module.weight.tolist() == [[1, 2]]
    module.steps += 1
    assert flat.vector().tolist() == [1, 2, 3, 1.25]


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([0.0, torch.finfo(torch.float32).min]),
        torch.tensor([torch.finfo(torch.bfloat16).min], dtype=torch.bfloat16),
        torch.tensor([torch.finfo(torch.float64).min], dtype=torch.float64),
        torch.tensor([1_700_000_000.25], dtype=torch.float64),
        torch.tensor([1 / 3], dtype=torch.float64),
        torch.tensor([torch.nan]),
    ],
)
def test_a_buffer_whose_mean_would_be_wrong_is_a_constant_as_it_was_made(
    value: torch.Tensor,
) -> None:
    module = nn.Linear(2, 1)
    module.register_buffer("held", value.clone())
    flat = FlatModule(module)
    assert flat.layout.names == ("weight", "bias")
    flat.load(flat.vector())
    assert torch.equal(module.held.nan_to_num(), value.nan_to_num())
    assert module.held.dtype == value.dtype


def test_tied_weights_are_one_piece_with_two_names_in_the_state() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.BatchNorm1d(2))
    module[1].weight = module[0].weight
    module[2].register_buffer("passing", torch.zeros(1), persistent=False)
    flat = FlatModule(module)
    assert "1.weight" not in flat.layout.names
    sources = flat.sources()
    assert sources["1.weight"] == sources["0.weight"] == "0.weight"
    assert sources["2.num_batches_tracked"] in flat.constants
    assert sources.keys() == module.state_dict().keys()


def test_a_state_that_is_no_tensor_cannot_be_saved() -> None:
    class Noted(nn.Linear):
        def get_extra_state(self) -> dict[str, int]:
            return {"seen": 3}

    with pytest.raises(ValueError, match="got '_extra_state'"):
        FlatModule(Noted(2, 1)).sources()


def test_a_network_must_have_something_to_train_that_is_a_real_number() -> None:
    with pytest.raises(ValueError, match="at least one trainable parameter, got none"):
        FlatModule(nn.Linear(2, 1).requires_grad_(False))
    with pytest.raises(ValueError, match=r"got 'weight' of torch\.complex64"):
        FlatModule(nn.Linear(2, 1, dtype=torch.complex64))


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


def test_a_parameter_that_forward_creates_is_named() -> None:
    flat = FlatModule(nn.Sequential(nn.Linear(2, 2)))
    flat.module.head = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"'head.weight', which forward creates; create it there"):
        flat.sources()


@pytest.mark.parametrize("normed", [parametrizations.spectral_norm, spectral_norm])
def test_the_vectors_of_spectral_normalisation_stay_of_length_one(
    normed: Callable[[nn.Module], nn.Module],
) -> None:
    torch.manual_seed(0)
    flat = FlatModule(nn.Sequential(normed(nn.Linear(3, 2)), normed(nn.Conv1d(1, 2, 2))))
    assert len(flat.units) == 4
    start = flat.vector()
    mean = start.copy()
    for name, part in flat.layout.parts.items():
        mean[part] *= 0.2 if name in flat.units else 1  # of clients that disagree
    flat.load(mean)
    np.testing.assert_allclose(flat.view(), start, rtol=1e-6)
    state = StateForm.of(flat).state(mean, flat.layout)
    for name, tensor in flat.module.state_dict().items():
        np.testing.assert_allclose(state[name], tensor.numpy(), rtol=1e-6)
