"""Checks on random inputs whether a network is suitable for DP-SGD.

DP-SGD guarantees privacy only if each gradient belongs to one sample and nothing else leaves the
client. A list of known layers cannot prove this for a user's own layers, so the network is tested.
"""

import torch
from opacus.validators import ModuleValidator
from torch import Tensor, nn

from fl_app.client.clipped_gradients import gradients_of
from fl_app.client.layer_calls import Watched, calls_of, is_separable, traced_layers
from fl_app.client.private_training import hooked, stored
from fl_app.client.training import Settings
from fl_app.client.training_probe import BATCH, changed, mixing, random_inputs
from fl_app.rng import global_torch_seed

FLOAT32 = torch.finfo(torch.float32).eps
CLOSE = 1e-3
"""Relative difference between two computations of a gradient that rounding can cause."""


def check(module: nn.Module, settings: Settings, shape: tuple[int, ...], *, tokens: bool) -> None:
    """Raise ValueError for a network or training without a separate gradient for each sample.

    `shape` is that of one input, of integers if they are `tokens`. The network is unusable
    afterwards.
    """
    if settings.precision != "fp32":
        raise ValueError(
            f"client.precision must be fp32 with privacy=sample_dp, got {settings.precision}; "
            "remove it"
        )
    if settings.epochs == 0:
        raise ValueError(
            "client.epochs must be positive with privacy=sample_dp, got 0; give at least 1"
        )
    _check_rounding(module)
    _check_passes(module, shape, tokens=tokens)
    _check_layers(module)
    _check_gradients(module, shape, tokens=tokens)


def _check_rounding(module: nn.Module) -> None:
    """Raise ValueError for parameters in which clipped gradients are longer than the bound."""
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and torch.finfo(parameter.dtype).eps > FLOAT32:
            raise ValueError(
                "privacy=sample_dp needs trainable parameters of float32, as rounded gradients are "
                f"longer than the clip bound, got {name} of {parameter.dtype}; train it in "
                "float32, or freeze it"
            )


def _check_passes(module: nn.Module, shape: tuple[int, ...], *, tokens: bool) -> None:
    """Raise ValueError if a forward pass mixes samples or writes into buffers."""
    written = changed(module, shape, tokens=tokens)
    mixed = mixing(module, shape, tokens=tokens)
    if mixed is not None:
        raise ValueError(
            f"privacy=sample_dp needs a network in which no layer mixes samples, got {mixed}: its "
            "output for one sample depends on the others, as in batch normalisation; use "
            "GroupNorm instead, or network=small_cnn"
        )
    if written:
        raise ValueError(
            "privacy=sample_dp needs a network whose buffers and frozen parameters do not change "
            f"in training, got {', '.join(written)}: a forward pass writes into them without "
            "noise; use GroupNorm instead of running statistics, or network=small_cnn"
        )


def _check_layers(module: nn.Module) -> None:
    """Raise ValueError for trainable layers without gradients per sample."""
    known, traced = ModuleValidator.VALIDATORS, traced_layers(module)
    for name, layer in module.named_modules():
        trained = any(each.requires_grad for each in layer.parameters(recurse=False))
        refused = trained and type(layer) in known and layer not in traced
        if refused and known[type(layer)](layer):
            raise ValueError(
                "privacy=sample_dp needs layers with a gradient for each sample, got "
                f"{name or 'the network'} ({type(layer).__name__}), for which Opacus has none; use "
                "its counterpart in opacus.layers, or network=small_cnn"
            )


def _check_gradients(module: nn.Module, shape: tuple[int, ...], *, tokens: bool) -> None:
    """Raise ValueError for parameters with wrong gradients per sample in Opacus.

    Opacus assumes that the first dimension of a layer's input is the batch. If it is another one,
    as in an embedding of positions, the gradients of positions are bounded, not those of samples.
    """
    (batch,) = random_inputs(module, shape, 1, tokens=tokens)
    module.train()
    _check_used(module, batch)
    wrong = _wrong(module, batch)
    if wrong is not None:  # dropout may have drawn in another order than in torch's pass
        for layer in module.modules():
            if type(layer).__module__ == nn.modules.dropout.__name__:
                layer.p = 0.0  # type: ignore[assignment]
        wrong = _wrong(module, batch)
    if wrong is not None:
        raise ValueError(
            "privacy=sample_dp needs a gradient for each sample of every trainable "
            f"parameter, got {wrong}, for which Opacus finds none or a wrong one; give its "
            "layer an input with the batch as first dimension (positions expanded to the "
            "batch), or freeze it"
        )


def _check_used(module: nn.Module, batch: Tensor) -> None:
    """Raise ValueError for trainable parameters without a gradient, which would get noise alone."""
    trained = {name: each for name, each in module.named_parameters() if each.requires_grad}
    total = _scores(module, batch).sum()
    found = torch.autograd.grad(total, list(trained.values()), allow_unused=True)
    unused = [name for name, each in zip(trained, found, strict=True) if each is None]
    if unused:
        raise ValueError(
            "privacy=sample_dp needs trainable parameters on which the answers depend, got "
            f"{', '.join(unused[:3])}, which would get noise alone; remove them, or freeze them by "
            f"network.freeze=['{unused[0]}']"
        )


def _wrong(module: nn.Module, batch: Tensor) -> str | None:
    """Return the name of a parameter without the gradient of each sample, if there is one."""
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    try:
        gradients = _of_samples(module, batch)
    except Exception as error:  # Opacus can fail in any way
        raise ValueError(
            "privacy=sample_dp needs a network with gradients per sample in Opacus, got "
            f"{type(error).__name__}: {error}; remove in-place layers, or use small_cnn"
        ) from error
    found = {name: gradients.get(p) for name, p in parameters.items()}
    for row in range(BATCH):
        loss = _scores(module, batch)[row].sum()
        true = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        for (name, each), expected in zip(found.items(), true, strict=True):
            if not _agree(each, expected, row):
                return name
    return None


def _of_samples(module: nn.Module, batch: Tensor) -> dict[nn.Parameter, Tensor]:
    """Return the gradients of a batch (n, ...), by the way that training takes."""
    if not is_separable(module):
        with hooked(module):
            torch.autograd.backward(_scores(module, batch).sum())
            return stored(module)
    with calls_of(Watched(module)) as calls:  # the backward pass too: a checkpoint calls layers
        return gradients_of(calls, _scores(module, batch).sum()).stacked()


def _scores(module: nn.Module, inputs: Tensor) -> Tensor:
    """Return scores (BATCH, classes) of a training pass, with the same random draws each time.

    They are squared, because the sum of outputs can have zero gradients.
    """
    with global_torch_seed(0):
        scores: Tensor = module(inputs.clone()).square()
        return scores


def _agree(found: Tensor | None, expected: Tensor | None, row: int) -> bool:
    """Whether Opacus's gradient of a sample is correct up to rounding."""
    if not isinstance(found, Tensor) or expected is None or len(found) != BATCH:
        return False
    apart = (found[row] - expected).norm()
    return bool(apart <= CLOSE * torch.maximum(found[row].norm(), expected.norm()) + CLOSE**2)
