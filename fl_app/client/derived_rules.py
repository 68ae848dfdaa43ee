"""The way from the gradient of a weight that was computed from parameters to those of these.

The gradient of a sample is a sum of outer products, and stays one through products of matrices,
transposes, sums and scales. The rules follow torch's record of what computed the weight; where
none fits, the whole backward pass maps the gradients.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from fl_app.client import derived_weights
from fl_app.client.derived_products import Elementwise, Normalised, RowTerms, Shifted, Traced
from fl_app.client.derived_weights import (
    Derived,
    before,
    edges,
    is_entrywise,
    is_of_rows,
    paths,
    shape,
    sources,
)
from fl_app.client.weight_products import Copies, Product, Unstored, WeightRows

Part = tuple[Unstored | Copies, Tensor]
"""What has gradients of samples, and the gradient that these follow from."""
Rule = Callable[[GradientEdge, Tensor, Tensor], Iterable[Part] | None]
PATHS, NODES = 16, 200
"""Most ways from a weight to its parameters, and most functions on them, that rules follow."""


def of_parameters(part: Any, gradient: Tensor) -> list[tuple[Any, Tensor]]:
    """Return what has the gradients of samples of parameters, from one of a derived weight.

    Anything else is returned as it is.
    """
    weight = next(iter(part.trained()), None)
    if not isinstance(weight, Derived):
        return [(part, gradient)]
    if isinstance(part, Product):
        each = gradient.sum(0)
        return [
            *pulled(weight.edge, gradient, part.given),
            *((Copies(bias.parameter, each), each) for bias in part.biases),
        ]
    (stacked,) = part.of_samples(gradient).values()
    found = derived_weights.of_samples(weight.edge, stacked)
    return [(Copies(leaf, each), each) for leaf, each in found.items()]


def joined(found: Sequence[tuple[Any, Tensor]]) -> list[tuple[Any, Tensor]]:
    """Return the parts of gradients, with products and terms of rows of one parameter in one.

    The steps of several products come one after another.
    """
    groups = dict[Any, list[tuple[Any, Tensor]]]()
    for part, gradient in found:
        joins = isinstance(part, RowTerms) or (isinstance(part, Product) and part.is_whole)
        key: Any = tuple(map(id, part.trained())) if joins else object()
        if isinstance(part, Normalised):
            key = id(part.parameter), *part.scales.tolist()
        groups.setdefault(key, []).append((part, gradient))
    return [_joined(each) if len(each) > 1 else each[0] for each in groups.values()]


def _joined(parts: list[tuple[Any, Tensor]]) -> tuple[Any, Tensor]:
    if isinstance(parts[0][0], Normalised):
        steps = [(part.given, part.along, gradient) for part, gradient in parts]
        given, along, gradient = map(torch.cat, zip(*steps, strict=True))
        return replace(parts[0][0], given=given, along=along), gradient
    products = [each for each in parts if isinstance(each[0], Product)]
    terms = [part for part, _ in parts if isinstance(part, RowTerms)]
    every = reduce(RowTerms.and_also, terms) if terms else None
    if not products:
        return every, parts[0][1]
    gradient = torch.cat([each for _, each in products])
    given = torch.cat([part.given for part, _ in products])
    if every:
        return Shifted(given, every), gradient
    return replace(products[0][0], given=given), gradient


def pulled(edge: GradientEdge, gradient: Tensor, given: Tensor) -> list[Part]:
    """Return the parts of the gradients of parameters.

    `edge` is that of a weight (j, i), of which samples have the sums over steps of the gradients
    (t, n, j) times inputs (t, n, i).
    """
    if len(edges(edge)) <= NODES and paths(edge, {}) <= PATHS:
        # what a function has saved is not public, and has other names in other releases of torch
        with torch.no_grad(), suppress(AttributeError):
            return [*_pulled(edge, gradient, given)]
    return [(Traced(given, edge), gradient)]


def _pulled(edge: GradientEdge | None, gradient: Tensor, given: Tensor) -> Iterator[Part]:
    if edge is None:
        return
    node: Any = edge.node
    if hasattr(node, "variable"):
        yield Product((WeightRows(node.variable),), (), given, gradient), gradient
        return
    rule = RULES.get(node.name())
    parts = rule(edge, gradient, given) if rule else None
    if parts is not None:
        yield from parts
    elif is_entrywise(edge):
        (leaf,) = sources(edge)
        (factors,) = derived_weights.gradients(edge, torch.ones_like(leaf)).values()
        yield Elementwise(given, leaf, factors), gradient
    else:
        yield Traced(given, edge), gradient


def _turned(edge: GradientEdge, gradient: Tensor, given: Tensor) -> Iterable[Part]:
    """Return those of a transpose."""
    return _pulled(before(edge)[0], given, gradient)


def _permuted(edge: GradientEdge, gradient: Tensor, given: Tensor) -> Iterable[Part] | None:
    """Return those of a permutation of two axes, if it swaps them."""
    node: Any = edge.node
    if node.name() == "PermuteBackward0":
        swapped = [at % 2 for at in node._saved_dims] == [1, 0]
    else:
        swapped = node._saved_dim0 % 2 != node._saved_dim1 % 2
    return _turned(edge, gradient, given) if swapped else None


def _same(edge: GradientEdge, gradient: Tensor, given: Tensor) -> Iterable[Part]:
    """Return those of a copy."""
    return _pulled(before(edge)[0], gradient, given)


def _viewed(edge: GradientEdge, gradient: Tensor, given: Tensor) -> Iterable[Part] | None:
    """Return those of a parameter with more axes, of which all but the first make the columns."""
    (inside,) = before(edge)
    whole = inside and hasattr(inside.node, "variable") and shape(inside)[0] == shape(edge)[0]
    return _pulled(inside, gradient, given) if whole else None


def _negated(edge: GradientEdge, gradient: Tensor, given: Tensor) -> Iterable[Part]:
    """Return those of a change of the sign."""
    return _pulled(before(edge)[0], -gradient, given)


def _multiplied(edge: GradientEdge, gradient: Tensor, given: Tensor) -> Iterable[Part]:
    """Return those of a product of two matrices."""
    node: Any = edge.node
    left, right = before(edge)
    if left:
        yield from _pulled(left, gradient, given @ node._saved_mat2.T)
    if right:
        yield from _pulled(right, gradient @ node._saved_self, given)


def _added(edge: GradientEdge, gradient: Tensor, given: Tensor) -> Iterable[Part] | None:
    """Return those of a sum or difference of a matrix and another, or one row, column or number."""
    node: Any = edge.node
    if all(before(edge)) and is_entrywise(edge):
        return None
    scales = 1, node._saved_alpha * (-1 if node.name().startswith("Sub") else 1)
    found = list[Iterable[Part]]()
    for each, scale in zip(before(edge), scales, strict=True):
        if each and shape(each) == shape(edge):
            found.append(_pulled(each, gradient * scale, given))
        elif each:
            totals = _totals(_padded(shape(each)), gradient * scale, given, None)
            found.append(_of_statistic(each, totals))
    return chain.from_iterable(found)


def _scaled(edge: GradientEdge, gradient: Tensor, given: Tensor) -> Iterable[Part] | None:
    """Return those of a matrix times, or by, one row, column or number, if one of them is that."""
    node: Any = edge.node
    divided = node.name().startswith("Div")
    sides = [*zip(before(edge), (node._saved_self, node._saved_other), strict=True)]
    for (main, matrix), (other, factor) in (sides, sides[::-1])[: 1 if divided else 2]:
        if factor is None or (matrix is None and (other or not main)):
            continue
        thin = _thin(other, factor, shape(edge))
        if thin and (shape(main) if main else tuple(matrix.shape)) == shape(edge):
            return _of_factors(main, matrix, *thin, gradient, given, divided=divided)
    return None


def _of_factors(
    main: GradientEdge | None, matrix: Tensor | None, scaling: GradientEdge | None, factor: Tensor,
    gradient: Tensor, given: Tensor, *, divided: bool,
) -> Iterable[Part]:  # fmt: skip
    """Yield those of a matrix (j, i), and of a factor (1 or j, 1 or i) with its edge."""
    factor = factor.to(gradient)  # numbers are in double precision, on the CPU
    scale = factor.reciprocal() if divided else factor
    if main:
        by_rows = factor.shape[1] == 1
        rows, columns = (scale[:, 0], 1) if by_rows else (1, scale[0])
        yield from _pulled(main, gradient * rows, given * columns)
    if scaling and matrix is not None:
        totals = _totals(tuple(factor.shape), gradient, given, matrix)
        yield from _of_statistic(scaling, -totals * scale.square() if divided else totals)


def _normalised(edge: GradientEdge, gradient: Tensor, given: Tensor) -> Iterable[Part] | None:
    """Return those of rows of given norms, as of `parametrizations.weight_norm`."""
    node: Any = edge.node
    direction, norms = before(edge)
    if node._saved_dim != 0 or (direction and not hasattr(direction.node, "variable")):
        return None
    rows, lengths = node._saved_v.detach(), node._saved_result1[:, 0]
    along = given @ rows.T
    found = list[Part]()
    if direction:
        scales, node = node._saved_g[:, 0] / lengths, direction.node
        found.append((Normalised(given, node.variable, rows, lengths, scales, along), gradient))
    totals = (along * gradient).sum(0) / lengths
    return chain(found, _of_statistic(norms, totals[:, :, None]) if norms else ())


def _thin(
    edge: GradientEdge | None, value: Tensor, size: tuple[int, ...]
) -> tuple[GradientEdge | None, Tensor] | None:
    """Return a factor as (1 or j, 1 or i) with its edge, if it has fewer entries than (j, i)."""
    if edge and edge.node.name() == "ExpandBackward0" and value.dim() == 2:
        (edge,) = before(edge)
        value = value[tuple(slice(most) for most in _padded(shape(edge)))] if edge else value
    found = value.detach().reshape(_padded(tuple(value.shape)))
    return (edge, found) if 1 in found.shape and found.shape != size else None


def _padded(size: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of two axes to which one of at most two is broadcast first."""
    return (1,) * (2 - len(size)) + size


