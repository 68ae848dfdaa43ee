"""Products with weights inside a layer that has several, such as attention."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Rows:
    """Some rows of a parameter; all of them without `rows`."""

    parameter: nn.Parameter
    rows: slice | None = None

    @property
    def value(self) -> Tensor:
        """The rows themselves."""
        return self.parameter if self.rows is None else self.parameter[self.rows]

    def whole(self, stacked: Tensor) -> Tensor:
        """Return gradients of samples (n, rows, ...), with zeros for the other rows."""
        if self.rows is None:
            return stacked
        found = stacked.new_zeros(len(stacked), *self.parameter.shape)
        found[:, self.rows] = stacked
        return found


@dataclass(frozen=True)
class Product:
    """Inputs (t, n, i) times a weight (j, i), plus a bias (j,): outputs (t, n, j), t steps first.

    `output` is any tensor that has the gradient of the outputs.
    """

    weight: Rows
    bias: Rows | None
    given: Tensor
    output: Tensor

    def trained(self) -> list[nn.Parameter]:
        """Return the trainable parameters."""
        both = (self.weight, self.bias)
        return [each.parameter for each in both if each and each.parameter.requires_grad]

    def of_samples(self, gradient: Tensor) -> dict[nn.Parameter, Tensor]:
        """Return the gradients of samples (n, ...) from that of the output, by parameter."""
        found = {}
        if self.weight.parameter.requires_grad:
            stacked = torch.bmm(gradient.permute(1, 2, 0), self.given.transpose(0, 1))
            found[self.weight.parameter] = self.weight.whole(stacked)
        if self.bias and self.bias.parameter.requires_grad:
            found[self.bias.parameter] = self.bias.whole(gradient.sum(0))
        return found


def multiply(products: list[Product], weight: Rows, bias: Rows | None, given: Tensor) -> Tensor:
    """Return the outputs for inputs (t, n, i), and add a trained product to `products`."""
    output = functional.linear(given, weight.value, bias.value if bias else None)
    product = Product(weight, bias, given.detach(), output)
    if product.trained():
        products.append(product)
    return output
