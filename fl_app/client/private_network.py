"""Whether a network lets each sample be private: what DP-SGD needs, tried on random images.

The guarantee of DP-SGD rests on gradients that belong to one sample each, and on nothing else
leaving the client. A list of known layers proves neither for a user's own layers, so the network
itself is tried.
"""

import torch
from opacus.validators import ModuleValidator
from torch import Tensor, nn

from fl_app.client.private_training import hooked
from fl_app.client.training import Settings
from fl_app.client.training_probe import BATCH, changed, mixing
from fl_app.rng import global_torch_seed

CLOSE = 1e-3
"""Share of a gradient's norm that rounding may make two ways of computing it differ by."""


def check(module: nn.Module, settings: Settings, shape: tuple[int, ...]) -> None:
    """Raise ValueError for a network or training in which a sample has no gradient of its own.

    `shape` is that of one image. The network is not fit for use afterwards.
    """
    if settings.precision != "fp32":
        raise ValueError(
            f"client.precision must be fp32 with privacy=sample_dp, got {settings.precision}; "
            "remove it"
        )
    if settings.epochs == 0:
        raise ValueError(
            "client.epochs must be positive with privacy=sample_dp, got 0; nothing would be hidden"
        )
    _check_passes(module, shape)
    _check_layers(module)
    _check_gradients(module, shape)


def _check_passes(module: nn.Module, shape: tuple[int, ...]) -> None:
    """Raise ValueError where a forward pass mixes samples or writes into what it should not."""
    written = changed(module, shape)
    mixed = mixing(module, shape)
    if mixed is not None:
        raise ValueError(
            f"privacy=sample_dp needs a network in which no layer mixes samples, got {mixed}: its "
            "output for one sample changes with the others, as in batch normalisation; use "
            "GroupNorm in its place, or network=small_cnn"
        )
    if written:
        raise ValueError(
            "privacy=sample_dp needs a network whose buffers and frozen parameters stay as they "
            f"are in training, got {', '.join(written)}: a forward pass writes into them and no "
            "noise hides what; use GroupNorm in place of running statistics, or network=small_cnn"
        )


def _check_layers(module: nn.Module) -> None:
    """Raise ValueError for trainable layers that Opacus knows no gradients per sample of."""
    known = ModuleValidator.VALIDATORS
    layers = [
        (f"{name or 'the network'} ({type(each).__name__})", each)
        for name, each in module.named_modules()
        if any(parameter.requires_grad for parameter in each.parameters(recurse=False))
    ]
    for name, layer in layers:
        if type(layer) in known and known[type(layer)](layer):
            raise ValueError(
                f"privacy=sample_dp needs layers with a gradient for each sample, got {name}, "
                "which Opacus has none for; use its counterpart in opacus.layers, or "
                "network=small_cnn"
            )
        if any(True for _ in layer.buffers()):
            raise ValueError(
                "privacy=sample_dp needs trainable parameters apart from buffers, got both in "
                f"{name}; hold its own parameters in a submodule that has no buffer"
            )


def _check_gradients(module: nn.Module, shape: tuple[int, ...]) -> None:
    """Raise ValueError for parameters of which Opacus's gradients per sample are not the true ones.

    It takes the first dimension of a layer's input for the batch. Where that is another, as in an
    embedding of positions, it bounds the gradients of positions, and a sample's is not bounded.
    """
    draw = torch.Generator().manual_seed(0)
    batch = torch.randn((BATCH, *shape), generator=draw)
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    with hooked(module):
        try:
            torch.autograd.backward(_scores(module, batch).sum())
        except Exception as error:  # whatever Opacus finds no way through
            raise ValueError(
                "privacy=sample_dp needs a network that Opacus finds gradients per sample of, got "
                f"{type(error).__name__}: {error}; take out in-place layers, or use small_cnn"
            ) from error
        found = {name: getattr(p, "grad_sample", None) for name, p in parameters.items()}
    for row in range(BATCH):
        loss = _scores(module, batch)[row].sum()
        true = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        for (name, each), expected in zip(found.items(), true, strict=True):
            if not _agree(each, expected, row):
                raise ValueError(
                    "privacy=sample_dp needs a gradient for each sample of every trainable "
                    f"parameter, got {name}, of which Opacus finds none or a wrong one; give its "
                    "layer an input with the batch as first dimension (positions expanded to the "
                    "batch), or freeze it"
                )


def _scores(module: nn.Module, images: Tensor) -> Tensor:
    """Return scores (BATCH, classes) of a training pass, under the same draws each time.

    Squared, for sums of outputs may have gradients that are zero.
    """
    with global_torch_seed(0):
        scores: Tensor = module(images.clone()).square()
        return scores


def _agree(found: Tensor | None, expected: Tensor | None, row: int) -> bool:
    """Whether Opacus's gradient of a sample is the true one, up to rounding."""
    if not isinstance(found, Tensor) or expected is None or len(found) != BATCH:
        return False
    apart = (found[row] - expected).norm()
    return bool(apart <= CLOSE * torch.maximum(found[row].norm(), expected.norm()) + CLOSE**2)
