"""The gradients of samples of a convolution.

Unfolded inputs give them by a product of matrices for each sample. Where inputs are large, the
convolution that computes the gradient of kernels does it faster, and without that memory.
"""

from typing import Any

import torch
from opacus import GradSampleModule
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.grad import conv1d_weight, conv2d_weight, conv3d_weight

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
OF_KERNELS: tuple[Any, ...] = (conv1d_weight, conv2d_weight, conv3d_weight)
MANY = 100
"""Places of an output, and numbers seen from each, from which the convolution is faster."""
UNFOLDED = 1 << 22
"""Numbers that are unfolded at once: on a CPU, memory for more is slow to get."""

Gradients = dict[nn.Parameter, Tensor]


def of_samples(layer: nn.Module, given: Tensor, gradient: Tensor) -> Gradients:
    """Return the gradients of samples (n, ...) of a convolution from that of its output."""
    way = _convolved if has_many_places(layer, gradient) else _unfolded
    return way(layer, given, gradient)


def has_many_places(layer: Any, gradient: Tensor) -> bool:
    """Whether the convolution is the way, from the gradient (n, channels, ...) of the output.

    On a GPU it was not measured, and is not taken.
    """
    seen = layer.weight[0].numel() * layer.groups
    large = min(seen, gradient[0, 0].numel()) >= MANY
    return large and layer.padding_mode == "zeros" and gradient.device.type == "cpu"


def _convolved(layer: Any, given: Tensor, gradient: Tensor) -> Gradients:
    """Return the gradients of samples (n, ...), those of kernels by one convolution.

    The channels of all samples are those of one, in which the groups of each are apart.
    """
    weight, padding, found = layer.weight, layer.padding, Gradients()
    if weight.requires_grad:
        if isinstance(padding, str):
            given, padding = functional.pad(given, layer._reversed_padding_repeated_twice), 0
        count = len(given)
        # torch 2.15 is wrong about groups of one sample in float64 with channels last
        given, along = given.contiguous(), gradient.contiguous()
        kernels = OF_KERNELS[weight.dim() - 3](
            given.reshape(1, -1, *given.shape[2:]), (count * len(weight), *weight.shape[1:]),
            along.reshape(1, -1, *along.shape[2:]), layer.stride, padding, layer.dilation,
            count * layer.groups,
        )  # fmt: skip
        found[weight] = kernels.view(count, *weight.shape)
    if layer.bias is not None and layer.bias.requires_grad:
        found[layer.bias] = gradient.flatten(2).sum(2)
    return found


def _unfolded(layer: Any, given: Tensor, gradient: Tensor) -> Gradients:
    """Return the gradients of samples (n, ...) by the formula of Opacus, of some at a time.

    It is wrong with channels last in memory.
    """
    sampler: Any = GradSampleModule.GRAD_SAMPLERS[CONVOLUTIONS[layer.weight.dim() - 3]]
    given, size = given.contiguous(), len(given)
    if given.device.type == "cpu":
        numbers = layer.weight[0].numel() * layer.groups * gradient[:1, 0].numel()
        size = max(1, UNFOLDED // max(1, numbers))
    pairs = zip(torch.split(given, size), torch.split(gradient, size), strict=True)
    parts = [sampler(layer, [some], of_some) for some, of_some in pairs]
    return {parameter: torch.cat([each[parameter] for each in parts]) for parameter in parts[0]}
