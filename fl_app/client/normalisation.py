"""Batch normalisation: batches of one sample, and layers that stay with the client."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Sharing = Literal["average", "local"]
"""Whether the server averages batch normalisation like the rest, or it stays with each client."""


def local_names(module: nn.Module, sharing: Sharing) -> tuple[str, ...]:
    """Return the names of the parameters and buffers of `module` that stay with each client.

    With `local` these are all of batch normalisation (FedBN: Li et al., ICLR 2021, algorithm 1):
    its scale and shift, and its running statistics. Raises ValueError if there are none.
    """
    if sharing == "average":
        return ()
    found = tuple(
        f"{owner}.{leaf}" if owner else leaf
        for owner, layer in module.named_modules()
        if isinstance(layer, _BatchNorm)
        for leaf in (*layer._parameters, *layer._buffers)
        if getattr(layer, leaf) is not None
    )
    if not found:
        raise ValueError(
            "client.batch_norm must be average for a network without batch normalisation, got "
            "local; remove it"
        )
    return found


def batch_norms(module: nn.Module) -> list[_BatchNorm]:
    """Return the layers of `module` that normalise over a batch, in order."""
    return [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]


def batches(order: Tensor, size: int, module: nn.Module) -> list[Tensor]:
    """Return `order` (s,) in batches of `size`; with batch normalisation, none has a single sample.

    A last sample that would be alone joins the batch before it, because one sample has no
    variance. A single sample stays alone if there is no batch before, or if `size` is 1: see
    `paired`.
    """
    found = list(torch.split(order, size))
    if size > 1 and len(found) > 1 and len(found[-1]) == 1 and batch_norms(module):
        found[-2:] = [torch.cat(found[-2:])]
    return found


@contextmanager
def paired(module: nn.Module, inputs: Tensor) -> Iterator[Tensor]:
    """Yield `inputs` (s, ...), doubled to (2, ...) if a layer of `module` could not take them.

    This is a single sample with batch normalisation. Both copies have the same scores and the
    same mean loss, so that only the normalisation changes: layers with running statistics use
    these, and do not update them with the variance zero of equal samples; layers without them
    answer with their bias, which is the limit of the formula at variance zero.
    """
    layers = batch_norms(module) if len(inputs) == 1 else []
    tracking = [each for each in layers if each.training and each.running_mean is not None]
    for layer in tracking:
        layer.eval()
    try:
        yield torch.cat([inputs, inputs]) if layers else inputs
    finally:
        for layer in tracking:
            layer.train()
