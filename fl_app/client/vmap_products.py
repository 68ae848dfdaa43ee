"""What samples have in common with weights, inside `torch.func.vmap` over samples.

Products with large matrices are computed of all samples at once and recorded, so that a single
backward pass gives the gradient of each product's output. Of any other weight each sample has a
copy.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack
from torch.autograd.graph import get_gradient_edge
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fl_app.client.block_products import Axes, einsum, of_matmul
from fl_app.client.composed_layers import COMPOSED
from fl_app.client.derived_weights import Derived, sources
from fl_app.client.weight_lookups import Lookup
from fl_app.client.weight_products import Copies, Product, WeightRows

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
    """Computes what samples at `level` and weights have in common, so that their gradients follow.

    A weight is one of the `trained` parameters, or computed from them alone. Products of samples
    with a matrix of more than `small` entries are added to `products`; of any other weight each of
    the `size` samples has a copy. What happens inside another transformation of `torch.func`, or
    in a function that torch does not show, is left to torch.
    """

    def __init__(self, products: list[Any], trained: Iterable[nn.Parameter],
                 *, level: int, size: int, small: int) -> None:  # fmt: skip
        super().__init__()
        self.products, self.level, self.size, self.small = products, level, size, small
        self.trained, self.copies = {*trained}, dict[nn.Parameter, tuple[Copies, Tensor]]()
        self.weights: dict[int, tuple[Tensor, Any, nn.Parameter]] = {
            id(each): (each, None, each) for each in self.trained
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return what a function of torch does."""
        named = kwargs or {}
        if nested.maybe_current_level() != self.level:
            return func(*args, **named)
        if func in COMPOSED:
            with self:  # which sees what the function is composed of
                return self._composed(COMPOSED[func], *args, **named)
        rule = RULES.get(func)
        found = rule(self, *args, **named) if rule is not None else None
        if found is not None:
            return found
        tensors = [*_tensors((args, named))]
        if len(tensors) > 1 and any(self._samples(each) is not None for each in tensors):
            args, named = self._with_copies(args), self._with_copies(named)
        return func(*args, **named)

    def linear(self, input: Any, weight: Any, bias: Tensor | None = None) -> Tensor | None:
        """Return `input weight^T + bias` if that is a product with a weight."""
        added = self._weight(bias)
        whole = added is not None and added.shape == weight.shape[:1]  # it may be broadcast
        if whole and not isinstance(added, Derived):
            return self._product(input, weight, added)
        found = self._product(input, weight)
        return found if found is None or bias is None else found + self._with_copies(bias)

    def matmul(self, input: Any, other: Any) -> Tensor | None:
        """Return `input other` if that is a product with a weight."""
        if isinstance(input, Tensor) and isinstance(other, Tensor):
            last = self._samples(input) is not None
            sides = (input, other) if last else (other, input)
            side_by_side = of_matmul(*sides, last=last)
            if side_by_side is not None:
                return self.einsum(*side_by_side, sides[1])
        if self._matrix(input) is not None and isinstance(other, Tensor) and other.dim() > 1:
            found = self._product(other.mT, input)
            return found if found is None else found.mT
        return self._product(input, other.mT) if self._matrix(other) is not None else None

    def addmm(self, input: Tensor, mat1: Any, mat2: Any, **scales: float) -> Tensor | None:
        """Return `input + mat1 mat2` if that has a product with a weight."""
        if scales or self._matrix(mat2) is None:
            return None
        found = self._product(mat1, mat2.mT)
        return found if found is None else self._with_copies(input) + found

    def einsum(self, equation: Any, *operands: Any) -> Tensor | None:
        """Return the sum of products of what samples have and a weight, if it is of two such."""
        letters, arrow, made = str(equation).replace(" ", "").partition("->")
        given, comma, other = letters.partition(",")
        if not (arrow and comma) or len(operands) != 2:
            return None
        if self._samples(operands[0]) is None:
            given, other, operands = other, given, operands[::-1]
        input, weight = operands
        held = self._samples(input)
        if held is None or not isinstance(weight, Tensor) or weight.numel() <= self.small:
            return None
        axes = Axes.of(given, other, made, held.shape[1:], weight.shape)
        if axes is None:
            return None
        if axes.is_matrix:
            rows = self.apart(held.permute(0, *(1 + at for at in axes.of_rows)))
            found = self._product(rows, weight if axes.weight[0] == axes.new else weight.mT)
            return found if found is None else found.permute(*axes.of_product)
        parameter = self._weight(weight)
        if parameter is None:
            return None
        with temporarily_pop_interpreter_stack():
            found, product = einsum(held, parameter, axes)
        self.products += [] if product is None else [product]
        return self.apart(found)

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
        return self.apart(found)

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

    def _composed(
        self, composed: Any, given: Tensor, state: Any, *weights: Any, **named: Any
    ) -> Any:
        """Return what a function does by its products, each of what samples have."""

        def linear(given: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            return functional.linear(given, weight.flatten(1), bias)

        states = state if isinstance(state, tuple) else (state,)
        each = torch.zeros_like(given[..., :1])
        states = tuple(one if self._samples(one) is not None else one + each for one in states)
        return composed(
            linear, given, states if isinstance(state, tuple) else states[0], *weights, **named
        )

    def _weight(self, tensor: Any) -> nn.Parameter | None:
        """Return the parameter that a tensor is, or a stand-in if it was computed from some."""
        if not isinstance(tensor, Tensor) or nested.is_functorch_wrapped_tensor(tensor):
            return None
        held, function, weight = self.weights.get(id(tensor), (None, None, None))
        if held is tensor and function is tensor.grad_fn:
            return weight
        if tensor.grad_fn is None or tensor._backward_hooks:
            return None
        with temporarily_pop_interpreter_stack():
            found = Derived.of(tensor)
        if not self.trained.issuperset(sources(found.edge)):
            return None
        self.weights[id(tensor)] = tensor, tensor.grad_fn, found
        return found

    def _matrix(self, tensor: Any) -> nn.Parameter | None:
        """Return the weight that a tensor is, if it is a large matrix."""
        large = isinstance(tensor, Tensor) and tensor.dim() == 2 and tensor.numel() > self.small
        return self._weight(tensor) if large else None

    def _with_copies(self, given: Any) -> Any:
        """Return what a function is given, with a copy for each sample of each weight in it."""
        if type(given) in (list, tuple):
            return type(given)(self._with_copies(each) for each in given)
        if type(given) is dict:
            return {name: self._with_copies(each) for name, each in given.items()}
        weight = self._weight(given) if isinstance(given, Tensor) else None
        if weight is None:
            return given
        if weight not in self.copies:
            with temporarily_pop_interpreter_stack():
                each = weight.detach().expand(self.size, *weight.shape).requires_grad_()
            self.copies[weight] = Copies(weight, each), self.apart(each)
        return self.copies[weight][1]

    def _samples(self, tensor: Any) -> Tensor | None:
        """Return what all samples have (n, ...), if a tensor is what each sample has."""
        batched = isinstance(tensor, Tensor) and nested.is_batchedtensor(tensor)
        if not batched or nested.maybe_get_level(tensor) != self.level:
            return None
        found: Tensor = nested.get_unwrapped(tensor).movedim(nested.maybe_get_bdim(tensor), 0)
        return found

    def are_samples(self, tensor: Tensor) -> bool:
        """Whether a tensor is what each sample has."""
        return self._samples(tensor) is not None

    def of_all(self, tensor: Tensor) -> Tensor:
        """Return what all samples have (n, ...) of a tensor that each has, or that is the same."""
        held = self._samples(self._with_copies(tensor))
        return tensor.expand(self.size, *tensor.shape) if held is None else held

    def apart(self, stacked: Tensor) -> Tensor:
        """Return what each sample has of a tensor (n, ...)."""
        found: Tensor = nested._add_batch_dim(stacked, 0, self.level)
        return found

    def _product(self, input: Any, matrix: Any, bias: nn.Parameter | None = None) -> Tensor | None:
        """Return `input matrix^T`, plus a bias, if the matrix is a weight."""
        weight, given = self._matrix(matrix), self._samples(input)
        if weight is None or given is None or given.dim() < 2:
            return None
        with temporarily_pop_interpreter_stack():
            found = self._recorded(given.reshape(-1, given.shape[-1]), weight, bias, len(given))
            found = found.view(*given.shape[:-1], found.shape[1])
        return self.apart(found)

    def _rows(self, matrix: Any, index: Any, look: Callable[[Tensor, Tensor], Tensor],
              ignored: int | None = None) -> Tensor | None:  # fmt: skip
        """Return the rows of a weight at integers of samples, as `look` finds them."""
        weight, given = self._matrix(matrix), self._samples(index)
        if weight is None or given is None or given.dtype not in INTEGERS:
            return None
        with temporarily_pop_interpreter_stack():
            size = len(weight)
            found = look(given, weight.detach().requires_grad_())
            places = (given % size).reshape(len(given), -1)  # negative ones count from the end
        if found.requires_grad:
            ignored = None if ignored is None else ignored % size
            lookup = Lookup(weight, places, get_gradient_edge(found), ignored)
            self.products.append(lookup)
        return self.apart(found)

    def _recorded(
        self, rows: Tensor, weight: nn.Parameter, bias: nn.Parameter | None, samples: int
    ) -> Tensor:
        """Return the product of the rows (n * t, i) of samples with a weight, plus a bias."""
        if not rows.requires_grad:  # the product has a gradient nevertheless
            rows = rows.detach().requires_grad_()
        found = functional.linear(rows, weight.detach(), None if bias is None else bias.detach())
        if found.requires_grad:
            given = rows.detach().view(samples, -1, rows.shape[1]).transpose(0, 1)
            # what changes `found` in place later changes its gradient, but not that of this edge
            edge = get_gradient_edge(found)
            added = () if bias is None else (WeightRows(bias),)
            product = RowProduct((WeightRows(weight),), added, given, edge, rows._version)
            self.products.append(product)
        return found


def _tensors(given: Any) -> Iterator[Tensor]:
    """Yield the tensors that a function is given."""
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, list | tuple | dict):
        for each in given.values() if isinstance(given, dict) else given:
            yield from _tensors(each)


RULES: dict[Any, Callable[..., Tensor | None]] = {
    functional.linear: Products.linear,
    functional.scaled_dot_product_attention: Products.attend,
    torch.einsum: Products.einsum,
    **dict.fromkeys((torch.addmm, Tensor.addmm), Products.addmm),
    **dict.fromkeys((torch.matmul, torch.mm, torch.bmm), Products.matmul),
    **dict.fromkeys((Tensor.matmul, Tensor.mm, Tensor.bmm), Products.matmul),
    functional.embedding: Products.embedding,
    Tensor.__getitem__: Products.item,
    **dict.fromkeys((torch.index_select, Tensor.index_select), Products.select),
}
INTEGERS = (torch.int64, torch.int32)
"""Types of indices; numbers of one byte are masks."""
