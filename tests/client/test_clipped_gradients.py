"""Sums of clipped gradients against the plain computation, sample by sample."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.layers import DPLSTM
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

sys.path.insert(0, str(Path(__file__).parent))
from sample_references import assert_alone, assert_clipped, clipped_sums, loss_of

from fl_app.client import convolution_gradients
from fl_app.client.clipped_gradients import gradients_of
from fl_app.client.layer_calls import Watched, calls_of, is_separable, kind
from fl_app.client.networks import mcmahan_cnn, mlp, small_cnn

SHAPE, CLASSES, SAMPLES = (1, 12, 12), 4, 5


class Everything(nn.Module):
    """Layers of other kinds, one of them called twice, a dense one on sequences, one frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 8, 4, stride=4, groups=1, bias=False)
        self.norm, self.groups = nn.LayerNorm(8), nn.GroupNorm(2, 8)
        self.mixed, self.again = nn.Linear(8, 8), nn.Linear(8, 8)
        self.along = nn.Conv1d(8, 8, 3, padding=1, groups=2)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.head = nn.Linear(8, CLASSES)
        self.head.bias.requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        words = self.patches(images).flatten(2).transpose(1, 2)  # (n, 9, 8)
        words = self.mixed(self.norm(words)).relu()
        words = self.groups(self.along(words.transpose(1, 2))).mean(2)
        found: Tensor = self.head(self.frozen(self.again(self.again(words).tanh())))
        return found


class Words(nn.Module):
    """An embedding of brightness levels, called twice, and a dense layer on all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.levels, self.head = nn.Embedding(4, 3), nn.Linear(432, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        words = (images.flatten(1) + 2).clamp(0, 3).long()
        found: Tensor = self.head((self.levels(words) * self.levels(words.flip(1))).flatten(1))
        return found


def volumes() -> nn.Module:
    """Return a convolution over three axes, into which an image is folded."""
    folded = nn.Unflatten(2, (4, 3))
    return nn.Sequential(folded, nn.Conv3d(1, 4, 3, padding=1), nn.Flatten(), nn.Linear(576, 4))


class Gate(nn.Linear):
    """A dense layer of a user's own, with a parameter and a layer inside, of other shapes."""

    def __init__(self) -> None:
        super().__init__(8, 8)
        self.scale = nn.Parameter(torch.randn(9, 1))
        self.inner = nn.Linear(8, 8, bias=False)
        self.bias.requires_grad_(False)

    def forward(self, words: Tensor) -> Tensor:
        return self.inner(super().forward(words * self.scale)).sigmoid() * words


class Own(nn.Module):
    """A user's own layer, called twice, between known ones."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.gate = nn.Conv2d(1, 8, 4, stride=4), Gate()
        self.norm, self.head = nn.LayerNorm(8, bias=False), nn.Linear(8, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        words = self.gate(self.patches(images).flatten(2).transpose(1, 2))
        words = self.norm(self.gate(words.tanh()))
        found: Tensor = self.head(words.mean(1))
        return found


class Small(nn.Linear):
    """A dense layer of a user's own that only begins otherwise."""

    extra: int = 1

    def __init__(self, given: int, outputs: int) -> None:
        super().__init__(given, outputs)
        nn.init.normal_(self.weight, std=0.1)

    def halved(self) -> Tensor:
        return self.weight / 2


class Padded(nn.Conv2d):
    """A convolution of a user's own whose inner step is another one."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(input.tanh(), weight, bias)


class Doubled(nn.Linear):
    """A dense layer of a user's own on one vector a sample."""

    def forward(self, values: Tensor) -> Tensor:
        return 2 * super().forward(values).tanh()


def tied() -> nn.Module:
    """Return a network in which a layer inside a user's own is used outside, too."""
    module = nn.Sequential(nn.Flatten(), Doubled(144, 8), nn.Sequential(Gated(), nn.Linear(8, 8)))
    module.append(nn.Linear(8, CLASSES))
    module[2][1].weight = module[2][0].inner.weight
    return module


class Gated(nn.Module):
    """A layer with a parameter of its own beside one inside."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.inner = nn.Parameter(torch.ones(8)), nn.Linear(8, 8)

    def forward(self, values: Tensor) -> Tensor:
        scaled: Tensor = self.inner(values * self.scale)
        return scaled


class Tempered(nn.Linear):
    """A dense layer whose outputs one number scales."""

    def __init__(self) -> None:
        super().__init__(144, CLASSES)
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, values: Tensor) -> Tensor:
        return super().forward(values) * self.scale


class InPlace(nn.Module):
    """Activations in place after every kind of layer, one of which is called without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.steps, self.own = nn.RNN(12, 8, batch_first=True), Gated()
        self.patches, self.mixed = nn.Conv1d(8, 8, 3), nn.MultiheadAttention(8, 2, batch_first=True)
        self.large, self.head = nn.Linear(80, 4000), nn.Linear(4000, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        words = self.patches(self.steps(images[:, 0])[0].sigmoid_().mT).sin_().mT
        words = self.own(self.mixed(words, words, words)[0].mul_(3)).relu_()
        with torch.no_grad():
            scale = self.own(words).mean((1, 2))[:, None]
        found: Tensor = self.head(self.large(words.flatten(1)).relu_()).mul_(1 + scale)
        return found


def norms() -> nn.Module:
    """Return a network with the other layers of normalisation."""
    first = nn.InstanceNorm2d(1, affine=True), nn.Conv2d(1, 4, 3), nn.RMSNorm((10, 10))
    return nn.Sequential(
        *first, nn.Flatten(), nn.LayerNorm(400, bias=False), nn.Linear(400, CLASSES)
    )


BUILD: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: mlp(SHAPE, CLASSES, hidden=[]),
    "small_cnn": lambda: small_cnn(SHAPE, CLASSES, width=0.5),
    "mcmahan_cnn": lambda: mcmahan_cnn(SHAPE, CLASSES),
    "everything": Everything,
    "words": Words,
    "volumes": volumes,
    "own": Own,
    "tied": tied,
    "norms": norms,
    "in place": InPlace,
    "tempered": lambda: nn.Sequential(nn.Flatten(), Tempered()),
    "subclasses": lambda: nn.Sequential(
        Padded(1, 2, 3), nn.Flatten(), weight_norm(Small(200, 8)), Small(8, CLASSES)
    ),
}


