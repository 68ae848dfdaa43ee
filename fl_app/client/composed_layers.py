"""Layers of torch that it computes as a whole, here composed of products with weights.

A product that is seen by itself has gradients of samples. The functions of torch are replaced, so
that a layer does the rest by its own code, also inside a layer of a user's own.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fl_app.client.weight_products import Product, WeightRows, multiply

Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""Returns inputs (..., i) times a weight (j, ...) of as many columns, plus a bias (j,)."""


def composes(layer: nn.Module) -> bool:
    """Whether `compose` computes what a layer does, with its parameters alone."""
    if type(layer) not in (nn.Bilinear, nn.GRUCell, nn.LSTMCell, nn.RNNCell):
        return False
    names = ("weight", "bias") if isinstance(layer, nn.Bilinear) else (
        "weight_ih", "weight_hh", "bias_ih", "bias_hh")  # fmt: skip
    return all(name in layer._parameters for name in names)


def compose(layer: nn.Module, products: list[Product], *inputs: Any, **named: Any) -> Any:
    """Return what the layer returns for these arguments, and add its products to `products`."""

    def linear(given: Tensor, weight: Any, bias: Any) -> Tensor:
        rows = given.reshape(len(given), -1, given.shape[-1]).transpose(0, 1)
        added = None if bias is None else WeightRows(bias)
        found = multiply(products, WeightRows(weight), added, rows).transpose(0, 1)
        return found.reshape(*given.shape[:-1], found.shape[2])

    with _Composed(linear):
        return type(layer).forward(layer, *inputs, **named)


class _Composed(TorchFunctionMode):
    """Computes the functions of COMPOSED by their products."""

    def __init__(self, linear: Linear) -> None:
        super().__init__()
        self.linear = linear

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return what a function of torch does."""
        rule = COMPOSED.get(func)
        return rule(self.linear, *args, **kwargs or {}) if rule else func(*args, **kwargs or {})


def bilinear(
    linear: Linear, first: Tensor, second: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Return the sums over i and j of `first_i weight_kij second_j`, plus a bias."""
    pairs = (first[..., :, None] * second[..., None, :]).flatten(-2)
    return linear(pairs, weight, bias)


def gru_cell(linear: Linear, given: Tensor, hidden: Tensor, *weights: Any) -> Tensor:
    """Return the next hidden state `(1 - z) n + z h`."""
    of_given, of_hidden = _gates(linear, given, hidden, *weights)
    size = hidden.shape[-1]
    r, z = (of_given[..., : 2 * size] + of_hidden[..., : 2 * size]).sigmoid().chunk(2, -1)
    new = (of_given[..., 2 * size :] + r * of_hidden[..., 2 * size :]).tanh()
    return new + z * (hidden - new)


def lstm_cell(
    linear: Linear, given: Tensor, states: tuple[Tensor, Tensor], *weights: Any
) -> tuple[Tensor, Tensor]:
    """Return the next hidden and cell states."""
    hidden, cell = states
    of_given, of_hidden = _gates(linear, given, hidden, *weights)
    i, f, g, o = (of_given + of_hidden).chunk(4, -1)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def rnn_tanh_cell(linear: Linear, given: Tensor, hidden: Tensor, *weights: Any) -> Tensor:
    """Return the next hidden state."""
    of_given, of_hidden = _gates(linear, given, hidden, *weights)
    return (of_given + of_hidden).tanh()


def rnn_relu_cell(linear: Linear, given: Tensor, hidden: Tensor, *weights: Any) -> Tensor:
    """Return the next hidden state."""
    of_given, of_hidden = _gates(linear, given, hidden, *weights)
    return (of_given + of_hidden).relu()


def _gates(
    linear: Linear, given: Tensor, hidden: Tensor, of_given: Tensor, of_hidden: Tensor,
    bias: Tensor | None = None, other: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return what inputs and hidden states add to the gates."""
    return linear(given, of_given, bias), linear(hidden, of_hidden, other)


_TORCH: Any = torch
COMPOSED: dict[Any, Callable[..., Any]] = {
    functional.bilinear: bilinear, torch.gru_cell: gru_cell, _TORCH.lstm_cell: lstm_cell,
    _TORCH.rnn_tanh_cell: rnn_tanh_cell, _TORCH.rnn_relu_cell: rnn_relu_cell,
}  # fmt: skip
"""What composes a function of torch, from `linear` and the function's arguments."""
