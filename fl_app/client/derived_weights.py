"""Tensors that a layer computes from its parameters alone, such as a product of two weights.

No sample enters them, so each is itself a weight: samples have gradients of it, and the backward
pass of what computed it leads from these to the gradients of the parameters.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

Gradients = dict[nn.Parameter, Tensor]
ENTRYWISE = {
    f"{name}Backward{kind}" for kind in "01" for name in (
        "Abs", "Add", "Clamp", "ClampMin", "Clone", "Cos", "Div", "Elu", "Erf", "Exp", "Expm1",
        "Gelu", "Hardtanh", "LeakyRelu", "Log", "Log1P", "LogSigmoid", "MaskedFill", "Mul", "Neg",
        "Pow", "Reciprocal", "Relu", "Rsqrt", "Rsub", "Sigmoid", "Silu", "Sin", "Softplus", "Sqrt",
        "Sub", "Tanh", "Tril", "Triu", "Where",
    )
}  # fmt: skip
"""Functions each entry of which depends on one entry of each of their inputs, broadcast or not."""
REDUCING = {f"{name}Backward{kind}" for kind in "01"
            for name in ("LinalgVectorNorm", "Mean", "Norm", "Std", "Sum", "Var")}  # fmt: skip


class Derived(nn.Parameter):
    """A tensor computed from parameters alone, as a parameter that shares its memory."""

    edge: GradientEdge

    @classmethod
    def of(cls, tensor: Tensor) -> "Derived":
        """Return it for a tensor of torch with a gradient function."""
        found = cls(tensor.detach(), requires_grad=False)
        found.edge = get_gradient_edge(tensor)
        return found


def edges(edge: GradientEdge) -> list[GradientEdge]:
    """Return an edge and those of all that it was computed from."""
    found = {edge: None}
    fresh = [edge]
    while fresh:
        fresh = [each for one in fresh for each in before(one) if each and each not in found]
        found |= dict.fromkeys(fresh)
    return [*found]


def before(edge: GradientEdge) -> list[GradientEdge | None]:
    """Return the edges of the inputs of a function; None for one without a gradient."""
    return [
        None if node is None else GradientEdge(node, at) for node, at in edge.node.next_functions
    ]


def shape(edge: GradientEdge) -> tuple[int, ...]:
    """Return the shape of the tensor of an edge."""
    node: Any = edge.node
    return tuple(node._input_metadata[edge.output_nr].shape)


def sources(edge: GradientEdge) -> tuple[nn.Parameter, ...]:
    """Return the leaves from which a tensor was computed."""
    nodes: list[Any] = [each.node for each in edges(edge)]
    return tuple(dict.fromkeys(each.variable for each in nodes if hasattr(each, "variable")))


def gradients(edge: GradientEdge, gradient: Tensor) -> Gradients:
    """Return the gradients of the leaves from that of what was computed from them."""
    leaves = sources(edge)
    found = torch.autograd.grad(edge, leaves, gradient, retain_graph=True, allow_unused=True)
    return {leaf: each for leaf, each in zip(leaves, found, strict=True) if each is not None}


def of_samples(edge: GradientEdge, stacked: Tensor) -> Gradients:
    """Return the gradients of samples (n, ...) of the leaves from those of what was computed."""
    leaves = sources(edge)
    if hasattr(edge.node, "variable"):
        return {leaves[0]: stacked}
    try:
        found: Sequence[Tensor | None] = torch.autograd.grad(
            edge, leaves, stacked, is_grads_batched=True, retain_graph=True, allow_unused=True
        )
    except Exception:  # a function of a user's own may not bear several gradients at once
        each = [gradients(edge, one) for one in stacked]
        return {leaf: torch.stack([one[leaf] for one in each]) for leaf in each[0]}
    return {leaf: each for leaf, each in zip(leaves, found, strict=True) if each is not None}


def is_entrywise(edge: GradientEdge) -> bool:
    """Whether each entry of a tensor depends on one entry of a leaf of its shape, its only one."""
    return len(sources(edge)) == 1 and all(
        shape(each) == shape(edge)
        and (hasattr(each.node, "variable") or each.node.name() in ENTRYWISE)
        for each in edges(edge)
    )


def is_of_rows(edge: GradientEdge, leaf: Tensor) -> bool:
    """Whether a column (j, 1) has in each row what depends on that row of a leaf (j, i) alone."""
    return shape(edge)[1:] == (1,) and all(
        len(shape(each)) == 2 and shape(each)[0] == len(leaf) and _keeps_rows(each.node)
        for each in edges(edge)
    )


def _keeps_rows(node: Any) -> bool:
    if hasattr(node, "variable") or node.name() in ENTRYWISE or node.name() == "ExpandBackward0":
        return True
    dims = getattr(node, "_saved_dim", None)
    last = isinstance(dims, tuple) and [each % 2**64 in (1, 2**64 - 1) for each in dims] == [True]
    return node.name() in REDUCING and last and bool(node._saved_keepdim)


def paths(edge: GradientEdge, known: dict[GradientEdge, int]) -> int:
    """Return the number of ways to leaves."""
    if edge not in known:
        known[edge] = sum(paths(each, known) for each in before(edge) if each) or 1
    return known[edge]
