"""Products of large dense layers by oneDNN, which `functional.linear` does not use in float32.

On AMD's cores oneDNN takes half the time of MKL. A step of a network for images, half of which are
convolutions, takes a sixth less.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

LARGE = 2**18
"""Entries of a weight from which it does not stay in the caches of a core."""
PRODUCT = 2**20
"""Multiplications from which oneDNN is faster although a call of it takes longer."""
_ONEDNN = getattr(torch.ops.mkldnn, "_linear_pointwise", None)


def product(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `inputs weight^T + bias` (s, out) of inputs (s, in) and weight (out, in), float32."""
    if _ONEDNN is None:
        return functional.linear(inputs, weight, bias)
    found: Tensor = _ONEDNN(inputs, weight, bias, "none", [], "")
    return found


def large_product(inputs: Tensor, weight: Tensor, added: Tensor | None = None) -> Tensor:
    """Return `inputs weight^T + added` (s, out), by oneDNN if that takes less time."""
    if len(inputs) * weight.numel() >= PRODUCT and fits(inputs, weight):
        found = product(inputs, weight)
        return found if added is None else found.add_(added)
    return inputs @ weight.T if added is None else torch.addmm(added, inputs, weight.T)


class _Multiplied(torch.autograd.Function):
    """A dense layer (s, in) -> (s, out)."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
        ctx.save_for_backward(inputs, weight)
        return product(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        (slope,), (inputs, weight) = slopes, ctx.saved_tensors
        # a gradient that is itself differentiated needs products that torch can differentiate
        multiply = functional.linear if torch.is_grad_enabled() else product
        before, step, shift = ctx.needs_input_grad
        return (
            multiply(slope, weight.T) if before else None,
            multiply(slope.T, inputs.T) if step else None,
            slope.sum(0) if shift else None,
        )


@contextmanager
def multiplied(module: nn.Module, *, but: Collection[nn.Module] = ()) -> Iterator[None]:
    """Let oneDNN multiply the large dense layers of `module` in the block, without those in `but`.

    The block must have the backward passes too, where a checkpoint of torch computes layers again.
    """
    layers = [each for each in module.modules() if each not in but and is_large(each)]
    for layer in layers:
        layer.forward = partial(_multiply, layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def is_large(layer: nn.Module) -> bool:
    """Whether oneDNN can multiply a layer and is faster at it."""
    if type(layer) is not nn.Linear or "forward" in vars(layer) or _ONEDNN is None:
        return False
    return layer.weight.numel() >= LARGE


def without_weights(layer: Any, inputs: Tensor) -> Tensor:
    """Return what a large layer returns, without a gradient of its parameters.

    The output has one nevertheless.
    """
    weight, bias = layer.weight, layer.bias
    if not torch.is_grad_enabled() or not fits(inputs, weight):
        return functional.linear(inputs, weight, bias)
    given = inputs if inputs.requires_grad else inputs.detach().requires_grad_()
    return _product_of_rows(given, weight.detach(), None if bias is None else bias.detach())


def _multiply(layer: Any, inputs: Tensor) -> Tensor:
    if not fits(inputs, layer.weight):
        return functional.linear(inputs, layer.weight, layer.bias)
    return _product_of_rows(inputs, layer.weight, layer.bias)


def _product_of_rows(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    rows = inputs if inputs.dim() == 2 else inputs.flatten(0, -2)
    found: Tensor = _Multiplied.apply(rows, weight, bias)
    return found if inputs.dim() == 2 else found.view(*inputs.shape[:-1], len(weight))


def fits(inputs: Tensor, weight: Tensor) -> bool:
    """Whether the product is of usual tensors in float32 on the CPU, and no torch.func or compiler.

    Everything else, an error too, is what `functional.linear` makes of it.
    """
    usual = type(inputs) is Tensor and inputs.layout == torch.strided and not inputs.is_nested
    if not usual or inputs.dim() < 2 or inputs.shape[-1] != weight.shape[1]:
        return False
    if not inputs.dtype == weight.dtype == torch.float32 or inputs.device.type != "cpu":
        return False
    transformed = torch._C._are_functorch_transforms_active()
    return not (transformed or torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling())
