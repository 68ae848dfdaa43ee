"""Gradients of samples that follow from a product with a weight computed from parameters.

That of the weight is a sum of outer products; what computed the weight maps it to the parameters.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from itertools import combinations

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from fl_app.client import derived_weights
from fl_app.client.derived_weights import Gradients
from fl_app.client.weight_products import (
    OfParameter,
    Unstored,
    held,
    outer,
    squared_norms,
    summed_outer,
    weighted_outer,
)

SAFE = 0.1
"""Share of the squares that are added for a norm, from which it is more than their rounding."""


@dataclass(frozen=True)
class Mapped(Unstored):
    """A linear map of the sums over steps of gradients (t, n, j) times inputs (t, n, i)."""

    given: Tensor

    @abstractmethod
    def mapped(self, sums: Tensor, rows: slice | Tensor) -> Gradients:
        """Return the gradients of some samples from their sums (n, j, i), which it may change."""

    @abstractmethod
    def weighted(
        self, gradient: Tensor, weights: Tensor, chosen: Tensor | None = None
    ) -> Gradients:
        """Return the sum of the gradients of (`chosen`) samples with weights (n,), by parameter."""

    def squares_of_step(self, gradient: Tensor) -> Tensor | None:
        """Return the squared norms (n,) for a single step, if they follow without the gradients."""
        return None

    def exact(self, found: Tensor, apart: Tensor, gradient: Tensor) -> Tensor:
        """Return squared norms (n,) for a single step, in place of rough ones those of the sums.

        `apart` (n,) are those of the parts that `found` adds up, and rough those that are small
        beside them.
        """
        rough = found < SAFE * apart
        if bool(rough.any()):
            sums = outer(gradient[:, rough], self.given[:, rough])
            found[rough] = _squares(self.mapped(sums, rough))
        return found

    def of_samples(self, gradient: Tensor) -> Gradients:
        """Return the gradients of samples (n, ...) by parameter."""
        return self.mapped(outer(gradient, self.given), slice(None))

    def squares(self, gradient: Tensor) -> Tensor:
        """Return the squared norms (n,) of the gradients of samples, of which few are held."""
        found = self.squares_of_step(gradient) if len(gradient) == 1 else None
        if found is not None:
            return found
        found = gradient.new_empty(gradient.shape[1])
        for rows, sums in held(gradient, self.given):
            found[rows] = _squares(self.mapped(sums, rows))
        return found


def _squares(gradients: Gradients) -> Tensor:
    """Return the squared norms (n,) of the gradients of samples (n, ...)."""
    rows = [each.reshape(len(each), -1) for each in gradients.values()]  # a number has no axes
    return torch.stack([torch.linalg.vector_norm(each, dim=1).square() for each in rows]).sum(0)


@dataclass(frozen=True)
class Traced(Mapped):
    """The backward pass of what computed the weight, whatever that is."""

    edge: GradientEdge

    def trained(self) -> list[nn.Parameter]:
        """Return the parameters."""
        return [*derived_weights.sources(self.edge)]

    def mapped(self, sums: Tensor, rows: slice | Tensor) -> Gradients:
        """Return the gradients of some samples."""
        return derived_weights.of_samples(self.edge, sums)

    def weighted(
        self, gradient: Tensor, weights: Tensor, chosen: Tensor | None = None
    ) -> Gradients:
        """Return the weighted sum, which passes backward once."""
        total = weighted_outer(gradient, self.given, weights, chosen)
        return derived_weights.gradients(self.edge, total)


@dataclass(frozen=True)
class Elementwise(OfParameter, Mapped):
    """Factors (j, i), where each entry of the weight depends on one entry of a parameter."""

    factors: Tensor

    def mapped(self, sums: Tensor, rows: slice | Tensor) -> Gradients:
        """Return the gradients of some samples."""
        return {self.parameter: sums.mul_(self.factors)}

    def squares_of_step(self, gradient: Tensor) -> Tensor:
        """Return the squared norms (n,)."""
        every = gradient[0], self.factors, self.given[0]
        least = torch.finfo(gradient.dtype).tiny  # see `squared_norms`
        step, factors, given = (each.square() + least for each in every)
        return (step @ factors * given).sum(1)

    def weighted(
        self, gradient: Tensor, weights: Tensor, chosen: Tensor | None = None
    ) -> Gradients:
        """Return the weighted sum."""
        total = weighted_outer(gradient, self.given, weights, chosen)
        return {self.parameter: total.mul_(self.factors)}


@dataclass(frozen=True)
class RowTerms(OfParameter, Unstored):
    """A sum of matrices (j, i) that are the same for all samples but for scales (n, j) of rows."""

    scales: tuple[Tensor, ...]
    rows: tuple[Tensor, ...]

    def added(self, sums: Tensor, samples: slice | Tensor) -> Tensor:
        """Return sums (n, j, i) of some samples, to which the terms were added."""
        for scales, rows in zip(self.scales, self.rows, strict=True):
            sums.addcmul_(scales[samples][:, :, None], rows)
        return sums

    def of_samples(self, gradient: Tensor) -> Gradients:
        """Return the gradients of samples (n, j, i)."""
        zeros = gradient.new_zeros(len(self.scales[0]), *self.parameter.shape)
        return {self.parameter: self.added(zeros, slice(None))}

    def squares(self, gradient: Tensor) -> Tensor:
        """Return the squared norms (n,)."""
        if len(self.scales) > 1:  # the terms can cancel out
            return self.of_samples(gradient)[self.parameter].flatten(1).square().sum(1)
        return self.apart()

    def apart(self) -> Tensor:
        """Return the sum of the squared norms (n,) of the terms."""
        least = torch.finfo(self.rows[0].dtype).tiny  # see `squared_norms`
        pairs = zip(self.scales, map(squared_norms, self.rows), strict=True)
        return torch.stack([(scales.square() + least) @ each for scales, each in pairs]).sum(0)

    def weighted(
        self, gradient: Tensor, weights: Tensor, chosen: Tensor | None = None
    ) -> Gradients:
        """Return the sum of the gradients of (`chosen`) samples with weights (n,), by parameter."""
        scales = self.scales
        if chosen is not None:
            scales, weights = tuple(each[chosen] for each in scales), weights[chosen]
        total = torch.zeros_like(self.rows[0])
        for each, rows in zip(scales, self.rows, strict=True):
            total.addcmul_((weights @ each)[:, None], rows)
        return {self.parameter: total}

    def and_also(self, other: "RowTerms") -> "RowTerms":
        """Return the terms of both."""
        return RowTerms(self.parameter, self.scales + other.scales, self.rows + other.rows)


@dataclass(frozen=True)
class Shifted(Mapped):
    """The sums themselves plus terms of rows, as of a weight whose rows are normalised."""

    terms: RowTerms

    def trained(self) -> list[nn.Parameter]:
        """Return the parameter."""
        return self.terms.trained()

    def mapped(self, sums: Tensor, rows: slice | Tensor) -> Gradients:
        """Return the gradients of some samples."""
        return {self.terms.parameter: self.terms.added(sums, rows)}

    def squares_of_step(self, gradient: Tensor) -> Tensor:
        """Return the squared norms (n,): of samples whose parts cancel out, of their sums."""
        step, given, terms = gradient[0], self.given[0], self.terms
        apart = squared_norms(step) * squared_norms(given) + terms.apart()
        found = apart
        every = [*zip(terms.scales, terms.rows, strict=True)]
        for scales, rows in every:
            found = found + 2 * (step * scales * (given @ rows.T)).sum(1)
        for (scales, rows), (others, more) in combinations(every, 2):
            found = found + 2 * (scales * others) @ (rows * more).sum(1)
        return self.exact(found, apart, gradient)

    def weighted(
        self, gradient: Tensor, weights: Tensor, chosen: Tensor | None = None
    ) -> Gradients:
        """Return the weighted sum."""
        total = weighted_outer(gradient, self.given, weights, chosen)
        (added,) = self.terms.weighted(gradient, weights, chosen).values()
        return {self.terms.parameter: total.add_(added)}


@dataclass(frozen=True)
class Normalised(OfParameter, Mapped):
    """The `rows` (j, i) of a parameter over their `norms` (j,), and times others.

    The gradient of a row is a `scale` (j,), the other norm over its own, times the part of that of
    the weight which is perpendicular to it. `along` (t, n, j) are the inputs times these rows.
    """

    rows: Tensor
    norms: Tensor
    scales: Tensor
    along: Tensor

    def mapped(self, sums: Tensor, rows: slice | Tensor) -> Gradients:
        """Return the gradients of some samples."""
        along = torch.einsum("nji,ji->nj", sums, self.rows) * self.scales / self.norms.square()
        sums.mul_(self.scales[:, None]).addcmul_(-along[:, :, None], self.rows)
        return {self.parameter: sums}

    def squares_of_step(self, gradient: Tensor) -> Tensor:
        """Return the squared norms (n,): of samples whose parts cancel out, of their sums."""
        step = (gradient[0] * self.scales).square() + torch.finfo(gradient.dtype).tiny
        apart = step.sum(1) * squared_norms(self.given[0])
        found = apart - (step * (self.along[0] / self.norms).square()).sum(1)
        return self.exact(found, apart, gradient)

    def weighted(
        self, gradient: Tensor, weights: Tensor, chosen: Tensor | None = None
    ) -> Gradients:
        """Return the weighted sum."""
        along = self.along
        if chosen is not None:
            some = replace(self, given=self.given[:, chosen], along=along[:, chosen])
            return some.weighted(gradient[:, chosen], weights[chosen])
        scaled = gradient * weights[:, None] * self.scales
        total = summed_outer(scaled, self.given)
        factors = (scaled * along).sum((0, 1)) / self.norms.square()
        return {self.parameter: total.addcmul_(-factors[:, None], self.rows)}
