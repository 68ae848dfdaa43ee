"""Sums of products of what samples have and a weight of any number of axes, as of all experts.

An einsum of both is a product with one matrix, or with several side by side, each of its own part
of the input.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from fl_app.client.weight_products import OfParameter, Product, Unstored

SPARE = "αβγδεζηθ"
"""Letters for the axes that an ellipsis stands for, which no einsum of torch has."""


@dataclass(frozen=True)
class Axes:
    """The letters of an einsum of an input and a weight, and the size of each.

    `blocks` are in both and in the result, `summed` in both alone, `kept` in the input and the
    result, `new` in the weight and the result.
    """

    given: str
    weight: str
    made: str
    sizes: Mapping[str, int]

    @classmethod
    def of(
        cls, given: str, weight: str, made: str, input: Sequence[int], shape: Sequence[int]
    ) -> "Axes | None":
        """Return those for shapes of the input and the weight; None for another form of einsum."""
        if "..." in given:
            more = SPARE[: len(input) + 3 - len(given)]
            given, made = given.replace("...", more), made.replace("...", more)
        usual = all(each.isalpha() and len({*each}) == len(each) for each in (given, weight))
        if not usual or len(given) != len(input) or len(weight) != len(shape):
            return None
        sizes = dict(zip(given, input, strict=True)) | dict(zip(weight, shape, strict=True))
        found, both = cls(given, weight, made, sizes), {*given} & {*weight}
        whole = sorted(made) == sorted(found.blocks + found.kept + found.new)
        same = all(input[given.index(each)] == sizes[each] for each in both)
        return found if whole and same and found.summed else None

    @property
    def blocks(self) -> str:
        """The letters of blocks."""
        return "".join(each for each in self.weight if each in self.given and each in self.made)

    @property
    def summed(self) -> str:
        """The letters over which it is summed."""
        return "".join(each for each in self.weight if each in self.given and each not in self.made)

    @property
    def kept(self) -> str:
        """The letters of the input alone."""
        return "".join(each for each in self.given if each not in self.weight)

    @property
    def new(self) -> str:
        """The letters of the weight alone."""
        return "".join(each for each in self.weight if each not in self.given)

    @property
    def is_matrix(self) -> bool:
        """Whether the weight is one matrix."""
        return len(self.weight) == 2 and len(self.summed) == len(self.new) == 1

    @property
    def of_rows(self) -> list[int]:
        """The axes of the input in the order `kept`, `summed`."""
        return [self.given.index(each) for each in self.kept + self.summed]

    @property
    def of_product(self) -> list[int]:
        """The axes of the result among `kept`, `new`."""
        return [(self.kept + self.new).index(each) for each in self.made]


def of_matmul(input: Tensor, weight: Tensor, *, last: bool) -> tuple[str, Tensor] | None:
    """Return a product of an input with matrices side by side as an einsum, and its input.

    The weight comes `last` or first. None if it is no such product.
    """
    if weight.dim() != 3 or not input.dim():
        return None
    rest, made = "", "e"
    if input.dim() > 2:
        apart = input.shape[-3] == len(weight)
        if not apart and input.shape[-3] > 1:
            return None
        input = input if apart else input.squeeze(-3)
        rest, made = ("...e", "...e") if apart else ("...", "...e")
    columns = "k" if input.dim() > 1 else ""
    if last:
        return f"{rest}{columns}i,eio->{made}{columns}o", input
    return f"{rest}i{columns},eoi->{made}o{columns}", input


def einsum(held: Tensor, weight: nn.Parameter, axes: Axes) -> tuple[Tensor, "Blocks | None"]:
    """Return the einsum of what samples have (n, ...), and its product if it has a gradient."""
    sizes, count, blocks = axes.sizes, len(held), axes.blocks
    places = [1 + axes.given.index(each) for each in blocks + axes.kept + axes.summed]
    given = held.permute(*places[: len(blocks)], 0, *places[len(blocks) :])
    size = prod(sizes[each] for each in axes.summed)
    rows = given.reshape(prod(sizes[each] for each in blocks), count, -1, size)
    if not rows.requires_grad:  # the product has a gradient nevertheless
        rows = rows.detach().requires_grad_()
    order = tuple(axes.weight.index(each) for each in blocks + axes.new + axes.summed)
    matrices = weight.detach().permute(order).reshape(len(rows), -1, size)
    found, product = rows.flatten(1, 2) @ matrices.mT, None
    if found.requires_grad:
        edge = get_gradient_edge(found)
        product = Blocks(weight, order, rows.detach(), edge, rows._version)
    letters = f"{blocks} {axes.kept}{axes.new}"
    found = found.view([count if each == " " else sizes[each] for each in letters])
    return found.permute([letters.index(each) for each in " " + axes.made]), product


@dataclass(frozen=True)
class Blocks(OfParameter, Unstored):
    """Inputs (b, n, t, i) times b matrices (j, i): outputs (b, n * t, j).

    These are a parameter with its axes in another `order`.
    """

    order: tuple[int, ...]
    given: Tensor
    output: GradientEdge
    version: int

    def from_output(self, gradient: Tensor) -> Tensor:
        """Return the gradient (b, n, t, j) from that of the outputs."""
        if self.given._version != self.version:  # torch notices only where it needs the input
            raise RuntimeError("the input of a product with a weight was modified in place")
        return gradient.view(*self.given.shape[:3], gradient.shape[2])

    def of_samples(self, gradient: Tensor) -> dict[nn.Parameter, Tensor]:
        """Return the gradients of samples (n, ...)."""
        stacked = torch.einsum("bntj,bnti->nbji", gradient, self.given)
        return {self.parameter: self._in_order(stacked, gradient.shape[1])}

    def squares(self, gradient: Tensor) -> Tensor:
        """Return the squared norms (n,), the sums of those of matrices."""
        step, given = (each.flatten(0, 1).transpose(0, 1) for each in (gradient, self.given))
        return Product((), (), given, step).squares(step).view(gradient.shape[:2]).sum(0)

    def weighted(
        self, gradient: Tensor, weights: Tensor, chosen: Tensor | None = None
    ) -> dict[nn.Parameter, Tensor]:
        """Return the sum of the gradients of (`chosen`) samples with weights (n,), by parameter."""
        given = self.given
        if chosen is not None:
            gradient, given, weights = gradient[:, chosen], given[:, chosen], weights[chosen]
        scaled = gradient * weights[:, None, None]
        sums = scaled.flatten(1, 2).mT @ given.flatten(1, 2)
        return {self.parameter: self._in_order(sums)}

    def _in_order(self, matrices: Tensor, *samples: int) -> Tensor:
        """Return matrices (*samples, b, j, i) as the parameter has its axes."""
        shape = [self.parameter.shape[axis] for axis in self.order]
        places = [len(samples) + self.order.index(axis) for axis in range(len(shape))]
        return matrices.reshape(*samples, *shape).permute(*range(len(samples)), *places)
