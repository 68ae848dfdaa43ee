"""Steps of large dense layers in the backward pass, beside those of torch's own SGD."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from fl_app.client import dense_products
from fl_app.client.dense_steps import large_layers, stepped
from fl_app.client.training import train

INSIDE = 40


@dataclass(frozen=True)
class Plain:
    """Settings of plain SGD."""

    epochs: int = 2
    batch_size: int = 8
    learning_rate: float = 0.3
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal: float = 0.0
    precision: str = "fp32"
    batch_norm: str = "average"
    learner: None = None


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense_products, "LARGE", INSIDE)


def _chain() -> nn.Sequential:
    torch.manual_seed(0)
    head = nn.Sequential(nn.Linear(6, 20, bias=False), nn.Tanh(), nn.Linear(20, 3))
    return nn.Sequential(nn.Flatten(), nn.Linear(8, 6), nn.ReLU(), head)


def _data() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1)
    return torch.randn(30, 1, 2, 4, generator=draw), torch.randint(3, (30,), generator=draw)


def _trained(module: nn.Module, settings: Plain) -> tuple[list[Tensor], float]:
    draw = torch.Generator().manual_seed(2)
    loss = train(module, *_data(), settings, generator=draw)  # type: ignore[arg-type]
    return [each.detach().clone() for each in module.parameters()], loss


@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("batch_size", [8, 20])  # 20: MANY of the first batch, not of the last
def test_the_steps_are_those_of_torch(
    batch_size: int, onednn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, settings = _chain(), Plain(batch_size=batch_size)
    assert len(large_layers(module)) == 3
    if not onednn:
        monkeypatch.setattr(dense_products, "_ONEDNN", None)
    found, loss = _trained(deepcopy(module), settings)
    monkeypatch.setattr("fl_app.client.training.large_layers", lambda module: [])
    wanted, other = _trained(module, settings)
    assert loss == pytest.approx(other, rel=1e-6)
    for one, another in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, another, rtol=1e-5, atol=1e-6)


def test_a_step_by_hand() -> None:
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, -1.0]]))
    inputs = torch.tensor([[3.0, 5.0]], requires_grad=True)
    with stepped([layer], Plain(learning_rate=0.5)):
        answer = layer(inputs)
    torch.autograd.backward(2 * answer.sum())
    assert layer.weight.tolist() == [[1 - 0.5 * 2 * 3, -1 - 0.5 * 2 * 5]]
    assert layer.weight.grad is None
    assert layer.bias.grad is not None
    assert layer.bias.grad.tolist() == [2.0]
    assert inputs.grad is not None
    assert inputs.grad.tolist() == [[2.0, -2.0]]  # of the weights before the step
    assert "forward" not in vars(layer)


class _Reading(nn.Module):
    """Uses the weight of a layer a second time."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 6)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.body(inputs.flatten(1)) + self.body.weight.sum(1)
        return found


def _tied() -> nn.Module:
    first, second = nn.Linear(8, 8), nn.Linear(8, 8)
    second.weight = first.weight
    return nn.Sequential(nn.Flatten(), first, second)


def _with_hook(register: Callable[[nn.Linear], object]) -> nn.Module:
    module = _chain()
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            register(layer)
    return module


def _frozen() -> nn.Module:
    return _chain().requires_grad_(False)


def _twice() -> nn.Module:
    layer = nn.Linear(8, 8)
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer)


@pytest.mark.parametrize(
    "module",
    [
        _Reading(),
        nn.Sequential(nn.Flatten(), _Reading()),
        _tied(),
        _twice(),
        _frozen(),
        _with_hook(lambda layer: layer.register_forward_hook(lambda *_: None)),
        _with_hook(lambda layer: layer.register_full_backward_hook(lambda *_: None)),
        _with_hook(lambda layer: layer.weight.register_hook(lambda gradient: None)),
        _with_hook(
            lambda layer: layer.weight.register_post_accumulate_grad_hook(lambda weight: None)
        ),
        _with_hook(parametrizations.weight_norm),
        _with_hook(parametrizations.spectral_norm),
        _chain().double(),
    ],
)
def test_any_other_network_goes_the_general_way(module: nn.Module) -> None:
    assert large_layers(module) == []


@pytest.mark.parametrize(
    "changed",
    [{"momentum": 0.9}, {"weight_decay": 0.1}, {"proximal": 0.1}, {"precision": "bf16"}],
)
def test_any_other_training_goes_the_general_way(
    changed: dict[str, float | str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(module: nn.Module) -> list[nn.Linear]:
        raise AssertionError

    monkeypatch.setattr("fl_app.client.training.large_layers", fail)
    _trained(_chain(), Plain(**changed))  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        _trained(_chain(), Plain())
    draw, module = torch.Generator(), _chain()
    given = module, *_data(), Plain()
    train(*given, generator=draw, clip_norm=1.0)  # type: ignore[arg-type]
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    train(*given, generator=draw, optimiser=optimiser)  # type: ignore[arg-type]


def test_inputs_of_a_wrong_width_have_the_error_of_torch() -> None:
    layer = nn.Linear(8, 6)
    with stepped([layer], Plain()), pytest.raises(RuntimeError, match="shapes cannot be mult"):
        layer(torch.ones(2, 7))


def test_inputs_of_more_dimensions_have_the_gradient_of_torch() -> None:
    layer = nn.Linear(8, 6)
    before = layer.weight.detach().clone()
    with stepped([layer], Plain()):
        answers = layer(torch.ones(2, 3, 8))
    torch.autograd.backward(functional.mse_loss(answers, torch.zeros(2, 3, 6)))
    assert layer.weight.grad is not None
    assert torch.equal(layer.weight, before)
