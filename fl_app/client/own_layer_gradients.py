"""A forward pass of a layer of any class that leads to the gradients of samples.

It runs as by `torch.func.vmap` over samples, each of which has copies of small weights, so that the
gradients of copies are those of samples. Large matrices have none: products with them are recorded,
and the norms and sums of their gradients follow from what was multiplied. Nothing else leads to a
parameter: if it has a gradient of its own nevertheless, the layer is differentiated once more with
`torch.func`, sample by sample.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import _C, Tensor, nn
from torch._functorch.vmap import vmap_increment_nesting
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call, grad, vmap

from fl_app.client.inner_layers import Function, at_once
from fl_app.client.vmap_products import Products, nested
from fl_app.client.weight_products import Copies, Unstored

SMALL = 1 << 10
"""Entries of a matrix up to which each sample has a copy of it."""


Parts = list[Copies | Unstored]


class OwnLayer:
    """A layer of any class with samples in dimension `axis` of its input and its output.

    The functions of `inner` compute layers inside it. Without `apart` it is differentiated sample
    by sample.
    """

    def __init__(self, layer: nn.Module, axis: int, inner: Mapping[nn.Module, Function]) -> None:
        self.layer, self.axis, self.apart, self.inner = layer, axis, True, inner
        self.trained = {name: p for name, p in layer.named_parameters() if p.requires_grad}

    def run(self, calls: list[Any], *inputs: Any, **named: Any) -> Any:
        """Return what the layer returns, and add this call to `calls`."""
        if _C._are_functorch_transforms_active():  # in another layer, or in `of_samples`
            return _called(self.layer, *inputs, **named)
        parts: Parts = []
        output: Any = None
        if self.apart and len(inputs) == 1 and not named:
            try:
                output = self._run_apart(inputs[0], parts)
            except Exception:  # not every function has a rule for vmap; torch tells of other errors
                parts.clear()
        self.apart = bool(parts)
        if not parts:
            output = _called(self.layer, *inputs, **named)
        if output.requires_grad:  # not in a block of `torch.no_grad`
            edge = get_gradient_edge(output)
            calls.append(OwnCall(self, inputs[0].detach(), edge, parts))
        return output

    def _run_apart(self, given: Tensor, parts: Parts) -> Tensor:
        size, axis, products = given.shape[self.axis], self.axis, Parts()
        with vmap_increment_nesting(size, "different") as level, _without_loops():
            one = nested._add_batch_dim(given.unsqueeze(axis + 1), axis, level)
            trained = self.trained.values()
            recorder = Products(products, trained, level=level, size=size, small=SMALL)
            with recorder, at_once(recorder, self.inner):
                found = _called(self.layer, one)
            if found.shape[axis] != 1:
                raise ValueError(f"an output for one sample has shape {tuple(found.shape)}")
            output: Tensor = nested._remove_batch_dim(found.select(axis, 0), level, size, axis)
        copies = {weight: each for weight, (each, _) in recorder.copies.items()}
        parts += [copies.pop(p) for p in self.trained.values() if p in copies]
        parts += [*copies.values(), *products]
        return output


@dataclass(frozen=True)
class OwnCall:
    """One call of a layer: its input, its output as it left it, and the parts with its gradients.

    There are no parts if it did not run apart.
    """

    own: OwnLayer
    given: Tensor
    output: GradientEdge
    parts: Parts

    def trained(self) -> list[nn.Parameter]:
        """Return the trainable parameters."""
        return list(self.own.trained.values())

    def of_samples(self, gradient: Tensor) -> dict[nn.Parameter, Tensor]:
        """Return the gradients of samples (n, ...) by repeating the forward pass of the layer."""
        axis, trained = self.own.axis, self.own.trained

        def product(parameters: dict[str, Tensor], given: Tensor, gradient: Tensor) -> Tensor:
            output: Tensor = functional_call(self.own.layer, parameters, (given[None],))
            return (output * gradient[None]).sum()

        values = {name: p.detach() for name, p in trained.items()}
        given, gradient = (each.transpose(0, axis) for each in (self.given, gradient))
        stacked = vmap(grad(product), in_dims=(None, 0, 0))(values, given, gradient)
        return {p: stacked[name] for name, p in trained.items()}


def _called(layer: nn.Module, *inputs: Any, **named: Any) -> Any:
    """Return what a layer returns with its hooks, also if its calls are replaced."""
    call: Any = type(layer)._call_impl
    return call(layer, *inputs, **named)


@contextmanager
def _without_loops() -> Iterator[None]:
    """Let a function without a rule for vmap fail, which is otherwise called for each sample."""
    before = nested._is_vmap_fallback_enabled()
    nested._set_vmap_fallback_enabled(False)
    try:
        yield
    finally:
        nested._set_vmap_fallback_enabled(before)
