"""What a network does in training: which layers mix samples, which tensors a pass writes into."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
import user_networks as user

from fl_app.client.networks import MeanEmbedding, mcmahan_cnn
from fl_app.client.training_probe import changed, mixing, random_inputs
from fl_app.wiring import made

SHAPE, CLASSES = (1, 8, 8), 4
APART = [
    lambda: nn.Linear(user.HIDDEN, user.HIDDEN),
    nn.ReLU,
    lambda: nn.Dropout(0.5),
    lambda: nn.LayerNorm(user.HIDDEN),
    lambda: nn.GroupNorm(2, user.HIDDEN),
    lambda: user.Table(user.HIDDEN),
    lambda: nn.Softmax(dim=1),
]
MIXING = [user.BatchMean, lambda: nn.BatchNorm1d(user.HIDDEN), lambda: nn.Softmax(dim=0)]


class Causal(nn.Module):
    """A layer that mixes a sample with those before it: the first one stays as it is."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values.cumsum(0)


class SecondFirst(nn.Module):
    """Rows of an image as steps, the batch as the second dimension of what lies between."""

    def __init__(self) -> None:
        super().__init__()
        self.steps, self.head = nn.LSTM(8, 6), nn.Linear(6, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.steps(images[:, 0].transpose(0, 1))[0][-1])


@pytest.mark.parametrize(
    ("build", "guilty", "written"),
    [
        (partial(made, "network=small_cnn"), None, ()),
        (mcmahan_cnn, None, ()),
        (user.Everything, None, ()),
        (user.constant_buffers, None, ()),
        (user.frozen_backbone, None, ()),
        (user.batch_mean, "'2' (BatchMean)", ()),
        (user.unscaled_norm, "'2' (BatchNorm1d)",
         ("2.running_mean", "2.running_var", "2.num_batches_tracked")),
        (user.frozen_norm, "'2' (BatchNorm1d)",
         ("2.running_mean", "2.running_var", "2.num_batches_tracked")),
        (user.instance_norm, None, ("0.running_mean", "0.running_var")),
        (user.moving_average, None, ("2.average",)),
        (user.teacher, None, ("2.followed",)),
    ],
)  # fmt: skip
def test_what_mixes_samples_and_what_is_written_into_is_named(
    build: Callable[..., nn.Module], guilty: str | None, written: tuple[str, ...]
) -> None:
    module = build(SHAPE, CLASSES)
    assert changed(module, SHAPE, tokens=False) == written
    assert mixing(module, SHAPE, tokens=False) == guilty


@settings(max_examples=25, deadline=None)
@given(
    before=st.lists(st.sampled_from(APART), max_size=3),
    after=st.lists(st.sampled_from(APART), max_size=3),
    layer=st.sampled_from([None, *MIXING]),
    zero_head=st.booleans(),
)
def test_one_layer_that_mixes_is_found_between_any_others(
    before: list[Callable[[], nn.Module]],
    after: list[Callable[[], nn.Module]],
    layer: Callable[[], nn.Module] | None,
    zero_head: bool,
) -> None:
    torch.manual_seed(0)  # an example that fails must fail again
    between = [] if layer is None else [layer()]
    head = nn.Linear(user.HIDDEN, CLASSES)
    if zero_head:  # the answer is the same for all samples until it is trained
        nn.init.zeros_(head.weight)
    inside = [build() for build in before] + between + [build() for build in after]
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, user.HIDDEN), *inside, head)
    seen = [module[:-1](torch.randn(3, *SHAPE)) for _ in range(2)]
    assume(not torch.equal(*seen))  # several tables can mask all that the layer mixes
    found = mixing(module, SHAPE, tokens=False)
    if layer is None:
        assert found is None
    else:
        assert found == f"'{2 + len(before)}' ({type(between[0]).__name__})"


def test_any_row_may_be_the_one_that_depends_on_others() -> None:
    module = nn.Sequential(nn.Flatten(), Causal(), nn.Linear(64, CLASSES))
    assert mixing(module, SHAPE, tokens=False) == "'1' (Causal)"


def test_the_batch_may_be_another_dimension_inside() -> None:
    assert mixing(SecondFirst(), SHAPE, tokens=False) is None


def test_trying_a_network_leaves_no_trace_in_buffers_hooks_and_the_global_generator() -> None:
    module = user.moving_average(SHAPE, CLASSES)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    state = torch.random.get_rng_state()
    changed(module, SHAPE, tokens=False)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name])
    mixing(module, SHAPE, tokens=False)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in module.modules())


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Linear(5, 2), r"random torch\.float32 of shape \(3, 1, 8, 8\), got RuntimeError"),
        (nn.Sequential(nn.Flatten(2), nn.LSTM(64, 2)), "got tuple for 3 samples"),
        (nn.Sequential(nn.Flatten(0), nn.Linear(192, 2)), r"got \(2,\) for 3 samples"),
        (user.stateful(SHAPE, CLASSES), "whose output for the same batch varies"),
    ],
)
def test_a_network_that_cannot_be_tried_is_an_error_that_says_why(
    module: nn.Module, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        mixing(module, SHAPE, tokens=False)


@pytest.mark.parametrize("vocabulary", [2, 3, 40, 5000])
@pytest.mark.parametrize("layer", [None, user.BatchMean, lambda: nn.BatchNorm1d(8, affine=False)])
def test_networks_of_tokens_get_only_tokens_of_their_embedding(
    vocabulary: int, layer: Callable[[], nn.Module] | None
) -> None:
    between = [] if layer is None else [layer()]
    module = nn.Sequential(MeanEmbedding(vocabulary, 8), *between, nn.Linear(8, CLASSES))
    found = mixing(module, (12,), tokens=True)
    assert found == (None if layer is None else f"'1' ({type(between[0]).__name__})")


def test_statistics_of_a_network_of_tokens_are_what_it_writes_into() -> None:
    module = nn.Sequential(MeanEmbedding(3, 8), nn.BatchNorm1d(8), nn.Linear(8, CLASSES))
    written = "1.running_mean", "1.running_var", "1.num_batches_tracked"
    assert changed(module, (12,), tokens=True) == written


def test_no_sample_of_tokens_is_padding_alone() -> None:
    module = MeanEmbedding(3, 2)
    for batch in random_inputs(module, (1,), 20, tokens=True):
        assert batch.min() > 0
    (batch,) = random_inputs(module, (300,), 1, tokens=True)
    assert batch.unique().tolist() == [0, 1, 2]
