"""Rows of a weight that samples look up, as in an embedding, and the gradients of samples."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from fl_app.client.weight_products import OfParameter, Sums, Unstored


@dataclass(frozen=True)
class Lookup(OfParameter, Unstored):
    """Rows (n, ..., e) of a weight (v, e) at `index` (n, t), which are those of `output`.

    The row `ignored` has no gradient. The gradients of a row that a sample looks up several times
    are added before anything else is done with them: r rows are left.
    """

    index: Tensor
    output: GradientEdge
    ignored: int | None = None

    def from_output(self, gradient: Tensor) -> Tensor:
        """Return the gradients of rows (r, e) by sample from that of `output`."""
        places, inverse = self._places
        rows = gradient.reshape(len(inverse), -1)
        found = rows.new_zeros(len(places), rows.shape[1]).index_add_(0, inverse, rows)
        if self.ignored is not None:
            found[places % len(self.parameter) == self.ignored] = 0
        return found

    def of_samples(self, gradient: Tensor) -> dict[nn.Parameter, Tensor]:
        """Return the gradients of samples (n, v, e) from those of rows."""
        size = len(self.index), *self.parameter.shape
        found = gradient.new_zeros(size)
        found.flatten(0, 1)[self._places[0]] = gradient
        return {self.parameter: found}

    def squares(self, gradient: Tensor) -> Tensor:
        """Return the squared norms (n,) of the gradients of samples, which are not held."""
        found = gradient.new_zeros(len(self.index))
        return found.index_add_(0, self._samples, gradient.square().sum(1))

    def weighted(
        self, gradient: Tensor, weights: Tensor, chosen: Tensor | None = None
    ) -> dict[nn.Parameter, Tensor]:
        """Return the sum of the gradients of (`chosen`) samples with weights (n,), by parameter."""
        found = torch.zeros_like(self.parameter, requires_grad=False)
        self.add_weighted({self.parameter: found}, gradient, weights, chosen)
        return {self.parameter: found}

    def add_weighted(
        self, sums: Sums, gradient: Tensor, weights: Tensor, chosen: Tensor | None = None
    ) -> None:
        """Add that sum to tensors, of which other rows are left alone."""
        places, samples = self._places[0] % len(self.parameter), self._samples
        if chosen is not None:
            kept = chosen[samples]
            gradient, places, samples = gradient[kept], places[kept], samples[kept]
        sums[self.parameter].index_add_(0, places, gradient * weights[samples, None])

    @cached_property
    def _places(self) -> tuple[Tensor, Tensor]:
        """The rows (r,) among those of all samples, and which of them each lookup (n * t) is."""
        samples = torch.arange(len(self.index), device=self.index.device)[:, None]
        places = (self.index + samples * len(self.parameter)).flatten()
        found: tuple[Tensor, Tensor] = torch.unique(places, return_inverse=True)
        return found

    @cached_property
    def _samples(self) -> Tensor:
        """The sample of each row (r,)."""
        return self._places[0] // len(self.parameter)
