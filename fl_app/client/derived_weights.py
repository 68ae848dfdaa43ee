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


class Derived(nn.Parameter):
    """A tensor computed from parameters alone, as a parameter that shares its memory."""

    edge: GradientEdge

    @classmethod
    def of(cls, tensor: Tensor) -> "Derived":
        """Return it for a tensor of torch with a gradient function."""
        found = cls(tensor.detach(), requires_grad=False)
        found.edge = get_gradient_edge(tensor)
        return found


def is_leaf(edge: GradientEdge) -> bool:
    """Whether an edge leads to the gradient of a parameter itself."""
    return hasattr(edge.node, "variable")


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
    try:
        found: Sequence[Tensor | None] = torch.autograd.grad(
            edge, leaves, stacked, is_grads_batched=True, retain_graph=True, allow_unused=True
        )
    except Exception:  # a function of a user's own may not bear several gradients at once
        each = [gradients(edge, one) for one in stacked]
        return {leaf: torch.stack([one[leaf] for one in each]) for leaf in each[0]}
    return {leaf: each for leaf, each in zip(leaves, found, strict=True) if each is not None}
