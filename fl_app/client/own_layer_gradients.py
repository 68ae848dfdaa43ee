"""A forward pass of a layer of any class that leads to the gradients of samples.

It runs as by `torch.func.vmap` over samples, each of which has copies of the parameters, so that
the gradients of copies are those of samples. Large matrices have none: products with them are
recorded, and the norms and sums of their gradients follow from what was multiplied. If a large
matrix is used in any other way, it has a gradient of its own, and the layer is differentiated once
more with `torch.func`, sample by sample.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch._functorch.vmap import vmap_increment_nesting
from torch.func import functional_call, grad, vmap

from fl_app.client.vmap_products import Products, nested
from fl_app.client.weight_lookups import Lookup
from fl_app.client.weight_products import Product

SMALL = 1 << 10
"""Entries of a matrix up to which each sample has a copy of it."""


@dataclass(frozen=True)
class Copies:
    """The copies (n, ...) of a parameter for the samples of one call of a layer."""

    parameter: nn.Parameter
    output: Tensor

    def trained(self) -> list[nn.Parameter]:
        """Return the parameter."""
        return [self.parameter]

    def of_samples(self, gradient: Tensor) -> dict[nn.Parameter, Tensor]:
        """Return the gradients of samples (n, ...), which are those of the copies."""
        return {self.parameter: gradient}


Parts = list[Copies | Product | Lookup]


class OwnLayer:
    """A layer of any class with samples in dimension `axis` of its input and its output.

    Without `apart` it is differentiated sample by sample.
    """

    def __init__(self, layer: nn.Module, axis: int) -> None:
        self.layer, self.axis, self.apart = layer, axis, True
        self.trained = {name: p for name, p in layer.named_parameters() if p.requires_grad}
        self.matrices = [p for p in self.trained.values() if p.dim() == 2 and p.numel() > SMALL]
        large = {*self.matrices}
        self.places: list[tuple[dict[str, Any], str, nn.Parameter]] = [
            (each._parameters, name, p)
            for each in layer.modules()
            for name, p in each._parameters.items()
            if p is not None and p.requires_grad and p not in large
        ]

    def run(self, calls: list[Any], *inputs: Any, **named: Any) -> Any:
        """Return what the layer returns, and add this call to `calls`."""
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
        calls.append(OwnCall(self, inputs[0].detach(), output, parts))
        return output

    def _run_apart(self, given: Tensor, parts: Parts) -> Tensor:
        size, axis = given.shape[self.axis], self.axis
        copies = {p: p.detach().expand(size, *p.shape) for *_, p in self.places}
        parts += [Copies(p, each.requires_grad_()) for p, each in copies.items()]
        with vmap_increment_nesting(size, "error") as level, _without_loops():
            apart = {p: nested._add_batch_dim(each, 0, level) for p, each in copies.items()}
            one = nested._add_batch_dim(given.unsqueeze(axis + 1), axis, level)
            with self._replaced(apart), Products(parts, level, self.matrices):
                found = _called(self.layer, one)
            if found.shape[axis] != 1:
                raise ValueError(f"an output for one sample has shape {tuple(found.shape)}")
            output: Tensor = nested._remove_batch_dim(found.select(axis, 0), level, size, axis)
        return output

    @contextmanager
    def _replaced(self, others: Mapping[nn.Parameter, Any]) -> Iterator[None]:
        for held, name, parameter in self.places:
            held[name] = others[parameter]
        try:
            yield
        finally:
            for held, name, parameter in self.places:
                held[name] = parameter


@dataclass(frozen=True)
class OwnCall:
    """One call of a layer: its input and its output, and the parts of which gradients are those.

    There are no parts if it did not run apart.
    """

    own: OwnLayer
    given: Tensor
    output: Tensor
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
