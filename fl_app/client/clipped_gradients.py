"""The sum of clipped gradients per sample, from a single backward pass.

Opacus has the gradients per sample of each kind of layer, but stores them for all layers and reads
them twice, or repeats the backward pass for ghost clipping. Here one backward pass gives the
gradients of the layers' outputs, and nothing else is computed by it. A dense layer needs no
gradients per sample: their norms and their weighted sum follow from its inputs and these. Li et
al., ICLR 2022, section 4 (ghost clipping); Bu et al., ICML 2023 (book-keeping: one pass).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from fl_app.client.derived_rules import joined, of_parameters
from fl_app.client.layer_calls import Call
from fl_app.client.own_layer_gradients import OwnCall
from fl_app.client.weight_products import Copies, Sums, Unstored

TINY = 1e-6
"""Added to norms, as by Opacus."""


@dataclass(frozen=True)
class SampleGradients:
    """The gradients of n samples, by parameter.

    `parts` has those that are stored (n, ...). Those of `products` are outer products of the
    gradient of a dense layer's output and its input, sums of these over the steps of sequences,
    each found twice, or rows that are looked up.
    """

    parts: Mapping[nn.Parameter, Tensor]
    products: Sequence[tuple[Unstored, Tensor]] = ()

    @cached_property
    def squares(self) -> Tensor:
        """The squared norms (n,) of the gradients over all parameters."""
        rows = [each.reshape(len(each), -1) for each in self.parts.values()]
        parts = [torch.linalg.vector_norm(each, dim=1).square() for each in rows]
        parts += [product.squares(gradient) for product, gradient in self.products]
        return torch.stack(parts).sum(0)

    def stacked(self) -> dict[nn.Parameter, Tensor]:
        """Return the gradients themselves (n, ...), by parameter."""
        found = dict(self.parts)
        for product, gradient in self.products:
            found |= product.of_samples(gradient)
        return found

    def add_weighted(self, sums: Sums, weights: Tensor, rows: Tensor) -> None:
        """Add the sum over some `rows` (n,) of the gradients with weights (n,) to `sums`."""
        every = bool(rows.all())
        for product, gradient in self.products:
            product.add_weighted(sums, gradient, weights, None if every else rows)
        for parameter, stacked in self.parts.items():
            each, some = (weights, stacked) if every else (weights[rows], stacked[rows])
            summed = each @ some.reshape(len(some), parameter.numel())
            sums[parameter].add_(summed.view(stacked.shape[1:]))

    def add_clipped(self, sums: Sums, bound: float, *, count: int = 1) -> None:
        """Add the sum of the gradients, each clipped to a norm of `bound`, over `count` to `sums`.

        A sample without a finite gradient counts as one without a gradient: it would make the sum
        NaN, which no noise hides.
        """
        norms = self.squares.sqrt()
        factors = (bound / (norms + TINY)).clamp(max=1.0) / count
        self.add_weighted(sums, factors, norms.isfinite())


def gradients_of(calls: Sequence[Call | Unstored | OwnCall], loss: Tensor) -> SampleGradients:
    """Return the gradients of samples, from the calls of a forward pass and their summed loss."""
    parts: dict[nn.Parameter, Tensor] = {}
    products: list[tuple[Unstored, Tensor]] = []
    found = [part for each in _with_gradients(calls, loss) for part in of_parameters(*each)]
    uses = _uses(found)
    found = _dense_as_products(found, uses)
    if max(uses.values(), default=0) > 1:
        found = joined(found)
        uses = _uses(found)
    for call, gradient in found:
        if isinstance(call, Unstored) and all(uses[each] == 1 for each in call.trained()):
            products.append((call, gradient))
            continue
        for parameter, stacked in call.of_samples(gradient).items():
            before = parts.get(parameter)
            parts[parameter] = stacked if before is None else before + stacked
    return SampleGradients(parts, products)


def _uses(found: Sequence[tuple[Any, Tensor]]) -> Counter[nn.Parameter]:
    return Counter(parameter for call, _ in found for parameter in call.trained())


def _dense_as_products(
    found: Sequence[tuple[Any, Tensor]], uses: Counter[nn.Parameter]
) -> list[tuple[Any, Tensor]]:
    """Return the calls, with products for those of a dense layer.

    But not for a single one on sequences, whose gradients of samples are stored.
    """
    return [
        call.product(gradient)
        if isinstance(call, Call)
        and call.is_dense
        and (gradient.dim() == 2 or any(uses[p] > 1 for p in call.trained()))
        else (call, gradient)
        for call, gradient in found
    ]


def _with_gradients(
    calls: Sequence[Call | Unstored | OwnCall], loss: Tensor
) -> list[tuple[Call | Unstored | OwnCall | Copies, Tensor]]:
    """Return each call that the loss depends on with the gradient of its output.

    In the place of a layer of a user's own are its parts, unless one of its parameters has a
    gradient of its own, and so another use than in these.
    """
    own = [each for each in calls if isinstance(each, OwnCall)]
    every = [*calls, *(part for call in own for part in call.parts)]
    weights = list(dict.fromkeys(p for call in own if call.parts for p in call.trained()))
    outputs: list[Any] = [each.output for each in every]  # type: ignore[union-attr]
    wanted = [*outputs, *weights]
    gradients = torch.autograd.grad(loss, wanted, allow_unused=True)
    rest = zip(weights, gradients[len(every) :], strict=True)
    used = {weight for weight, gradient in rest if gradient is not None}
    replaced = set[int]()
    for call in own:
        call.own.apart = call.own.apart and used.isdisjoint(call.trained())
        replaced |= {id(each) for each in ([call] if call.own.apart else call.parts)}
    return [
        (each, each.from_output(gradient) if isinstance(each, Unstored) else gradient)
        for each, gradient in zip(every, gradients, strict=False)
        if gradient is not None and id(each) not in replaced
    ]
