"""The tensors of a module: which of them are sent, and which are constant during a run."""

from collections.abc import Collection, Mapping

import numpy as np
import torch
from torch import nn
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm

FROZEN_STATISTICS = "frozen_statistics"
"""Attribute of a module whose buffers are constant, because it never trains."""
HUGE = 1e15
"""Size from which a value is a mask, such as the smallest float; norms with it would overflow."""

CHANNELS_LAST = {"torch", "torchvision", "fl_app"}
"""Packages whose layers take any memory format; others can need the plain one, for `view`."""


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """Return a copy; NumPy has no bfloat16, and float32 holds all of its values."""
    plain = tensor.detach().cpu()
    found: np.ndarray = (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy().copy()
    return found


def divided(
    module: nn.Module, local: Collection[str]
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return the tensors that are sent, parameters first, and all others."""
    pieces: dict[str, torch.Tensor] = {}
    constants: dict[str, torch.Tensor] = {}
    for name, parameter in module.named_parameters():
        travels = parameter.requires_grad and name not in local
        (pieces if travels else constants)[name] = parameter
    for name, buffer in module.named_buffers():
        owner = module.get_submodule(name.rpartition(".")[0])
        travels = _is_averaged(buffer) and not getattr(owner, FROZEN_STATISTICS, False)
        (pieces if travels and name not in local else constants)[name] = buffer
    return pieces, constants


def _is_averaged(buffer: torch.Tensor) -> bool:
    """Whether all values of a buffer are float32 numbers of which a mean has a meaning."""
    if not buffer.is_floating_point():
        return False
    sent = buffer.float()
    return bool((sent.abs() < HUGE).all()) and torch.equal(sent.to(buffer.dtype), buffer)


def kernel_format(module: nn.Module) -> torch.memory_format:
    """Return how kernels lie: as convolutions are fast, or as a user's constructor made them.

    The answers of a convolution lie as its kernel does.
    """
    packages = {type(each).__module__.partition(".")[0] for each in module.modules()}
    return torch.channels_last if packages <= CHANNELS_LAST else torch.preserve_format


def unit_vectors(module: nn.Module) -> frozenset[str]:
    """Return the names of the buffers of spectral normalisation, which have length 1.

    Evaluation divides a weight by what they say is its largest singular value. Their mean over
    clients is shorter, so that the weight would be too large, round after round more.
    """
    found = set()
    for name, layer in module.named_modules():
        hooks = layer._forward_pre_hooks.values()
        leaves = [f"{each.name}_" for each in hooks if isinstance(each, SpectralNorm)]
        leaves += ["_"] if isinstance(layer, _SpectralNorm) else []
        found |= {f"{name}.{leaf}{side}".lstrip(".") for leaf in leaves for side in "uv"}
    return frozenset(found)


def running_variances(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the buffers that are running variances, as torch's layers name them.

    Evaluation divides by their roots, so that one negative entry makes every answer NaN.
    """
    return tuple(
        name
        for name, buffer in module.named_buffers()
        if name.rpartition(".")[2] == "running_var" and bool((buffer >= 0).all())
    )


def check_trainable(pieces: Mapping[str, torch.Tensor]) -> None:
    """Raise ValueError unless some of the parts are trainable and all are real."""
    if not any(isinstance(tensor, nn.Parameter) for tensor in pieces.values()):
        raise ValueError(
            "a network must have at least one trainable parameter, got none; set "
            "requires_grad=True on the parameters that clients train"
        )
    for name, tensor in pieces.items():
        if tensor.is_complex():
            raise ValueError(
                f"trainable parameters must be real numbers, got {name!r} of {tensor.dtype}; "
                "train its real and imaginary parts as two parameters"
            )


def registered(module: nn.Module) -> list[tuple[nn.Module, str, torch.Tensor]]:
    """Return each buffer with its module and its registered name."""
    return [
        (owner, leaf, tensor)
        for owner in module.modules()
        for leaf, tensor in owner._buffers.items()
        if tensor is not None
    ]
