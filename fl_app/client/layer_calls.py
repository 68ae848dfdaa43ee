"""The calls of the trained layers in a forward pass, and the gradients of samples of each.

Opacus has formulas for usual layers. Attention and recurrent layers are computed so that their
products with weights are seen, and a layer of any other class so that samples are apart.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from opacus import GradSampleModule
from opacus.layers import DPGRU, DPLSTM, DPRNN
from opacus.utils.tensor_utils import sum_over_all_but_batch_and_last_n
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional
from torch.nn.utils.parametrize import is_parametrized

from fl_app.client import convolution_gradients
from fl_app.client.attention_gradients import attend, attends
from fl_app.client.composed_layers import compose, composes
from fl_app.client.dense_products import is_large, without_weights
from fl_app.client.own_layer_gradients import OwnCall, OwnLayer
from fl_app.client.recurrent_gradients import recur, recurs
from fl_app.client.weight_lookups import Lookup
from fl_app.client.weight_products import Product, WeightRows, record

LAYERS = (
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding, nn.GroupNorm, nn.LayerNorm,
    nn.RMSNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
)  # fmt: skip
"""Layers for which Opacus has gradients per sample that depend on one call's tensors alone."""
AS_A_WHOLE = {*GradSampleModule.GRAD_SAMPLERS, DPGRU, DPLSTM, DPRNN} - {*LAYERS}
"""Layers for which Opacus needs more than the tensors of one call."""
HARMLESS = {
    "__init__", "extra_repr", "reset_parameters", "__doc__", "__module__", "__annotations__",
    "__annotate_func__", "__annotations_cache__", "__firstlineno__", "__static_attributes__",
}  # fmt: skip
"""What a subclass may define anew while its calls stay those of the layer."""


@dataclass(frozen=True)
class Call:
    """One call of one of LAYERS: its input and output, with the samples in dimension `axis`.

    What changes the output in place later has another gradient, but not this edge.
    """

    layer: nn.Module
    kind: type[nn.Module]
    given: Tensor
    output: GradientEdge
    axis: int = 0

    @property
    def is_dense(self) -> bool:
        """Whether the layer is a product with one weight."""
        return self.kind is nn.Linear

    def trained(self) -> list[nn.Parameter]:
        """Return the trainable parameters that the call uses."""
        return list(parameters_of(self.layer).values())

    def product(self, gradient: Tensor) -> tuple[Product, Tensor]:
        """Return a dense call as a product, and the gradient that it takes."""
        products, given = list[Product](), self.given
        if given.dim() == 2:
            given, gradient = given[None], gradient[None]
        else:
            given, gradient = (
                each.transpose(0, self.axis).flatten(1, -2).transpose(0, 1)
                for each in (given, gradient)
            )
        own = parameters_of(self.layer)
        weights = [(WeightRows(own["weight"]), given)] if "weight" in own else []
        record(products, gradient, weights, [WeightRows(own["bias"])] if "bias" in own else [])
        return products[0], gradient

    def of_samples(self, gradient: Tensor) -> dict[nn.Parameter, Tensor]:
        """Return the gradients of samples (n, ...) from that of the output, by parameter."""
        layer = self.layer
        given, gradient = (each.transpose(0, self.axis) for each in (self.given, gradient))
        if isinstance(layer, nn.LayerNorm) and layer.bias is None:  # at which Opacus fails
            normed = functional.layer_norm(given, layer.normalized_shape, eps=layer.eps)
            rows = sum_over_all_but_batch_and_last_n(normed * gradient, layer.weight.dim())
            return {layer.weight: rows}
        if isinstance(layer, convolution_gradients.CONVOLUTIONS):
            return convolution_gradients.of_samples(layer, given, gradient)
        found: dict[nn.Parameter, Tensor] = GradSampleModule.GRAD_SAMPLERS[self.kind](
            layer, [given], gradient
        )
        return found


def kind(layer: nn.Module) -> type[nn.Module]:
    """Return the class of LAYERS that computes a layer's calls, or else the layer's own class.

    A subclass that defines no method of it anew computes what it does.
    """
    below = set[str]()
    for each in type(layer).__mro__:
        if each in LAYERS:
            same = below & {*dir(each)} <= HARMLESS and not is_parametrized(layer)
            return each if same else type(layer)
        below |= {*vars(each)}
    return type(layer)


def is_separable(module: nn.Module) -> bool:
    """Whether the gradients of each trained layer can be found apart from those of the others.

    Not with one of AS_A_WHOLE.
    """
    return not any(type(layer) in AS_A_WHOLE for layer in trained_layers(module))


