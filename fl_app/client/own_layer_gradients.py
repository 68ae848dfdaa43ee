"""A forward pass of a layer of any class that leads to the gradients of samples.

It runs as by `torch.func.vmap` over samples, each of which has copies of the parameters, so that
the gradients of copies are those of samples. Large matrices have none: products with them are
recorded, and the norms and sums of their gradients follow from what was multiplied. If a large
matrix is used in any other way, it has a gradient of its own, and the layer is differentiated once
more with `torch.func`, sample by sample.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack
from torch._functorch.vmap import vmap_increment_nesting
from torch.autograd.graph import get_gradient_edge
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fl_app.client.weight_products import Product, WeightRows

nested: Any = torch._C._functorch
"""What `torch.func.vmap` is made of: itself it takes longer than a small layer."""
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


@dataclass(frozen=True)
class RowProduct(Product):
    """A product whose `output` has a row for each step of each sample (n * t, j)."""

    version: int

    def in_steps(self, gradient: Tensor) -> Tensor:
        """Return the gradient (t, n, j) of the outputs from that of the rows."""
        if self.given._version != self.version:  # torch notices only where it needs the input
            raise RuntimeError("the input of a product with a weight was modified in place")
        return gradient.view(self.given.shape[1], -1, gradient.shape[1]).transpose(0, 1)


Parts = list[Copies | RowProduct]


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
            with self._replaced(apart), _Products(parts, level, self.matrices):
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


class _Products(TorchFunctionMode):
    """Computes products of samples at `level` with `weights`, and adds them to `parts`.

    What else is done with a weight is left to torch, and so is what happens inside another
    transformation of `torch.func`.
    """

    def __init__(self, parts: Parts, level: int, weights: Sequence[nn.Parameter]) -> None:
        super().__init__()
        self.parts, self.level = parts, level
        self.weights: dict[int, tuple[Tensor, WeightRows]] = {
            id(each): (each, WeightRows(each)) for each in weights
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return what a function of torch does."""
        rule, named = RULES.get(func), kwargs or {}
        ours = rule is not None and nested.maybe_current_level() == self.level
        found = rule(self, *args, **named) if rule is not None and ours else None
        return func(*args, **named) if found is None else found

    def linear(self, input: Any, weight: Any, bias: Tensor | None = None) -> Tensor | None:
        """Return `input weight^T + bias` if that is a product with a weight."""
        found = self._product(input, weight, turned=False)
        return found if found is None or bias is None else found + bias

    def matmul(self, input: Any, other: Any) -> Tensor | None:
        """Return `input other` if that is a product with a weight."""
        if self._weight(input) is not None and isinstance(other, Tensor) and other.dim() > 1:
            found = self._product(other.mT, input, turned=False)
            return found if found is None else found.mT
        return self._product(input, other, turned=True)

    def addmm(self, input: Tensor, mat1: Any, mat2: Any, **scales: float) -> Tensor | None:
        """Return `input + mat1 mat2` if that has a product with a weight."""
        found = None if scales else self._product(mat1, mat2, turned=True)
        return found if found is None else input + found

    def einsum(self, equation: Any, *operands: Any) -> Tensor | None:
        """Return the sum over the last axis of samples and one of a weight, if it is such a sum."""
        sums = SUM.fullmatch(equation.replace(" ", "")) if isinstance(equation, str) else None
        if sums is None or len(operands) != 2:
            return None
        kept, summed, first, second, made = sums.groups()
        letters = kept.replace("...", "") + summed + made
        if {first, second} != {summed, made} or len({*letters}) < len(letters):
            return None
        return self._product(*operands, turned=first == summed)

    def transpose(self, matrix: Any) -> Tensor | None:
        """Return the transpose of a weight, which is one, too."""
        weight = self._weight(matrix)
        if weight is None:
            return None
        found: Tensor = matrix.T
        self.weights[id(found)] = found, replace(weight, turned=not weight.turned)
        return found

    def _weight(self, tensor: Any) -> WeightRows | None:
        held, weight = self.weights.get(id(tensor), (None, None))
        return weight if held is tensor else None

    def _samples(self, tensor: Any) -> Tensor | None:
        """Return what all samples have (n, ...), if a tensor is what each sample has."""
        batched = isinstance(tensor, Tensor) and nested.is_batchedtensor(tensor)
        if not batched or nested.maybe_get_level(tensor) != self.level:
            return None
        found: Tensor = nested.get_unwrapped(tensor).movedim(nested.maybe_get_bdim(tensor), 0)
        return found

    def _product(self, input: Any, other: Any, *, turned: bool) -> Tensor | None:
        """Return `input other^T`, or `input other` if `turned`, if the other one is a weight."""
        weight, given = self._weight(other), self._samples(input)
        if weight is None or given is None or given.dim() < 2:
            return None
        weight = replace(weight, turned=weight.turned != turned)
        with temporarily_pop_interpreter_stack():
            found = self._recorded(given.reshape(-1, given.shape[-1]), weight, len(given))
            found = found.view(*given.shape[:-1], found.shape[1])
        output: Tensor = nested._add_batch_dim(found, 0, self.level)
        return output

    def _recorded(self, rows: Tensor, weight: WeightRows, samples: int) -> Tensor:
        """Return the product of the rows (n * t, i) of samples with a weight."""
        if not rows.requires_grad:  # the product has a gradient nevertheless
            rows = rows.detach().requires_grad_()
        found = functional.linear(rows, weight.value.detach())
        if found.requires_grad:
            given = rows.detach().view(samples, -1, rows.shape[1]).transpose(0, 1)
            # what changes `found` in place later changes its gradient, but not that of this edge
            edge = get_gradient_edge(found)
            self.parts.append(RowProduct((weight,), (), given, edge, rows._version))
        return found


TURNED: list[Any] = [vars(torch._C.TensorBase)[name].__get__ for name in ("T", "mT")]
RULES: dict[Any, Callable[..., Tensor | None]] = {
    functional.linear: _Products.linear,
    torch.einsum: _Products.einsum,
    **dict.fromkeys((torch.addmm, Tensor.addmm), _Products.addmm),
    **dict.fromkeys((torch.matmul, torch.mm, Tensor.matmul, Tensor.mm), _Products.matmul),
    **dict.fromkeys((torch.t, Tensor.t, *TURNED), _Products.transpose),
}
SUM = re.compile(r"([.\w]*)(\w),(\w)(\w)->\1(\w)")
"""Sums over one letter of two operands, the second with two letters."""


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
