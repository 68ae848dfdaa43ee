"""Dense layers that step during the backward pass, beside the ordinary optimiser."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from fl_app.client import dense_steps as under_test
from fl_app.client.dense_steps import dense_steps
from fl_app.client.networks import mcmahan_cnn
from fl_app.client.training import train


@dataclass(frozen=True)
class Local:
    """Settings of local training."""

    epochs: int = 2
    batch_size: int = 4
    learning_rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal: float = 0.0
    precision: str = "fp32"


@pytest.fixture(autouse=True)
def _small_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "LEAST_WEIGHTS", 1)
    monkeypatch.setattr(under_test, "BLOCK_ROWS", 3)  # the last block of 8 rows has 2


def _dense(*, bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    first, last = nn.Linear(6, 8, bias=bias), nn.Linear(8, 3, bias=bias)
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), last)


def _trained(
    module: nn.Module, settings: Local, *, ordinary: bool = False, images: Tensor | None = None
) -> tuple[Tensor, float]:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(10, 6, generator=generator) if images is None else images
    labels = torch.arange(len(images)) % 3
    loss = train(
        module, images, labels, settings, generator=torch.Generator().manual_seed(2),
        # a bound that no gradient reaches leaves the steps as they are, but needs the gradients
        clip_norm=1e9 if ordinary else None,
    )  # fmt: skip
    return torch.cat([each.detach().reshape(-1) for each in module.parameters()]), loss


def test_a_step_by_hand() -> None:
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2.0]]))
        layer.bias.copy_(torch.tensor([0.5]))
    inputs = torch.tensor([[1.0, 3.0], [2.0, -1.0]], requires_grad=True)
    with dense_steps(nn.Sequential(layer), 0.1):
        answers = layer(inputs)
        (answers * torch.tensor([[1.0], [2.0]])).sum().backward()
    assert answers.tolist() == [[7.5], [0.5]]
    # dL/dW = 1 * (1, 3) + 2 * (2, -1) = (5, 1), dL/db = 1 + 2
    assert layer.weight.flatten().tolist() == pytest.approx([0.5, 1.9])
    assert layer.bias.tolist() == pytest.approx([0.2])
    assert layer.weight.grad is None
    assert layer.bias.grad is None
    assert inputs.grad is not None
    assert inputs.grad.tolist() == [[1.0, 2.0], [2.0, 4.0]]


@pytest.mark.parametrize("bias", [True, False])
def test_training_is_the_same_as_with_gradients(bias: bool) -> None:
    fast, loss = _trained(_dense(bias=bias), Local())
    plain, expected = _trained(_dense(bias=bias), Local(), ordinary=True)
    torch.testing.assert_close(fast, plain, rtol=1e-6, atol=1e-7)
    assert loss == pytest.approx(expected, rel=1e-6)


def test_the_cnn_trains_as_with_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # its layer of 3136 x 512 is large enough

    def trained(*, ordinary: bool) -> Tensor:
        torch.manual_seed(0)
        module = mcmahan_cnn((1, 28, 28), 10)
        images = torch.randn(8, 1, 28, 28, generator=torch.Generator().manual_seed(3))
        return _trained(module, Local(epochs=1), ordinary=ordinary, images=images)[0]

    fast, plain = trained(ordinary=False), trained(ordinary=True)
    torch.testing.assert_close(fast, plain, rtol=1e-6, atol=1e-7)


def test_the_layers_are_as_before_afterwards() -> None:
    module = _dense()
    seen = _watched(module)
    with pytest.raises(RuntimeError, match="shape"), dense_steps(module, 0.1):
        module(torch.ones(1, 5))
    assert seen == [[1, 3]]
    assert _stepping(module) == []
    module(torch.ones(1, 6)).sum().backward()
    assert all(each.grad is not None for each in module.parameters())


def _stepping(module: nn.Module) -> list[int]:
    """Return the indices of the layers of a sequence that step in the backward pass."""
    children = list(module.children())
    return [row for row, each in enumerate(children) if "forward" in each.__dict__]


def _watched(module: nn.Module) -> list[list[int]]:
    """Return a list to which each forward pass appends what `_stepping` returns."""
    seen = list[list[int]]()
    module.register_forward_pre_hook(lambda *_: seen.append(_stepping(module)))
    return seen


class Users(nn.Module):
    """A module of a user, which could reach other layers."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the inputs."""
        return inputs


def _tied(module: nn.Sequential) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), *module).apply(_share)


def _share(module: nn.Module) -> None:
    if isinstance(module, nn.Sequential):
        module[1].weight = module[0].weight


def _twice(module: nn.Sequential) -> nn.Module:
    square = nn.Linear(6, 6)
    return nn.Sequential(square, nn.ReLU(), square, *module)


def _hooked(module: nn.Sequential) -> nn.Module:
    for each in module.parameters():
        each.register_hook(lambda gradient: gradient * 2)
    return module


def _noticed(module: nn.Sequential) -> nn.Module:
    for each in module.parameters():
        each.register_post_accumulate_grad_hook(lambda parameter: None)
    return module


def _frozen(module: nn.Sequential) -> nn.Module:
    module[1].requires_grad_(False)
    module[3].bias.requires_grad_(False)
    return module


def _nested(module: nn.Sequential) -> nn.Module:
    return nn.Sequential(nn.Sequential(*module))


def _with_users(module: nn.Sequential) -> nn.Module:
    return nn.Sequential(Users(), *module)


def _double(module: nn.Sequential) -> nn.Module:
    return module.double()


UNUSUAL: dict[str, tuple[Callable[[nn.Sequential], nn.Module], list[int]]] = {
    "tied weights": (_tied, [3, 5]),
    "a layer twice": (_twice, []),
    "hooks": (_hooked, []),
    "hooks after": (_noticed, []),
    "frozen": (_frozen, []),
    "nested": (_nested, []),
    "a user's module": (_with_users, []),
    "double precision": (_double, []),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_other_layers_train_as_usual(name: str) -> None:
    change, stepping = UNUSUAL[name]
    module = change(_dense())
    with dense_steps(module, 0.1):
        assert _stepping(module) == stepping
    if name == "double precision":
        return
    fast, _ = _trained(change(_dense()), Local())
    plain, _ = _trained(change(_dense()), Local(), ordinary=True)
    torch.testing.assert_close(fast, plain, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("setting", "value"),
    [*product(("momentum", "weight_decay", "proximal"), (0.5,)), ("precision", "bf16")],
)
def test_more_than_a_learning_rate_needs_the_gradients(setting: str, value: object) -> None:
    module = _dense()
    seen = _watched(module)
    _trained(module, Local(**{setting: value}))  # type: ignore[arg-type]
    assert seen == [[]] * 6


def test_plain_sgd_steps_in_the_backward_pass() -> None:
    module = _dense()
    seen = _watched(module)
    _trained(module, Local())
    assert seen == [[1, 3]] * 6  # two epochs of three batches


def test_small_layers_keep_their_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "LEAST_WEIGHTS", 48)
    module = _dense()
    with dense_steps(module, 0.1):
        assert _stepping(module) == [1]  # 8 x 6 weights, the other has 3 x 8
