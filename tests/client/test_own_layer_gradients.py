"""Layers of a user's own, whose products with large weights are recorded, against autograd."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parent))
from sample_references import assert_exact, found_of

from fl_app.client import own_layer_gradients
from fl_app.client.clipped_gradients import gradients_of
from fl_app.client.layer_calls import Watched, calls_of, is_separable

SIZE, SAMPLES = 6, 4


@pytest.fixture(autouse=True)
def _no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count every matrix as large."""
    monkeypatch.setattr(own_layer_gradients, "SMALL", 0)


class Own(nn.Module):
    """A layer that maps vectors, or steps of them, by a function of itself and of these."""

    def __init__(self, function: Callable[["Own", Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.w, self.v = (nn.Parameter(torch.randn(SIZE, SIZE)) for _ in range(2))
        self.b, self.scale = (nn.Parameter(torch.randn(SIZE)) for _ in range(2))
        self.inner, self.cube = nn.Linear(SIZE, SIZE), nn.Parameter(torch.randn(SIZE, SIZE, SIZE))
        self.words = nn.Embedding(SIZE, SIZE)

    def forward(self, given: Tensor) -> Tensor:
        return self.function(self, given)


def changed_in_place(layer: Own, x: Tensor) -> Tensor:
    found = functional.linear(x, layer.w)
    found[..., 0] *= 2
    return found.add_(layer.b).tanh_()


def attention(layer: Own, x: Tensor) -> Tensor:
    """Attend between the two halves of vectors."""
    given = ((x @ each).unflatten(-1, (2, -1)) for each in (layer.w, layer.v, layer.w.T))
    return functional.scaled_dot_product_attention(*given).flatten(-2)


def places(x: Tensor) -> Tensor:
    """Return rows to look up, some of them twice."""
    return (3 * x.detach().abs()).long().clamp(max=SIZE - 1)


class Halved(torch.autograd.Function):
    """A product with a parameter that torch shows to no one, with half of its gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, scale: Tensor) -> Tensor:
        return x * scale

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor]:
        x, scale = ctx.saved_tensors
        return slopes[0] * scale, (slopes[0] * x).reshape(-1, SIZE).sum(0) / 2


def hidden(layer: Own, x: Tensor) -> Tensor:
    """Use a weight where no one sees it."""
    with torch._C.DisableTorchFunction():
        return x @ layer.w


def of_each_sample(layer: Own, x: Tensor) -> Tensor:
    """Use another transformation inside."""
    return torch.func.grad(lambda each: (each @ layer.w).tanh().sum())(x)


APART: dict[str, Callable[[Own, Tensor], Tensor]] = {
    "linear": lambda layer, x: functional.linear(x, layer.w, layer.b).relu(),
    "named": lambda layer, x: functional.linear(input=x, weight=layer.w, bias=None),
    "inner": lambda layer, x: layer.inner(x).relu() * layer.scale,
    "matmul": lambda layer, x: x @ layer.w + layer.b,
    "turned": lambda layer, x: torch.matmul(x, layer.w.T).tanh(),
    "turned twice": lambda layer, x: functional.linear(x, layer.w.t().mT),
    "left": lambda layer, x: (layer.w @ x.mT).mT,
    "addmm": lambda layer, x: torch.addmm(layer.b, x.flatten(0, -2), layer.w.T).view_as(x),
    "einsum": lambda layer, x: torch.einsum("...i, ji -> ...j", x, layer.w),
    "twice": lambda layer, x: functional.linear(functional.linear(x, layer.w).sin(), layer.w),
    "both ways": lambda layer, x: functional.linear(functional.linear(x, layer.w).sin(), layer.w.T),
    "two": lambda layer, x: functional.linear(x, layer.w) * (x @ layer.v).sigmoid(),
    "in place": changed_in_place,
    "detached": lambda layer, x: x @ layer.w.detach() + functional.linear(x, layer.v),
    "attention": attention,
    "cube": lambda layer, x: (
        torch.einsum("...i,ijk->...k", x, layer.cube) + functional.linear(x, layer.w)
    ),
    "experts": lambda layer, x: torch.einsum("...i,Aio->...Ao", x, layer.cube).tanh().sum(-2),
    "experts first": lambda layer, x: (
        torch.einsum("eoi, ...i -> ...oe", layer.cube, x).sin().sum(-1)
    ),
    "own input of experts": lambda layer, x: torch.einsum(
        "...ei,eio->...eo", torch.einsum("...i,eio->...eo", x, layer.cube).sin(), layer.cube
    ).sum(-2),
    "two axes": lambda layer, x: torch.einsum(
        "...ij,ijk->...k", x[..., None] * x[..., None, :], layer.cube
    ),
    "matrices": lambda layer, x: (x.flatten(0, -2) @ layer.cube).sin().sum(0).view_as(x),
    "bmm": lambda layer, x: (
        torch.bmm(x.flatten(0, -2).expand(SIZE, -1, -1), layer.cube).sin().sum(0).view_as(x)
    ),
    "matrices first": lambda layer, x: (
        torch.matmul(layer.cube, x.flatten(0, -2).mT).sin().sum(0).mT.reshape(x.shape)
    ),
    "of one vector": lambda layer, x: (
        torch.stack([layer.cube @ row for row in x.flatten(0, -2)]).sin().sum(1).view_as(x)
    ),
    "diagonal of a cube": lambda layer, x: torch.einsum("...i,iij->...j", x, layer.cube),
    "matrix in another order": lambda layer, x: torch.einsum("ij,...i->j...", layer.w, x).movedim(
        0, -1
    ),
    "matrices of a vector": lambda layer, x: (
        (x[..., None, None, :] @ layer.cube).sin().sum((-2, -3))
    ),
    "kernels": lambda layer, x: (
        functional.conv1d(x.flatten(0, -2)[:, :, None], layer.cube, padding=3).sum(2).view_as(x)
    ),
    "embedding": lambda layer, x: x * functional.embedding(places(x), layer.w, 2).sum(-2),
    "words": lambda layer, x: x * layer.words(places(x)).mean(-2),
    "lookup": lambda layer, x: x * layer.w[places(x) - 1].sin().sum(-2),
    "select": lambda layer, x: (
        x * layer.w.index_select(0, places(x).flatten()).sin().unflatten(0, x.shape).sum(-2)
    ),
    "lookup and product": lambda layer, x: x @ layer.w + layer.w[places(x).sum(-1) % SIZE],
    "scaled": lambda layer, x: functional.linear(x, 2 * layer.w) + functional.linear(x, layer.w),
    "rows": lambda layer, x: functional.linear(x, torch.cat([layer.w[:2], layer.w[2:]])),
    "product": lambda layer, x: x @ (layer.w @ layer.v),
    "bias, too": lambda layer, x: functional.linear(x, layer.w, layer.w[0]),
    "scales": lambda layer, x: torch.addmm(layer.b, x.flatten(0, -2), layer.w, alpha=2).view_as(x),
    "norm": lambda layer, x: functional.linear(x, layer.w) / (1 + layer.w.norm()),
    "columns": lambda layer, x: x * layer.w.T[places(x)].sum(-2),
    "diagonal": lambda layer, x: torch.einsum("...i,ii->...i", x, layer.w),
    "summed": lambda layer, x: x + torch.einsum("...i,jk->...", x, layer.w)[..., None],
    "own function": lambda layer, x: Halved.apply(x @ layer.w, layer.scale),
    "own function of a row": lambda layer, x: Halved.apply(x @ layer.w, layer.w[0]),
    "bilinear": lambda layer, x: functional.bilinear(x, x @ layer.w, layer.cube, layer.b),
    "in other order": lambda layer, x: functional.linear(x.flip(0), layer.w).flip(0),
    "steps first": lambda layer, x: functional.linear(x.transpose(0, -2), layer.w).transpose(0, -2),
}
WHOLE: dict[str, Callable[[Own, Tensor], Tensor]] = {
    "transformed": of_each_sample,
    "hidden": hidden,
    "hidden beside it": lambda layer, x: x @ layer.w + hidden(layer, x),
    "no rule for vmap": lambda layer, x: (
        (x @ layer.w).flatten(0, -2).renorm(2, 0, 1.0).view_as(x)  # each row by itself
    ),
}


STEPS = ("own function", "norm", "product", "bias, too", "hidden",
         "linear", "inner", "attention", "turned", "left", "einsum", "two", "in place",
         "embedding", "lookup", "scaled", "rows", "norm")  # fmt: skip


def _given(*shape: int) -> Tensor:
    return torch.randn(SAMPLES, *shape, SIZE, dtype=torch.double)


@pytest.mark.parametrize("steps", [(), (3,), (2, SAMPLES)])
@pytest.mark.parametrize("name", list(APART))
def test_products_with_weights_are_recorded(name: str, steps: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    layer = Own(APART[name]).double()
    watched = assert_exact(layer, _given(*steps))
    assert [each.apart for each in watched.own.values()] == [True]


CUBES = ("experts", "experts first", "own input of experts", "two axes", "matrices", "bmm",
         "matrices first", "of one vector", "matrices of a vector")  # fmt: skip


@pytest.mark.parametrize("name", CUBES)
def test_no_cube_is_held_for_each_sample(name: str) -> None:
    torch.manual_seed(0)
    layer = Own(APART[name])
    found, _ = found_of(layer, torch.randn(SAMPLES, 3, SIZE))
    once = [part for part, _ in found.products if layer.cube in part.trained()]
    twice = name in ("own input of experts", "of one vector")
    assert (len(once), layer.cube in found.parts) == ((0, True) if twice else (1, False))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("steps", [(), (3,)])
@pytest.mark.parametrize("name", list(WHOLE))
def test_any_other_use_of_a_weight_is_noticed(name: str, steps: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    layer = Own(WHOLE[name]).double()
    watched = assert_exact(layer, _given(*steps))
    assert [each.apart for each in watched.own.values()] == [False]


@settings(max_examples=25, deadline=None)
@given(
    names=st.lists(st.sampled_from(STEPS), min_size=1, max_size=3),
    steps=st.sampled_from([(), (1,), (3,)]),
    seed=st.integers(0, 99),
)
def test_any_sequence_of_uses_is_exact(names: list[str], steps: tuple[int, ...], seed: int) -> None:
    def every(layer: Own, x: Tensor) -> Tensor:
        for name in names:
            x = (APART | WHOLE)[name](layer, x)
        return x

    torch.manual_seed(seed)
    assert_exact(Own(every).double(), _given(*steps))


class Stored(nn.Module):
    """A layer whose product with a weight leaves it in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.scale = nn.Parameter(torch.randn(SIZE, SIZE)), nn.Parameter(torch.ones(SIZE))

    def forward(self, given: Tensor) -> Tensor:
        self.weight_of_all = self.w.square().sum()
        return functional.linear(given, self.w) * self.scale


def test_a_use_that_leaves_the_layer_by_another_way_is_noticed() -> None:
    layer = Stored()
    module = nn.Sequential(layer)
    with calls_of(Watched(module)) as calls:
        loss = module(torch.randn(SAMPLES, SIZE)).sum() + layer.weight_of_all
    assert gradients_of(calls, loss).parts.keys() == {layer.w, layer.scale}


def test_a_weight_that_a_known_layer_shares_is_noticed() -> None:
    torch.manual_seed(0)
    own, known = Own(APART["linear"]), nn.Linear(SIZE, SIZE)
    known.weight = own.w
    assert_exact(nn.Sequential(own, known).double(), _given())


def test_a_layer_that_is_inside_and_outside_of_another_is_exact() -> None:
    torch.manual_seed(0)
    own = Own(APART["inner"])
    assert_exact(nn.Sequential(own, own.inner).double(), _given(2))


def test_hooks_of_a_layer_run_once() -> None:
    torch.manual_seed(0)
    own = Own(APART["linear"])
    own.register_forward_hook(lambda layer, given, output: 3 * output)
    assert_exact(nn.Sequential(own).double(), _given())


def test_samples_are_where_a_transformer_has_them() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(SIZE, 2, SIZE, dropout=0.0)
    layer.linear1 = Own(APART["in place"])
    module = nn.Sequential(Turned(), layer, Turned())
    watched = assert_exact(module.double(), _given(3))
    assert [(each.axis, each.apart) for each in watched.own.values()] == [(1, True)]


def test_a_network_can_be_such_a_layer() -> None:
    torch.manual_seed(0)
    own = Own(APART["two"]).double()
    assert is_separable(own)
    with calls_of(Watched(own)) as calls:
        loss = own(_given()).square().sum()
    assert len(calls) == 1
    assert gradients_of(calls, loss).products


class Turned(nn.Module):
    """Swaps samples and steps."""

    def forward(self, given: Tensor) -> Tensor:
        return given.transpose(0, 1)


@pytest.mark.parametrize("name", ["linear", "experts"])
def test_an_input_that_is_changed_after_its_product_is_an_error(name: str) -> None:
    def changed(layer: Own, x: Tensor) -> Tensor:
        found = APART[name](layer, x)
        x += 1
        return found

    with pytest.raises(RuntimeError, match="modified in place"):
        found_of(Own(changed), torch.randn(SAMPLES, SIZE))


def test_a_layer_has_its_parameters_back_after_an_error() -> None:
    def failing(layer: Own, x: Tensor) -> Tensor:
        raise ArithmeticError

    layer = Own(failing)
    before = dict(layer.named_parameters())
    with pytest.raises(ArithmeticError):
        found_of(layer, torch.randn(SAMPLES, SIZE))
    assert all(each is before[name] for name, each in layer.named_parameters())
    assert "_call_impl" not in vars(layer)
