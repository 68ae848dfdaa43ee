"""Products of large dense layers by oneDNN, beside those of torch."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from fl_app.client import dense_products
from fl_app.client.dense_products import multiplied, product, without_weights
from fl_app.client.training import train
from tests.client.test_dense_steps import Plain

NONE = dense_products._ONEDNN is None
pytestmark = pytest.mark.skipif(NONE, reason="this build of torch has no oneDNN")


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Return the shapes of the weights that oneDNN multiplies, where every layer is large."""
    shapes, found = list[tuple[int, ...]](), dense_products._ONEDNN

    def noted(inputs: Tensor, weight: Tensor, *others: Any) -> Tensor:
        shapes.append(tuple(weight.shape))
        given: Tensor = found(inputs, weight, *others)
        return given

    monkeypatch.setattr(dense_products, "LARGE", 1)
    monkeypatch.setattr(dense_products, "_ONEDNN", noted)
    return shapes


class Own(nn.Module):
    """A network of one's own on sequences (s, 5, 4): tied weights, a frozen layer, a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 6, bias=False)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.last = nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits (s, 3)."""
        inside = torch.tanh(self.first(inputs.float()))
        inside = inside + checkpoint(self.second, self.second(inside), use_reentrant=False)
        found: Tensor = self.last(self.frozen(inside).mean(1))
        return found


def _data() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1)
    return torch.randn(30, 5, 4, generator=draw), torch.randint(3, (30,), generator=draw)


def _trained(settings: Plain) -> list[Tensor]:
    module, draw = Own(), torch.Generator().manual_seed(2)
    train(module, *_data(), settings, generator=draw)  # type: ignore[arg-type]
    assert not any("forward" in vars(each) for each in module.modules())
    return [each.detach() for each in module.parameters()]


@pytest.mark.parametrize("settings", [Plain(), Plain(momentum=0.9), Plain(proximal=0.1)])
def test_a_network_of_ones_own_trains_as_with_torch(
    settings: Plain, products: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _trained(settings)
    assert {(6, 4), (6, 6), (3, 6)} <= set(products)
    monkeypatch.setattr(dense_products, "LARGE", 10**9)
    for one, another in zip(found, _trained(settings), strict=True):
        torch.testing.assert_close(one, another, rtol=1e-5, atol=1e-5)


def test_a_gradient_can_be_differentiated(products: list[tuple[int, ...]]) -> None:
    layer, inputs = nn.Linear(4, 3), torch.randn(7, 4, requires_grad=True)

    def penalty() -> Tensor:
        (slope,) = torch.autograd.grad(layer(inputs).exp().sum(), inputs, create_graph=True)
        (found,) = torch.autograd.grad(slope.square().sum(), layer.weight)
        return found

    with multiplied(layer):
        found = penalty()
    assert products
    torch.testing.assert_close(found, penalty(), rtol=1e-5, atol=1e-5)


def test_what_is_not_usual_is_left_to_torch(products: list[tuple[int, ...]]) -> None:
    layer, inputs = nn.Linear(4, 3), torch.randn(7, 4)
    wanted = layer(inputs)
    with multiplied(layer):
        torch.testing.assert_close(torch.func.vmap(layer)(inputs), wanted)
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(inputs).dtype == torch.bfloat16
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            layer(torch.ones(2, 5))
        with pytest.raises(RuntimeError, match="dtype"):
            layer(inputs.double())
        assert layer(torch.ones(4)).shape == (3,)
    assert not products


def test_a_forward_of_ones_own_stays(products: list[tuple[int, ...]]) -> None:
    layer = nn.Linear(4, 3)
    own = deepcopy(layer).forward
    layer.forward = own  # type: ignore[method-assign]
    with multiplied(layer):
        layer(torch.ones(2, 4))
    assert layer.forward is own
    assert not products


@pytest.mark.parametrize("samples", [1, 10, 50])
def test_a_product_of_onednn_is_that_of_torch(samples: int) -> None:
    draw = torch.Generator().manual_seed(3)
    inputs, bias = torch.randn(samples, 600, generator=draw), torch.randn(70, generator=draw)
    weight = torch.randn(70, 600, generator=draw) / 600**0.5
    slope = torch.ones(()).expand(samples, 70)  # of a sum: no memory of its own
    for some, other, more in (
        (inputs, weight, bias),
        (slope, weight.T, None),
        (slope.T, inputs.T, None),
    ):
        wanted = functional.linear(some, other, more)
        torch.testing.assert_close(product(some, other, more), wanted, rtol=1e-5, atol=1e-5)


def test_large_products_are_those_of_torch(
    monkeypatch: pytest.MonkeyPatch, products: list[tuple[int, ...]]
) -> None:
    inputs, weight, added = torch.randn(5, 4), torch.randn(3, 4), torch.randn(5, 3)
    for most in (1, dense_products.PRODUCT):
        monkeypatch.setattr(dense_products, "PRODUCT", most)
        for more in (None, added):
            found = dense_products.large_product(inputs, weight, more)
            torch.testing.assert_close(found, inputs @ weight.T + (0 if more is None else more))
    assert len(products) == 2


@pytest.mark.parametrize("steps", [(), (3,)])
@pytest.mark.parametrize("needed", [False, True])
def test_a_layer_without_its_weights_has_the_gradient_of_its_output_alone(
    steps: tuple[int, ...], needed: bool, products: list[tuple[int, ...]]
) -> None:
    torch.manual_seed(0)
    layer, given = nn.Linear(4, 6), torch.randn(5, *steps, 4, requires_grad=needed)
    output = without_weights(layer, given)
    torch.testing.assert_close(output, layer(given))
    wanted = [output, *layer.parameters(), *([given] if needed else [])]
    loss = output.square().sum()
    of_output, weight, bias, *rest = torch.autograd.grad(loss, wanted, allow_unused=True)
    torch.testing.assert_close(of_output, 2 * output)
    assert weight is bias is None
    assert products == [(6, 4)] + [(4, 6)] * needed
    for each in rest:
        torch.testing.assert_close(each, 2 * output @ layer.weight)