def trained_layers(module: nn.Module) -> list[nn.Module]:
    """Return the layers with trainable parameters, without what is inside other classes."""
    return list(dict.fromkeys(_layers(module)))


def traced_layers(module: nn.Module) -> list[nn.Module]:
    """Return the layers that torch computes as a whole, but whose inner products are seen here."""
    if not is_separable(module):
        return []
    watched = Watched(module)
    return [*watched.traced, *(each for own in watched.own.values() for each in own.inner)]


class Watched:
    """The layers of a network whose calls are recorded."""

    def __init__(self, module: nn.Module) -> None:
        layers = trained_layers(module)
        functions = {layer: _traced(layer) for layer in layers}
        self.traced = {layer: each for layer, each in functions.items() if each is not None}
        kinds = {layer: kind(layer) for layer in layers if layer not in self.traced}
        self.steps_first = _steps_first(module)
        self.hooked = {layer: each for layer, each in kinds.items() if each in LAYERS}
        self.large = [layer for layer in self.hooked if is_large(layer)]
        own = [layer for layer in kinds if layer not in self.hooked]
        self.own = {
            layer: OwnLayer(layer, int(layer in self.steps_first), _inside(layer)) for layer in own
        }


@contextmanager
def calls_of(watched: Watched) -> Iterator[list[Call | Product | Lookup | OwnCall]]:
    """Yield a list to which each call of a trained layer in the block is added, in order."""
    calls: list[Call | Product | Lookup | OwnCall] = []

    def note(layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        if torch._C._are_functorch_transforms_active():  # in a layer of one's own
            return
        if not output.requires_grad:  # in a block of `torch.no_grad`
            return
        axis, edge = int(layer in watched.steps_first), get_gradient_edge(output)
        call = Call(layer, watched.hooked[layer], given[0].detach(), edge, axis)
        calls.append(_lookup(call) or call)

    hooks = [layer.register_forward_hook(note) for layer in watched.hooked]
    for layer, forward in watched.traced.items():
        layer.forward = partial(forward, layer, calls)
    for layer in watched.large:
        layer.forward = partial(without_weights, layer)
    for layer, own in watched.own.items():  # with its hooks
        layer._call_impl = partial(own.run, calls)  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()
        for layer in (*watched.traced, *watched.large):
            del layer.forward
        for layer in watched.own:
            del layer._call_impl


def _lookup(call: Call) -> Lookup | None:
    """Return what a call looks up if it is that of an embedding without special gradients."""
    layer, weight = call.layer, parameters_of(call.layer).get("weight")
    if not isinstance(layer, nn.Embedding) or call.axis or weight is None:
        return None
    if layer.scale_grad_by_freq or layer.sparse or layer.max_norm is not None:
        return None
    index = call.given.reshape(len(call.given), -1).clone()
    return Lookup(weight, index, call.output, layer.padding_idx)


def _traced(layer: nn.Module) -> Callable[..., Any] | None:
    """Return the function that computes what a layer does and records its products, if any."""
    if "forward" in vars(layer):  # a user's own
        return None
    if recurs(layer):
        return recur
    if composes(layer):
        return compose
    return attend if attends(layer) else None


def _inside(layer: nn.Module) -> dict[nn.Module, Callable[..., Any]]:
    """Return the functions for attention and recurrent layers inside a layer of another class."""
    found = {each: _traced(each) for each in layer.modules()}
    return {each: made for each, made in found.items() if made is not None and made is not compose}


def _steps_first(module: nn.Module) -> set[nn.Module]:
    """Return the layers inside a transformer whose inputs have the samples in dimension 1."""
    found: set[nn.Module] = set()
    for each in module.modules():
        stack = isinstance(each, nn.TransformerEncoder | nn.TransformerDecoder)
        layers: Any = each.layers if stack else [each]
        layer = next(iter(layers), None)
        if isinstance(layer, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
            first = getattr(layer.self_attn, "batch_first", True)
            found |= set() if first else {*each.children()}
    return found


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    own = bool(parameters_of(module))
    if own or (_traced(module) is not None and _used(module)):
        yield module
    if _traced(module) is None and (not own or kind(module) in LAYERS):
        for child in module.children():
            yield from _layers(child)


def _used(layer: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trainable parameters that one call of a layer uses, by name."""
    if kind(layer) in LAYERS:
        return parameters_of(layer)
    return {name: p for name, p in layer.named_parameters() if p.requires_grad}


def parameters_of(layer: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trainable parameters of a layer itself by name."""
    own = layer._parameters.items()  # `named_parameters` takes four times as long
    return {name: p for name, p in own if p is not None and p.requires_grad}
