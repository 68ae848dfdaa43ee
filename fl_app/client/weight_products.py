"""Products with weights inside a layer that has several or is a user's own, such as attention."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional

from fl_app.client.dense_products import large_product

LARGE = 1 << 16
"""Entries of a weight from which the sums of its gradients are computed as large products."""
FEW = 16
"""Rows below which they are not."""
HELD = 1 << 18
"""Numbers of gradients of samples that are held at once, which fit into a cache."""

Sums = Mapping[nn.Parameter, Tensor]
"""What sums of gradients are added to, by parameter."""


@dataclass(frozen=True)
class OfParameter:
    """What has gradients of one parameter alone."""

    parameter: nn.Parameter

    def trained(self) -> list[nn.Parameter]:
        """Return the parameter."""
        return [self.parameter]


@dataclass(frozen=True)
class Copies(OfParameter):
    """The copies (n, ...) of a parameter for the samples of one call of a layer."""

    output: Tensor

    def of_samples(self, gradient: Tensor) -> dict[nn.Parameter, Tensor]:
        """Return the gradients of samples (n, ...), which are those of the copies."""
        return {self.parameter: gradient}


class Unstored(ABC):
    """Gradients of samples that need not be held for their norms and their weighted sum."""

    @abstractmethod
    def trained(self) -> list[nn.Parameter]:
        """Return the parameters, all of them trained."""

    @abstractmethod
    def of_samples(self, gradient: Tensor) -> dict[nn.Parameter, Tensor]:
        """Return the gradients of samples (n, ...) from that of the output, by parameter."""

    @abstractmethod
    def squares(self, gradient: Tensor) -> Tensor:
        """Return the squared norms (n,) of the gradients of samples."""

    @abstractmethod
    def weighted(
        self, gradient: Tensor, weights: Tensor, chosen: Tensor | None = None
    ) -> dict[nn.Parameter, Tensor]:
        """Return the sum of the gradients of (`chosen`) samples with weights (n,), by parameter."""

    def add_weighted(
        self, sums: Sums, gradient: Tensor, weights: Tensor, chosen: Tensor | None = None
    ) -> None:
        """Add that sum to tensors, by parameter."""
        for parameter, found in self.weighted(gradient, weights, chosen).items():
            sums[parameter].add_(found)

    def from_output(self, gradient: Tensor) -> Tensor:
        """Return the gradient that the others take from that of a recorded output."""
        return gradient


@dataclass(frozen=True)
class WeightRows:
    """Some rows of a parameter, or all of them; of its columns if it has more than two axes."""

    parameter: nn.Parameter
    rows: slice | None = None

    @property
    def value(self) -> Tensor:
        """The rows themselves."""
        whole = self.parameter if self.parameter.dim() < 3 else self.parameter.flatten(1)
        return whole if self.rows is None else whole[self.rows]

    def whole(self, stacked: Tensor) -> Tensor:
        """Return gradients of samples (n, rows, ...), with zeros for the other rows."""
        if self.rows is None:
            return stacked.view(len(stacked), *self.parameter.shape)
        found = stacked.new_zeros(len(stacked), *self.parameter.shape)
        found[:, self.rows] = stacked
        return found


@dataclass(frozen=True)
class Product(Unstored):
    """Inputs (t, n, i) times weights side by side (j, i), plus biases (j,): outputs (t, n, j).

    The t steps come first. `output` is any tensor that has the gradient of the outputs. All
    parameters are trained, and those of frozen ones are left out with their inputs.
    """

    weights: tuple[WeightRows, ...]
    biases: tuple[WeightRows, ...]
    given: Tensor
    output: Tensor | GradientEdge

    @property
    def is_whole(self) -> bool:
        """Whether it is that of whole parameters."""
        return all(each.rows is None for each in (*self.weights, *self.biases))

    def trained(self) -> list[nn.Parameter]:
        """Return the parameters."""
        return [each.parameter for each in (*self.weights, *self.biases)]

    def of_samples(self, gradient: Tensor) -> dict[nn.Parameter, Tensor]:
        """Return the gradients of samples (n, ...) from that of the output, by parameter."""
        return self._apart(outer(gradient, self.given), gradient.sum(0))

    def squares(self, gradient: Tensor) -> Tensor:
        """Return the squared norms (n,) of the gradients of samples, of which few are held at once.

        Products of pairs of steps would give them, too, but wrong where the gradients of steps
        cancel out, and a norm that is too small is no bound. A single step has none.
        """
        if len(gradient) == 1:
            return squared_norms(gradient[0]) * (squared_norms(self.given[0]) + len(self.biases))
        norms = gradient.new_empty(gradient.shape[1])
        for rows, each in held(gradient, self.given):
            torch.linalg.vector_norm(each, dim=(1, 2), out=norms[rows])
        found = norms.square()
        return found + len(self.biases) * gradient.sum(0).square().sum(1) if self.biases else found

    def weighted(
        self, gradient: Tensor, weights: Tensor, chosen: Tensor | None = None
    ) -> dict[nn.Parameter, Tensor]:
        """Return the sum of the gradients of (`chosen`) samples with weights (n,), by parameter."""
        if chosen is not None:
            some = replace(self, given=self.given[:, chosen])
            return some.weighted(gradient[:, chosen], weights[chosen])
        scaled = gradient * weights[:, None]
        of_biases = scaled.sum((0, 1)) if self.biases else scaled
        found = self._apart(summed_outer(scaled, self.given)[None], of_biases[None])
        return {parameter: each[0] for parameter, each in found.items()}

    def add_weighted(
        self, sums: Sums, gradient: Tensor, weights: Tensor, chosen: Tensor | None = None
    ) -> None:
        """Add that sum to tensors, without memory for the sum itself if one product adds it."""
        alone = self.weights[0].parameter if len(self.weights) == 1 and self.is_whole else None
        if chosen is not None or alone is None or alone.dim() != 2 or not _added(gradient, alone):
            super().add_weighted(sums, gradient, weights, chosen)
            return
        scaled = (gradient * weights[:, None]).flatten(0, 1)
        sums[alone].addmm_(scaled.T, self.given.flatten(0, 1))
        for each in self.biases:
            sums[each.parameter].add_(scaled.sum(0))

    def _apart(self, of_weights: Tensor, of_biases: Tensor) -> dict[nn.Parameter, Tensor]:
        parts: Sequence[Tensor] = (of_weights,)
        if len(self.weights) != 1:
            parts = torch.split(of_weights, [each.value.shape[1] for each in self.weights], dim=2)
        both = zip(self.weights, parts, strict=bool(self.weights))
        found = {each.parameter: each.whole(stacked) for each, stacked in both}
        return found | {each.parameter: each.whole(of_biases) for each in self.biases}


def _added(gradient: Tensor, weight: Tensor) -> bool:
    """Whether a product that adds takes less time than a faster one and a sum."""
    return weight.numel() < LARGE or gradient.shape[:2].numel() < FEW


def squared_norms(rows: Tensor) -> Tensor:
    """Return the squared norms (...) of rows (..., i), plus what squares lose that underflow.

    A norm whose other factor is large would be too small without that.
    """
    return rows.square().sum(-1) + rows.shape[-1] * torch.finfo(rows.dtype).tiny


def outer(gradient: Tensor, given: Tensor) -> Tensor:
    """Return the sums (n, j, i) over steps of gradients (t, n, j) times inputs (t, n, i)."""
    return torch.bmm(gradient.permute(1, 2, 0), given.transpose(0, 1))


def held(gradient: Tensor, given: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield the sums of some samples at a time, whose memory serves the next ones, too."""
    count, size, width = gradient.shape[1], gradient.shape[2], given.shape[2]
    few = min(count, max(1, HELD // max(1, size * width)))
    found = gradient.new_empty(few, size, width)
    for start in range(0, count, few):
        rows = slice(start, min(start + few, count))
        each = found[: rows.stop - start]
        torch.bmm(gradient[:, rows].permute(1, 2, 0), given[:, rows].transpose(0, 1), out=each)
        yield rows, each


def weighted_outer(
    gradient: Tensor, given: Tensor, weights: Tensor, chosen: Tensor | None = None
) -> Tensor:
    """Return the sum (j, i) of those of (`chosen`) samples with weights (n,)."""
    if chosen is not None:
        gradient, given, weights = gradient[:, chosen], given[:, chosen], weights[chosen]
    return summed_outer(gradient * weights[:, None], given)


def summed_outer(gradient: Tensor, given: Tensor) -> Tensor:
    """Return the sum (j, i) of those of all samples."""
    rows, columns = gradient.flatten(0, 1).T, given.flatten(0, 1)
    if gradient.shape[2] * given.shape[2] < LARGE:
        return rows @ columns
    return large_product(rows, columns.T)


def record(
    products: list[Product],
    output: Tensor,
    parts: Sequence[tuple[WeightRows, Tensor]],
    biases: Sequence[WeightRows | None],
) -> None:
    """Add the product of trained weights with their inputs (t, n, i), if any, to `products`."""
    trained = [(rows, given.detach()) for rows, given in parts if rows.parameter.requires_grad]
    added = tuple(each for each in biases if each and each.parameter.requires_grad)
    inputs = [given for _, given in trained]
    if not inputs and added:
        inputs = [output.new_empty(*output.shape[:2], 0)]
    if inputs:
        given = torch.cat(inputs, 2) if len(inputs) > 1 else inputs[0]
        # what changes the output in place later changes its gradient, but not that of this edge
        edge = get_gradient_edge(output) if output.requires_grad else output
        products.append(Product(tuple(rows for rows, _ in trained), added, given, edge))


def multiply(
    products: list[Product], weight: WeightRows, bias: WeightRows | None, given: Tensor
) -> Tensor:
    """Return the outputs for inputs (t, n, i), and add a trained product to `products`.

    The output has a gradient, but not the parameters.
    """
    trained = any(each.parameter.requires_grad for each in (weight, bias) if each)
    inputs = given.detach().requires_grad_() if trained and not given.requires_grad else given
    added = None if bias is None else bias.value.detach()
    output = functional.linear(inputs, weight.value.detach(), added)
    if output.requires_grad:  # not in a block of `torch.no_grad`
        record(products, output, [(weight, given)], [bias])
    return output