def _totals(
    size: tuple[int, ...], gradient: Tensor, given: Tensor, matrix: Tensor | None
) -> Tensor:
    """Return sums (n, *size), size (1 or j, 1 or i), of outer products times a matrix or 1.

    They are over the steps and each axis of size 1.
    """
    if size[1] > 1:
        through = gradient.sum(2, keepdim=True) if matrix is None else gradient @ matrix
        return (through * given).sum(0)[:, None]
    through = given.sum(2, keepdim=True) if matrix is None else given @ matrix.T
    found = (through * gradient).sum(0)[:, :, None]
    return found if size[0] > 1 else found.sum(1, keepdim=True)


def _of_statistic(edge: GradientEdge, totals: Tensor) -> Iterator[Part]:
    """Yield those of a row, a column or a number, from its gradients of samples (n, r, c)."""
    size, leaves = shape(edge), sources(edge)
    totals = totals.reshape(len(totals), *size)
    of_rows = len(leaves) == 1 and is_of_rows(edge, leaves[0])
    if hasattr(edge.node, "variable") or not (of_rows or totals[0].numel() == 1):
        found = derived_weights.of_samples(edge, totals)
        yield from ((Copies(leaf, each), each) for leaf, each in found.items())
        return
    for leaf, each in derived_weights.gradients(edge, torch.ones_like(totals[0])).items():
        if leaf.dim() == 2:
            scales = totals.reshape(len(totals), -1).expand(-1, len(leaf))
            yield RowTerms(leaf, (scales,), (each,)), totals
        else:
            stacked = totals.reshape(-1, *[1] * leaf.dim()) * each
            yield Copies(leaf, stacked), stacked


RULES: dict[str, Rule] = {
    f"{name}Backward0": rule for name, rule in (
        ("Add", _added), ("Sub", _added), ("Mul", _scaled), ("Div", _scaled), ("Neg", _negated),
        ("Clone", _same), ("Mm", _multiplied), ("T", _turned), ("Permute", _permuted),
        ("Transpose", _permuted), ("View", _viewed), ("UnsafeView", _viewed),
        ("WeightNormInterface", _normalised),
    )
}  # fmt: skip
