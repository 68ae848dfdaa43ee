"""Attention and recurrent layers inside a layer of a user's own, which run for all samples at once.

There `torch.func.vmap` has no rule for some of their functions, and dropout would draw in another
order than torch does.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from inspect import signature
from typing import Any

from torch import Tensor, nn
from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack
from torch.nn.utils.rnn import PackedSequence

from fl_app.client.vmap_products import Products

Function = Callable[..., tuple[Any, Any]]
"""Returns what a layer returns for its arguments, and adds its products to a list."""
MASK, KEYS, STATES = "attn_mask", "key_padding_mask", "hx"
AXES = {KEYS: 0, STATES: 1}
"""Where arguments have their samples, if not where the inputs have them."""


@contextmanager
def at_once(recorder: Products, layers: Mapping[Any, Function]) -> Iterator[None]:
    """Let these functions compute the layers in the block, and add products to the recorder's."""
    before = {layer: vars(layer).get("forward") for layer in layers}
    for layer, function in layers.items():
        layer.forward = partial(_of_all, recorder, function, layer)
    try:
        yield
    finally:
        for layer, forward in before.items():
            if forward is None:
                del layer.forward
            else:
                layer.forward = forward


def _of_all(recorder: Products, function: Function, layer: Any, *inputs: Any, **named: Any) -> Any:
    """Return what a layer returns for each sample."""
    names = [*signature(function).parameters][2:]
    given, axis = dict(zip(names, inputs, strict=False)) | named, 0 if layer.batch_first else 1
    held = dict[int, Any]()
    for name, value in given.items():
        if name == MASK and isinstance(value, Tensor) and not recorder.are_samples(value):
            continue
        if id(value) not in held:  # attention looks whether it is to itself
            held[id(value)] = _joined(recorder, value, AXES.get(name, axis))
        given[name] = held[id(value)]
    with temporarily_pop_interpreter_stack():
        outputs, others = function(layer, recorder.products, **given)
    rest = 0 if isinstance(layer, nn.MultiheadAttention) else AXES[STATES]
    return _split(recorder, outputs, axis), _split(recorder, others, rest)


def _joined(recorder: Products, value: Any, axis: int) -> Any:
    """Return what all samples have (..., n, ...) of tensors (..., 1, ...) of each."""
    if isinstance(value, PackedSequence):
        raise TypeError("vmap has no packed sequences")
    if isinstance(value, tuple):
        return tuple(_joined(recorder, each, axis) for each in value)
    if not isinstance(value, Tensor):
        return value
    held = recorder.of_all(value)
    if held.shape[1 + axis] != 1:
        raise ValueError(f"a sample has {held.shape[1 + axis]} sequences")
    return held.squeeze(1 + axis).movedim(0, axis)


def _split(recorder: Products, value: Any, axis: int) -> Any:
    """Return what each sample has of tensors (..., n, ...)."""
    if isinstance(value, tuple):
        return tuple(_split(recorder, each, axis) for each in value)
    return None if value is None else recorder.apart(value.movedim(axis, 0).unsqueeze(1 + axis))
