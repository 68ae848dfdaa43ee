"""The sum of clipped gradients per sample, from a single backward pass.

Opacus has the gradients per sample of each kind of layer, but stores them for all layers and reads
them twice, or repeats the backward pass for ghost clipping. Here one backward pass gives the
gradients of the layers' outputs, and nothing else is computed by it. A dense layer needs no
gradients per sample: their norms and their weighted sum follow from its inputs and these. Li et
al., ICLR 2022, section 4 (ghost clipping); Bu et al., ICML 2023 (book-keeping: one pass).

A layer of any other class is differentiated sample by sample with torch.func, once more and apart
from the rest.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch
from opacus import GradSampleModule
from opacus.layers import DPGRU, DPLSTM, DPRNN
from opacus.utils.tensor_utils import sum_over_all_but_batch_and_last_n
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

LAYERS = (
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding, nn.GroupNorm, nn.LayerNorm,
    nn.RMSNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
)  # fmt: skip
"""Layers for which Opacus has gradients per sample that depend on one call's tensors alone."""
TINY = 1e-6
"""Added to norms, as by Opacus."""


@dataclass(frozen=True)
class Call:
    """One call of a layer: its input and its output (n, ...)."""

    layer: nn.Module
    given: Tensor
    output: Tensor


def is_separable(module: nn.Module) -> bool:
    """Whether the gradients of each trained layer can be found apart from those of the others.

    Not if the network is itself a layer of a user's own class, nor with layers for which Opacus
    needs more than the tensors of one call, such as those inside its DPLSTM.
    """
    trained, sampled = _trained(module), GradSampleModule.GRAD_SAMPLERS.keys()
    if any(type(layer) in {*sampled, DPRNN, DPLSTM, DPGRU} - {*LAYERS} for layer in trained):
        return False
    return type(module) in LAYERS or module not in trained


@contextmanager
def calls_of(module: nn.Module) -> Iterator[list[Call]]:
    """Yield a list to which each call of a trained layer in the block is added, in order."""
    calls: list[Call] = []

    def note(layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        calls.append(Call(layer, given[0].detach(), output))

    hooks = [layer.register_forward_hook(note) for layer in _trained(module)]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


@dataclass(frozen=True)
class SampleGradients:
    """The gradients of n samples, by parameter.

    `parts` has those that are stored (n, ...). Those of `dense` layers are outer products of the
    gradient of the layer's output (n, j) and its input (n, i), which come after the layer.
    """

    parts: Mapping[nn.Parameter, Tensor]
    dense: Sequence[tuple[nn.Module, Tensor, Tensor]] = ()

    @cached_property
    def squares(self) -> Tensor:
        """The squared norms (n,) of the gradients over all parameters."""
        parts = [stacked.flatten(1).square().sum(1) for stacked in self.parts.values()]
        for layer, given, gradient in self.dense:
            own, square = _parameters(layer), gradient.square().sum(1)
            if "weight" in own:
                parts.append(square * given.square().sum(1))
            if "bias" in own:
                parts.append(square)
        return torch.stack(parts).sum(0)

    def stacked(self) -> dict[nn.Parameter, Tensor]:
        """Return the gradients themselves (n, ...), by parameter."""
        found = dict(self.parts)
        for layer, given, gradient in self.dense:
            own = _parameters(layer)
            if "weight" in own:
                found[own["weight"]] = torch.einsum("ni,nj->nij", gradient, given)
            if "bias" in own:
                found[own["bias"]] = gradient
        return found

    def weighted(self, weights: Tensor, rows: Tensor) -> dict[nn.Parameter, Tensor]:
        """Return the sum over some `rows` (n,) of the gradients with weights (n,), by parameter."""

        def some(each: Tensor) -> Tensor:
            return each if every else each[rows]

        found, every = {}, bool(rows.all())
        weights = some(weights)
        for layer, given, gradient in self.dense:
            scaled, own = some(gradient) * weights[:, None], _parameters(layer)
            if "weight" in own:
                found[own["weight"]] = scaled.T @ some(given)
            if "bias" in own:
                found[own["bias"]] = scaled.sum(0)
        for parameter, stacked in self.parts.items():
            found[parameter] = torch.einsum("n,n...->...", weights, some(stacked))
        return found

    def clipped(self, bound: float) -> dict[nn.Parameter, Tensor]:
        """Return the sum of the gradients, each clipped to a norm of `bound`, by parameter.

        A sample without a finite gradient counts as one without a gradient: it would make the sum
        NaN, which no noise hides.
        """
        norms = self.squares.sqrt()
        return self.weighted((bound / (norms + TINY)).clamp(max=1.0), norms.isfinite())


def gradients_of(calls: Sequence[Call], loss: Tensor) -> SampleGradients:
    """Return the gradients of samples, from the calls of a forward pass and their summed loss."""
    parts: dict[nn.Parameter, Tensor] = {}
    dense: list[tuple[nn.Module, Tensor, Tensor]] = []
    gradients = torch.autograd.grad(loss, [each.output for each in calls], allow_unused=True)
    uses = Counter(p for each in calls for p in _trained_in(each.layer).values())
    for call, gradient in zip(calls, gradients, strict=True):
        if gradient is None:
            continue
        once = all(uses[parameter] == 1 for parameter in _parameters(call.layer).values())
        if type(call.layer) is nn.Linear and once and gradient.dim() == 2:
            dense.append((call.layer, call.given, gradient))
            continue
        for parameter, stacked in _of_samples(call, gradient).items():
            before = parts.get(parameter)
            parts[parameter] = stacked if before is None else before + stacked
    return SampleGradients(parts, dense)


def _of_samples(call: Call, gradient: Tensor) -> dict[nn.Parameter, Tensor]:
    """Return the gradients of samples (n, ...) from that of the output of a call, by parameter."""
    layer = call.layer
    if type(layer) is nn.LayerNorm and layer.bias is None:  # Opacus reads layer.bias.requires_grad
        normed = functional.layer_norm(call.given, layer.normalized_shape, eps=layer.eps)
        rows = sum_over_all_but_batch_and_last_n(normed * gradient, layer.weight.dim())
        return {layer.weight: rows}
    if type(layer) in LAYERS:
        sampler = GradSampleModule.GRAD_SAMPLERS[type(layer)]
        by_parameter: dict[nn.Parameter, Tensor] = sampler(layer, [call.given], gradient)
        return by_parameter
    own = _trained_in(layer)

    def product(parameters: dict[str, Tensor], given: Tensor, gradient: Tensor) -> Tensor:
        output: Tensor = functional_call(layer, parameters, (given[None],))
        return (output * gradient[None]).sum()

    values = {name: p.detach() for name, p in own.items()}
    stacked = vmap(grad(product), in_dims=(None, 0, 0))(values, call.given, gradient)
    return {p: stacked[name] for name, p in own.items()}


def _trained(module: nn.Module) -> list[nn.Module]:
    """Return the layers whose own parameters are trained, without what is inside other classes."""
    return list(dict.fromkeys(_layers(module)))


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    own = bool(_parameters(module))
    if own:
        yield module
    if not own or type(module) in LAYERS:
        for child in module.children():
            yield from _layers(child)


def _trained_in(layer: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trainable parameters that one call of a layer uses, by name."""
    if type(layer) in LAYERS:
        return _parameters(layer)
    return {name: p for name, p in layer.named_parameters() if p.requires_grad}


def _parameters(layer: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trainable parameters of a layer itself by name."""
    return {name: p for name, p in layer.named_parameters(recurse=False) if p.requires_grad}
