"""The network of a run as each process and each machine draws it."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from fl_app.reasons import reason_of
from fl_app.rng import global_torch_seed, torch_seed


def drawn(
    build: Callable[..., nn.Module],
    shape: tuple[int, ...],
    classes: int,
    options: Mapping[str, Any],
    *,
    tokens: bool,
    seed: int,
    number: int = 0,
) -> nn.Module:
    """Build a network with weights drawn from a run's seed; `number` selects other draws.

    Lazy layers take their sizes from a pass over one input of ones (1, *shape), of integers if the
    inputs are `tokens`. It is made up, since the server of a deployment may have no sample, and not
    of zeros, which are padding. Raises ValueError if the network does not take it.
    """
    with global_torch_seed(torch_seed(seed, purpose="initial model", round=number)):
        built = build(shape, classes, **options)
        _check_python(built)
        if any(is_lazy(each) for each in (*built.parameters(), *built.buffers())):
            _show(built, torch.ones(1, *shape, dtype=torch.int64 if tokens else torch.float32))
    return built


def _check_python(built: nn.Module) -> None:
    """Raise TypeError for TorchScript, whose tensors cannot be replaced by those of a model."""
    for name, layer in built.named_modules():
        if isinstance(layer, torch.jit.ScriptModule):
            raise TypeError(
                f"{f'layer {name!r}' if name else 'it'} is TorchScript: return the module as it "
                "was before torch.jit"
            )


@torch.no_grad()
def _show(module: nn.Module, batch: torch.Tensor) -> None:
    try:
        module.eval()(batch)  # in evaluation mode no statistics change
    except Exception as error:  # a user's layer can raise anything
        raise ValueError(
            f"lazy layers must take their sizes from a made-up sample, ones of {batch.dtype} in "
            f"the shape {tuple(batch.shape)}, got {reason_of(error)}; let forward take it, or "
            "give the layers their sizes"
        ) from error
    module.train()
