"""A network that starts from saved weights, with frozen parts."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from logging import getLogger
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fl_app.module_tensors import FROZEN_STATISTICS
from fl_app.params import COMMUNITY
from fl_app.types import Text

log = getLogger(__name__)
WRAPPERS = ("state_dict", "model")
"""Keys under which files from other programs have the state dict."""
READ = "a file .pt, .pth or .safetensors with tensors by name"
"""What is read."""


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """Saved weights of a network, and patterns of the parameters that no client trains.

    `weights` is a file `.pt`, `.pth` or `.safetensors`; `<file>@<row>` is one of several models in
    a models.safetensors of this project. `freeze` are patterns such as `features.*`.
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (pydantic's form)
    weights: Text | None
    freeze: list[Text]


def prepare(module: nn.Module, given: Pretrained, *, trainable: bool = True) -> nn.Module:
    """Load the weights into `module`, freeze its parts, and return it.

    A tensor is loaded where name and shape agree; the others, such as a new head, stay as the
    constructor made them. Without `trainable` only frozen parts are loaded: further models of a
    method that starts from several must differ. Raises ValueError for a file without any tensor of
    the network, for a pattern without a parameter, and for a frozen part that is not in the file.
    """
    frozen = _freeze(module, given.freeze)
    if given.weights is None:
        return module
    saved, own = read_weights(given.weights), module.state_dict()
    known = {name for name, t in own.items() if name in saved and saved[name].shape == t.shape}
    absent = sorted(frozen - known)
    if absent or not known:
        raise ValueError(
            f"network.weights={given.weights} must have the tensors of the network"
            f"{' that network.freeze freezes' if known else ''}, got none of the right shape for "
            f"{', '.join((absent or sorted(own))[:3])}; its names begin with "
            f"{', '.join(sorted(saved)[:3])}"
        )
    wanted = known if trainable else known & frozen
    module.load_state_dict({name: saved[name] for name in wanted}, strict=False)
    if trainable:
        new = sorted(own.keys() - known)
        log.info("loaded %d of %d tensors; new: %s", len(known), len(own), ", ".join(new) or "none")
    return module


def _freeze(module: nn.Module, patterns: list[str]) -> set[str]:
    """Freeze the parameters that match a pattern; return the names of all frozen tensors.

    Batch normalisation of which all parameters are frozen normalises by its running statistics,
    also in training, and these are frozen too.
    """
    names = [name for name, _ in module.named_parameters()]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(
                f"network.freeze must have patterns that match a parameter, got {pattern!r}; the "
                f"parameters are {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"
            )
    found = {name for name in names if any(fnmatchcase(name, each) for each in patterns)}
    for name in found:
        module.get_parameter(name).requires_grad = False
    for owner, layer in module.named_modules():
        parameters = {f"{owner}.{leaf}".lstrip(".") for leaf in layer._parameters}
        if isinstance(layer, _BatchNorm) and parameters and parameters <= found:
            setattr(layer, FROZEN_STATISTICS, True)
            layer.train = MethodType(_stay, layer)  # type: ignore[method-assign]
            layer.eval()
            found |= {f"{owner}.{leaf}".lstrip(".") for leaf in layer._buffers}
    return found


def _stay(layer: nn.Module, mode: bool = True) -> nn.Module:
    """Do not enter training mode."""
    return nn.Module.train(layer, False)


@lru_cache(maxsize=1)
def read_weights(place: str) -> Mapping[str, Tensor]:
    """Return the tensors of a file by name (cached); raises ValueError for another file."""
    path, _, row = place.rpartition("@")
    if not path or not row.isdigit():
        path, row = place, ""
    file = Path(path).expanduser()
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            tensors = load_file(file)
        else:
            tensors = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ValueError(
            f"network.weights must be {READ}, got {path}: {error}; it must be at this path on "
            "every machine that trains"
        ) from error
    except Exception as error:  # each format fails in its own ways, torch over many lines
        raise ValueError(
            f"network.weights must be {READ}, got {path}, which holds a whole module or other "
            "objects, or is damaged; save module.state_dict() alone"
        ) from error
    for key in WRAPPERS:
        inside: Any = tensors.get(key) if isinstance(tensors, dict) else None
        tensors = inside if isinstance(inside, dict) else tensors
    if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise ValueError(
            f"network.weights must be a file with tensors by name, got {path} with "
            f"{type(tensors).__name__}; save module.state_dict()"
        )
    return _one_model(tensors, path, row)


def _one_model(tensors: Mapping[str, Tensor], path: str, row: str) -> Mapping[str, Tensor]:
    """Return one of the models in a models.safetensors; any other file is one model."""
    heads = {name.split("/")[0] for name in tensors if "/" in name}
    rows = sorted(each.removeprefix(COMMUNITY) for each in heads if each.startswith(COMMUNITY))
    if not rows or not all("/" in name for name in tensors):
        return tensors
    chosen = row or (rows[0] if len(rows) == 1 else "")
    if chosen not in rows:
        raise ValueError(
            f"network.weights must name one of the models {', '.join(rows)} in the file, got "
            f"{path}; give network.weights={path}@{rows[0]}"
        )
    prefix = f"{COMMUNITY}{chosen}/"
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
