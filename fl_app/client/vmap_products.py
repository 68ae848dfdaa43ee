"""Products of what each sample has with large matrices, inside `torch.func.vmap` over samples.

They are computed of all samples at once and recorded, so that a single backward pass gives the
gradient of each product's output.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack
from torch.autograd.graph import get_gradient_edge
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fl_app.client.weight_lookups import Lookup
from fl_app.client.weight_products import Product, WeightRows

nested: Any = torch._C._functorch
"""What `torch.func.vmap` is made of: itself it takes longer than a small layer."""


@dataclass(frozen=True)
class RowProduct(Product):
    """A product whose `output` has a row for each step of each sample (n * t, j)."""

    version: int

    def from_output(self, gradient: Tensor) -> Tensor:
        """Return the gradient (t, n, j) of the outputs from that of the rows."""
        if self.given._version != self.version:  # torch notices only where it needs the input
            raise RuntimeError("the input of a product with a weight was modified in place")
        return gradient.view(self.given.shape[1], -1, gradient.shape[1]).transpose(0, 1)


class Products(TorchFunctionMode):
    """Computes products of samples at `level` with `weights`, and adds them to `products`.

    What else is done with a weight is left to torch, and so is what happens inside another
    transformation of `torch.func`.
    """

    def __init__(self, products: list[Any], level: int, weights: Sequence[nn.Parameter]) -> None:
        super().__init__()
        self.products, self.level = products, level
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

    def attend(self, query: Any, key: Any, value: Any, attn_mask: Tensor | None = None,
               dropout_p: float = 0.0, **options: Any) -> Tensor | None:  # fmt: skip
        """Return the attention of all samples at once: torch has no rule for vmap for it."""
        held = [self._samples(each) for each in (query, key, value)]
        given = [each for each in held if each is not None and each.dim() > 3]
        if attn_mask is not None or dropout_p or len(given) < len(held):
            return None
        q, k, v = (each.flatten(0, -4) for each in given)
        with temporarily_pop_interpreter_stack():
            found = functional.scaled_dot_product_attention(q, k, v, **options)
            found = found.view(*given[0].shape[:-3], *found.shape[1:])
        return self._apart(found)

    def embedding(
        self, input: Any, weight: Any, padding_idx: int | None = None,
        max_norm: float | None = None, norm_type: float = 2.0, *special: bool, **named: bool,
    ) -> Tensor | None:  # fmt: skip
        """Return the rows of a weight that samples look up."""
        if max_norm is not None or any(special) or any(named.values()):
            return None
        return self._rows(weight, input, functional.embedding, padding_idx)

    def select(self, input: Any, dim: Any, index: Any) -> Tensor | None:
        """Return the rows of a weight that samples look up, if `dim` is that of the rows."""
        return self._rows(input, index, functional.embedding) if dim == 0 else None

    def item(self, input: Any, index: Any) -> Tensor | None:
        """Return the rows of a weight that samples look up."""
        return self._rows(input, index, lambda given, weight: weight[given])

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

    def _apart(self, stacked: Tensor) -> Tensor:
        """Return what each sample has of a tensor (n, ...)."""
        found: Tensor = nested._add_batch_dim(stacked, 0, self.level)
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
        return self._apart(found)

    def _rows(self, matrix: Any, index: Any, look: Callable[[Tensor, Tensor], Tensor],
              ignored: int | None = None) -> Tensor | None:  # fmt: skip
        """Return the rows of a weight at integers of samples, as `look` finds them."""
        weight, given = self._weight(matrix), self._samples(index)
        if weight is None or weight.turned or given is None or given.dtype not in INTEGERS:
            return None
        with temporarily_pop_interpreter_stack():
            size = len(weight.parameter)
            found = look(given, weight.parameter.detach().requires_grad_())
            places = (given % size).reshape(len(given), -1)  # negative ones count from the end
        if found.requires_grad:
            ignored = None if ignored is None else ignored % size
            lookup = Lookup(weight.parameter, places, get_gradient_edge(found), ignored)
            self.products.append(lookup)
        return self._apart(found)

    def _recorded(self, rows: Tensor, weight: WeightRows, samples: int) -> Tensor:
        """Return the product of the rows (n * t, i) of samples with a weight."""
        if not rows.requires_grad:  # the product has a gradient nevertheless
            rows = rows.detach().requires_grad_()
        found = functional.linear(rows, weight.value.detach())
        if found.requires_grad:
            given = rows.detach().view(samples, -1, rows.shape[1]).transpose(0, 1)
            # what changes `found` in place later changes its gradient, but not that of this edge
            edge = get_gradient_edge(found)
            self.products.append(RowProduct((weight,), (), given, edge, rows._version))
        return found


TURNED: list[Any] = [vars(torch._C.TensorBase)[name].__get__ for name in ("T", "mT")]
RULES: dict[Any, Callable[..., Tensor | None]] = {
    functional.linear: Products.linear,
    functional.scaled_dot_product_attention: Products.attend,
    torch.einsum: Products.einsum,
    **dict.fromkeys((torch.addmm, Tensor.addmm), Products.addmm),
    **dict.fromkeys((torch.matmul, torch.mm, Tensor.matmul, Tensor.mm), Products.matmul),
    functional.embedding: Products.embedding,
    Tensor.__getitem__: Products.item,
    **dict.fromkeys((torch.index_select, Tensor.index_select), Products.select),
    **dict.fromkeys((torch.t, Tensor.t, *TURNED), Products.transpose),
}
INTEGERS = (torch.int64, torch.int32)
"""Types of indices; numbers of one byte are masks."""
SUM = re.compile(r"([.\w]*)(\w),(\w)(\w)->\1(\w)")
"""Sums over one letter of two operands, the second with two letters."""
