"""Products with weights inside a layer that has several or is a user's own, such as attention."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge
from torch.nn import functional

HELD = 1 << 18
"""Numbers of gradients of samples that are held at once, which fit into a cache."""


@dataclass(frozen=True)
class WeightRows:
    """Some rows of a parameter, or all of them; those of its transpose if it is `turned`."""

    parameter: nn.Parameter
    rows: slice | None = None
    turned: bool = False

    @property
    def value(self) -> Tensor:
        """The rows themselves."""
        whole = self.parameter.T if self.turned else self.parameter
        return whole if self.rows is None else whole[self.rows]

    def whole(self, stacked: Tensor) -> Tensor:
        """Return gradients of samples (n, rows, ...), with zeros for the other rows."""
        if self.turned:
            return stacked.mT
        if self.rows is None:
            return stacked
        found = stacked.new_zeros(len(stacked), *self.parameter.shape)
        found[:, self.rows] = stacked
        return found


@dataclass(frozen=True)
class Product:
    """Inputs (t, n, i) times weights side by side (j, i), plus biases (j,): outputs (t, n, j).

    The t steps come first. `output` is any tensor that has the gradient of the outputs. All
    parameters are trained, and those of frozen ones are left out with their inputs.
    """

    weights: tuple[WeightRows, ...]
    biases: tuple[WeightRows, ...]
    given: Tensor
    output: Tensor | GradientEdge

    def trained(self) -> list[nn.Parameter]:
        """Return the parameters."""
        return [each.parameter for each in (*self.weights, *self.biases)]

    def from_output(self, gradient: Tensor) -> Tensor:
        """Return the gradient (t, n, j) of the outputs from that of `output`."""
        return gradient

    def of_samples(self, gradient: Tensor) -> dict[nn.Parameter, Tensor]:
        """Return the gradients of samples (n, ...) from that of the output, by parameter."""
        of_weights = torch.bmm(gradient.permute(1, 2, 0), self.given.transpose(0, 1))
        return self._apart(of_weights, gradient.sum(0))

    def squares(self, gradient: Tensor) -> Tensor:
        """Return the squared norms (n,) of the gradients of samples, of which few are held at once.

        Products of pairs of steps would give them, too, but wrong where the gradients of steps
        cancel out, and a norm that is too small is no bound. A single step has none.
        """
        if len(gradient) == 1:
            of_outputs = gradient[0].square().sum(1)
            return of_outputs * (self.given[0].square().sum(1) + len(self.biases))
        count, size, width = gradient.shape[1], gradient.shape[2], self.given.shape[2]
        few = min(count, max(1, HELD // max(1, size * width)))
        held, norms = gradient.new_empty(few, size, width), gradient.new_empty(count)
        for start in range(0, count, few):
            rows = slice(start, min(start + few, count))
            each = held[: rows.stop - start]
            of_outputs, given = gradient[:, rows].permute(1, 2, 0), self.given[:, rows]
            torch.bmm(of_outputs, given.transpose(0, 1), out=each)
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
        each = weights.expand(len(gradient), -1).flatten()
        rows, given = gradient.flatten(0, 1), (self.given * weights[:, None]).flatten(0, 1)
        found = self._apart((rows.T @ given)[None], (each @ rows)[None])
        return {parameter: each[0] for parameter, each in found.items()}

    def _apart(self, of_weights: Tensor, of_biases: Tensor) -> dict[nn.Parameter, Tensor]:
        widths = [each.value.shape[1] for each in self.weights]
        both = zip(self.weights, torch.split(of_weights, widths, dim=2), strict=True)
        found = {each.parameter: each.whole(stacked) for each, stacked in both}
        return found | {each.parameter: each.whole(of_biases) for each in self.biases}


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
        products.append(Product(tuple(rows for rows, _ in trained), added, given, output))


def multiply(
    products: list[Product], weight: WeightRows, bias: WeightRows | None, given: Tensor
) -> Tensor:
    """Return the outputs for inputs (t, n, i), and add a trained product to `products`."""
    output = functional.linear(given, weight.value, bias.value if bias else None)
    record(products, output, [(weight, given)], [bias])
    return output
