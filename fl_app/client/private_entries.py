"""The entries of a model that a private client changes; the others are sent as received."""

from dataclasses import dataclass

import numpy as np
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from fl_app.client.training_probe import changed
from fl_app.params import Layout
from fl_app.types import Vector

SMALLEST_SHARE = 0.01
"""A running variance with noise is at least this share of the received one."""


@dataclass(frozen=True)
class PrivateEntries:
    """The entries of a vector (d,) that privacy hides, as slices, in order.

    All other entries are sent exactly as received, so they reveal nothing about the client's data.
    `variances` are the slices that must stay positive: a running variance with noise is at least
    SMALLEST_SHARE of the received one. This uses only the noisy value and the server's value, so
    it costs no privacy.
    """

    slices: tuple[slice, ...]
    variances: tuple[slice, ...] = ()

    def update(self, start: Vector, model: Vector) -> Vector:
        """Return the difference (e,) between the entries of `model` (d,) and `start` (d,)."""
        parts = [model[each] - start[each] for each in self.slices]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def moved(self, start: Vector, update: Vector) -> Vector:
        """Return `start` (d,) with its entries moved by `update` (e,)."""
        model, done = start.copy(), 0
        for each in self.slices:
            length = each.stop - each.start
            model[each] += update[done : done + length]
            done += length
        for each in self.variances:
            np.maximum(model[each], SMALLEST_SHARE * np.abs(start[each]), out=model[each])
        return model


def trainable_entries(layout: Layout) -> PrivateEntries:
    """Return the trainable parameters, which DP-SGD hides."""
    return PrivateEntries((layout.direction,))


def learnt_entries(
    module: nn.Module, layout: Layout, shape: tuple[int, ...], *, tokens: bool
) -> PrivateEntries:
    """Return the trainable parameters and the running statistics that training changes.

    Float buffers that training does not change are excluded: noise would destroy their values and
    hide nothing. `shape` is that of one input, of integers if they are `tokens`. Raises ValueError
    for a buffer that changes and is not a mean or variance of a normalisation layer, since its
    valid values are unknown.
    """
    if len(layout.names) == layout.trainable:
        return trainable_entries(layout)
    moving = set(changed(module, shape, tokens=tokens))
    slices, variances = [layout.direction], []
    for name, where in list(layout.parts.items())[layout.trainable :]:
        if name in moving:
            slices.append(where)
            variances += [where] * (_statistic(module, name) == "running_var")
    return PrivateEntries(_joined(slices), tuple(variances))


def _statistic(module: nn.Module, name: str) -> str:
    """Return which running statistic a buffer is; raises ValueError for any other buffer."""
    owner, _, leaf = name.rpartition(".")
    layer = module.get_submodule(owner)
    if not isinstance(layer, _NormBase) or leaf not in ("running_mean", "running_var"):
        raise ValueError(
            "privacy=local_dp needs float buffers that training does not change, or running "
            f"statistics of a normalisation layer of torch, got {name}, which changes and may not "
            "be valid with noise; use such a layer, or no float buffer"
        )
    return leaf


def _joined(slices: list[slice]) -> tuple[slice, ...]:
    """Return the slices, with adjacent ones merged."""
    found = slices[:1]
    for each in slices[1:]:
        if found[-1].stop == each.start:
            found[-1] = slice(found[-1].start, each.stop)
        else:
            found.append(each)
    return tuple(found)
