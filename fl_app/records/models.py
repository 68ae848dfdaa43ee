"""The trained models, as one file with named tensors."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from logging import getLogger
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import load_file

from fl_app.attribution import mixed
from fl_app.params import COMMUNITY, FlatModule, Layout, is_finite
from fl_app.records.atomic import replacing
from fl_app.records.reading import readable
from fl_app.records.tensors import contiguous, save
from fl_app.types import Vector

log = getLogger(__name__)
FILE = "models.safetensors"
_WHAT = "the models of a run"


@dataclass(frozen=True)
class StateForm:
    """How to build the state dict of a network from a transmitted vector.

    `sources` maps each name of the state dict to a part of the layout or to one of `constants`:
    frozen parameters and buffers that no client changes. The parts in `units` have length 1.
    """

    sources: Mapping[str, str]
    constants: Mapping[str, np.ndarray]
    units: Collection[str] = ()

    @classmethod
    def of(cls, flat: FlatModule) -> "StateForm":
        """Return the form of a network; raises ValueError for a dtype that no file can store."""
        sources = flat.sources()
        saved = set(sources.values()) & flat.constants.keys()
        constants = {name: contiguous(name, _array(flat.constants[name])) for name in saved}
        return cls(sources, constants, flat.units)

    def state(self, model: Vector, layout: Layout) -> dict[str, np.ndarray]:
        """Return the state dict of `model` (d,); its arrays share memory with the constants."""
        tensors = dict(self.constants) | dict(_pieces(model, layout))
        for name in self.units:
            length = np.linalg.norm(tensors[name])
            tensors[name] = tensors[name] / (length or 1)
        return {name: tensors[source] for name, source in self.sources.items()}


def write_models(
    folder: Path, models: Mapping[str, Vector], layout: Layout, form: StateForm | None = None
) -> Path:
    """Write models (d,) as `<model name>/<tensor name>`, ready for `load_state_dict`.

    With a `form` the tensors are those of the network's state dict, else those of the layout.
    A model that is not finite is written unchanged and logged as an error. Raises OSError if the
    disk fails; then the old file remains.
    """
    tensors = {}
    for given, model in models.items():
        if not is_finite(model):
            log.error("the model %s is not finite; do not use it", given)
        state = form.state(model, layout) if form else dict(_pieces(model, layout))
        for name, array in state.items():
            tensors[f"{given}/{name}"] = contiguous(name, array)
    with replacing(folder / FILE) as temporary:
        save(temporary, tensors, {})
    return folder / FILE


def read_models(folder: Path) -> list[dict[str, np.ndarray]]:
    """Return the tensors of each community's model, by name; raises ValueError for damage."""
    models: dict[int, dict[str, np.ndarray]] = {}
    with readable(folder / FILE, _WHAT):
        tensors = load_file(folder / FILE)
    for key, tensor in tensors.items():
        given, _, name = key.partition("/")
        if given.startswith(COMMUNITY):
            models.setdefault(int(given.removeprefix(COMMUNITY)), {})[name] = tensor
    return [models[row] for row in sorted(models)]


def read_model(folder: Path, given: str) -> dict[str, np.ndarray]:
    """Return the tensors of one model by its name, without reading the others.

    Raises ValueError for a name that the file does not have, and for a damaged file.
    """
    path = folder / FILE
    with readable(path, _WHAT), safe_open(path, framework="np") as file:
        keys = [key for key in file.keys() if key.partition("/")[0] == given]  # noqa: SIM118
        found = {key.partition("/")[2]: file.get_tensor(key) for key in keys}
    if not found:
        raise ValueError(f"{path} must have the model {given}, got none of that name")
    return found


def read_mixture(
    folder: Path, weights: Mapping[str, float], constants: Collection[str]
) -> dict[str, np.ndarray]:
    """Return the tensors of a mean of models with weights by name, but for `constants` of one."""
    parts = [read_model(folder, name) for name in weights]
    shares = np.array(list(weights.values()), np.float32)
    return {
        name: first
        if name in constants
        else mixed(shares, np.stack([part[name].reshape(-1) for part in parts])).reshape(
            first.shape
        )
        for name, first in parts[0].items()
    }


def _pieces(model: Vector, layout: Layout) -> Iterator[tuple[str, np.ndarray]]:
    for (name, part), shape in zip(layout.parts.items(), layout.shapes, strict=True):
        yield name, model[part].reshape(shape)


def _array(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor as an array; float types unknown to NumPy become float32, without loss."""
    known = (torch.float16, torch.float32, torch.float64)
    plain = tensor.detach().cpu()
    other = plain.is_floating_point() and plain.dtype not in known
    return (plain.float() if other else plain).numpy()
