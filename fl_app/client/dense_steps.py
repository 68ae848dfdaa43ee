"""Steps of plain SGD on large dense layers, taken where the backward pass has their gradient.

A step otherwise writes the gradient of a layer to memory and reads it again. For a large layer and
a small batch that is a tenth of the time of a step.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.modules.module import _has_any_global_hook

from fl_app.client import dense_products
from fl_app.client.dense_products import fits, product

MANY = 16
"""Samples of a batch from which a product into memory of its own and a sum are faster than both in
one."""


class Rate(Protocol):
    """What a step needs of the settings of local training."""

    @property
    def learning_rate(self) -> float: ...


class _Stepped(torch.autograd.Function):
    """A dense layer whose backward pass changes its weight by `-rate` times the gradient."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, rate: float) -> Any:
        ctx.save_for_backward(inputs)
        ctx.weight, ctx.rate = weight, rate
        return product(inputs, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        (slope,), (inputs,) = slopes, ctx.saved_tensors
        before = product(slope, ctx.weight.T) if ctx.needs_input_grad[0] else None
        if len(inputs) < MANY:
            ctx.weight.addmm_(slope.T, inputs, alpha=-ctx.rate)
        else:
            ctx.weight.add_(product(slope.T, inputs.T), alpha=-ctx.rate)
        return before, None, slope.sum(0) if ctx.needs_input_grad[2] else None, None


def large_layers(module: nn.Module) -> list[nn.Linear]:
    """Return the large dense layers of a chain of layers of torch, each of which is used once.

    Empty for any other module, which might use a weight elsewhere too, and for layers with hooks,
    parametrisations or shared weights.
    """
    chain = _chain(module)
    if chain is None:
        return []
    uses = Counter(id(parameter) for layer in chain for parameter in layer.parameters())
    return [
        layer
        for layer in chain
        if type(layer) is nn.Linear
        and layer.weight.requires_grad
        and layer.weight.numel() >= dense_products.LARGE
        and layer.weight.dtype == torch.float32
        and uses[id(layer.weight)] == 1
    ]


def _chain(module: nn.Module) -> list[nn.Module] | None:
    """Return the layers of nested `nn.Sequential`s in order; None for anything else."""
    if not type(module).__module__.startswith("torch.nn.modules.") or _hooked(module):
        return None
    if type(module) is not nn.Sequential:
        return None if any(True for _ in module.children()) else [module]
    parts = [_chain(each) for each in module._modules.values() if each is not None]  # all uses
    return None if None in parts else [layer for part in parts for layer in part or ()]


def _hooked(module: nn.Module) -> bool:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    everywhere = _has_any_global_hook()  # type: ignore[no-untyped-call]
    if everywhere or any(getattr(module, kind) for kind in kinds):
        return True
    own = list(module.parameters(recurse=False))
    hooked = any(each._backward_hooks or each._post_accumulate_grad_hooks for each in own)
    return hooked or "forward" in vars(module)


@contextmanager
def stepped(layers: list[nn.Linear], settings: Rate) -> Iterator[None]:
    """Let the backward pass of what is computed in the block take the step of these weights.

    They get no gradient. The step `w <- w - lr gradient` has the gradient of the weights as they
    were, and the slopes of the layers before come from these too.
    """
    for layer in layers:
        layer.forward = partial(_step, layer, settings.learning_rate)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _step(layer: nn.Linear, rate: float, inputs: Tensor) -> Tensor:
    if inputs.dim() != 2 or not fits(inputs, layer.weight):
        return functional.linear(inputs, layer.weight, layer.bias)
    found: Tensor = _Stepped.apply(inputs, layer.weight, layer.bias, rate)
    return found