def _case(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    module = BUILD[name]()
    images = torch.randn(SAMPLES, *SHAPE) * torch.arange(1, SAMPLES + 1)[:, None, None, None]
    return module, images, torch.arange(SAMPLES) % CLASSES


@pytest.mark.parametrize("name", list(BUILD))
def test_it_is_the_sum_of_the_samples_gradients_each_clipped(name: str) -> None:
    assert_clipped(*_case(name))


class Computed(nn.Module):
    """A dense layer that computes its weight from a parameter."""

    def __init__(self, weight: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.v, self.weight = nn.Parameter(torch.randn(WIDTH, 16)), weight

    def forward(self, values: Tensor) -> Tensor:
        return functional.linear(values, self.weight(self.v))


WIDTH, BOUND = 1000, 1e-5
DENSE: dict[str, Callable[[], nn.Module]] = {
    "itself": lambda: nn.Linear(16, WIDTH),
    "positive": lambda: Computed(functional.softplus),
    "normalised": lambda: Computed(lambda v: functional.normalize(v, dim=1)),
}


@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("name", list(DENSE))
@given(slope=st.floats(-24, -21), size=st.floats(17, 18.5))
def test_a_gradient_is_clipped_where_the_square_of_a_factor_underflows(
    name: str, slope: float, size: float
) -> None:
    torch.manual_seed(0)
    module = DENSE[name]()
    with calls_of(Watched(nn.Sequential(module))) as calls:
        outputs = module(10**size * torch.rand(1, 16))
    clipped = clipped_sums(gradients_of(calls, (outputs * 10**slope).sum()), module, BOUND)
    norm = torch.stack([each.double().norm() for each in clipped.values()]).norm()
    assert norm <= BOUND * (1 + 1e-4)


@pytest.mark.parametrize("name", ["everything", "own", "tied"])
def test_a_sample_that_overflows_changes_no_other(name: str) -> None:
    assert_alone(*_case(name))


@pytest.mark.parametrize("name", [each for each in BUILD if each != "words"])  # no word is NaN
def test_a_batch_of_samples_that_all_overflow_adds_nothing(name: str) -> None:
    module, images, labels = _case(name)
    with calls_of(Watched(module)) as calls:
        loss = loss_of(module, images * torch.nan, labels)
    sums = clipped_sums(gradients_of(calls, loss), module, 1.0)
    assert all((each == 0).all() for each in sums.values())


def test_a_layer_of_a_users_own_leaves_the_others_alone() -> None:
    module = Own()
    with calls_of(Watched(module)) as calls:
        module(torch.randn(SAMPLES, *SHAPE))
    layers = [module.patches, module.gate, module.gate, module.norm, module.head]
    assert [getattr(each, "own", each).layer for each in calls] == layers


def test_a_subclass_counts_as_its_layer_if_its_calls_are_the_same() -> None:
    padded, _, normed, small = BUILD["subclasses"]()
    assert kind(small) is nn.Linear
    assert kind(padded) is Padded
    assert kind(Doubled(8, 8)) is Doubled
    assert kind(normed) is type(normed), "its weight is computed from others"


def test_convolutions_unfold_some_samples_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    module, images, labels = _case("volumes")
    found = list[dict[nn.Parameter, Tensor]]()
    for most in (convolution_gradients.UNFOLDED, 27 * 144 * 2, 1):  # all samples, two, one
        monkeypatch.setattr(convolution_gradients, "UNFOLDED", most)
        with calls_of(Watched(module)) as calls:
            loss = loss_of(module, images, labels)
        found.append(gradients_of(calls, loss).stacked())
    for other in found[1:]:
        assert all(torch.equal(each, other[p]) for p, each in found[0].items())


def test_a_dense_layer_that_is_called_several_times_is_not_held_for_each_sample() -> None:
    module, images, labels = _case("everything")
    with calls_of(Watched(module)) as calls:
        loss = loss_of(module, images, labels)
    again = {*module.get_submodule("again").parameters()}
    assert again.isdisjoint(gradients_of(calls, loss).parts)


def test_a_network_that_cannot_be_separated_is_left_to_opacus() -> None:
    assert is_separable(Everything())
    assert is_separable(Own())
    assert is_separable(Gate())
    assert not is_separable(nn.Sequential(nn.Linear(2, 2), DPLSTM(2, 2)))
    assert not is_separable(nn.Sequential(nn.EmbeddingBag(2, 2)))


def test_hooks_go_with_the_block() -> None:
    module, images, labels = _case("linear")
    with calls_of(Watched(module)) as calls:
        loss_of(module, images, labels)
    loss_of(module, images, labels)
    assert len(calls) == 1
