"""SGD steps of dense layers during the backward pass, without a gradient of their weights.

A large dense layer has few samples in a batch, so that its step is bound by memory: its gradient is
written, read by the optimiser and freed. Here each block of rows is updated by its gradient while
this is still in the processor's cache.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

LEAST_WEIGHTS = 2**18
"""Weights of a layer from which it pays: a gradient of 1 MiB."""
BLOCK_ROWS = 64
"""Rows updated at a time, so few that their gradient stays in the processor's cache."""


@contextmanager
def dense_steps(module: nn.Module, learning_rate: float) -> Iterator[None]:
    """Let each backward pass in the block also be the step of plain SGD of the large dense layers.

    W becomes `W - learning_rate * dL/dW`. The parameters of these layers get no gradient, so that
    an optimiser skips them. All layers train as usual in a module that could use a weight elsewhere
    than in the one call of its layer: see `_layers`.
    """
    chosen = _layers(module)
    for layer in chosen:
        # an instance's own function hides the method of its class
        layer.__dict__["forward"] = partial(_forward, layer, learning_rate)
    try:
        yield
    finally:
        for layer in chosen:
            del layer.__dict__["forward"]


def _layers(module: nn.Module) -> list[nn.Linear]:
    """Return the dense layers that can be updated during the backward pass.

    They are called once in a forward pass and nothing else uses their weights: a sequence of
    layers of torch calls each of them in turn. Nothing observes their gradients.
    """
    parts = list(module.modules())
    if type(module) is not nn.Sequential or len(parts) != 1 + len(module):
        return []  # other modules call their layers as they like, or a layer twice
    if any(not type(part).__module__.startswith("torch.nn.modules.") for part in parts):
        return []
    users = [id(each) for part in parts for each in part._parameters.values() if each is not None]
    return [
        part
        for part in parts
        if type(part) is nn.Linear
        and part.weight.numel() >= LEAST_WEIGHTS
        and "forward" not in part.__dict__
        and all(_is_plain(each) and users.count(id(each)) == 1 for each in part.parameters())
    ]


def _is_plain(parameter: nn.Parameter) -> bool:
    """Whether a parameter is trained on the CPU in single precision, and without a hook."""
    simple = type(parameter) is nn.Parameter and parameter.is_contiguous()
    there = parameter.device.type == "cpu" and parameter.dtype == torch.float32
    hooked = parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None)
    return simple and there and parameter.requires_grad and not hooked


def _forward(layer: nn.Linear, learning_rate: float, inputs: Tensor) -> Tensor:
    if inputs.dim() != 2 or not torch.is_grad_enabled():
        return nn.functional.linear(inputs, layer.weight, layer.bias)
    found: Tensor = _DenseStep.apply(inputs, layer.weight, layer.bias, learning_rate)
    return found


class _DenseStep(torch.autograd.Function):
    """Returns `x W^T + b` (s, o) of x (s, i), W (o, i) and b (o,); backward steps W and b."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, learning_rate: float
    ) -> Tensor:
        ctx.save_for_backward(inputs)
        ctx.weight, ctx.bias, ctx.learning_rate = weight, bias, learning_rate
        return nn.functional.linear(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (inputs,) = ctx.saved_tensors
        weight, bias, rate = ctx.weight, ctx.bias, ctx.learning_rate
        back = gradient @ weight if ctx.needs_input_grad[0] else None  # by the weights before
        if bias is not None:
            bias.add_(gradient.sum(0), alpha=-rate)
        room = torch.empty(min(BLOCK_ROWS, len(weight)), weight.shape[1])
        columns = gradient.t().contiguous()
        blocks = torch.split(weight, BLOCK_ROWS), torch.split(columns, BLOCK_ROWS)
        for rows, part in zip(*blocks, strict=True):
            rows.add_(torch.mm(part, inputs, out=room[: len(rows)]), alpha=-rate)
        return back, None, None, None
