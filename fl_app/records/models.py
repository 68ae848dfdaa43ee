"""The trained models, one file with the tensors under their names."""

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from fl_app.params import Layout
from fl_app.types import Vectors

FILE = "models.safetensors"


def write_models(folder: Path, models: Vectors, layout: Layout) -> Path:
    """Write models (k, d) as `community_<row>/<tensor name>`, ready for `load_state_dict`."""
    tensors = {}
    for row, model in enumerate(models):
        parts = np.split(model, np.cumsum(layout.sizes)[:-1])
        for name, shape, part in zip(layout.names, layout.shapes, parts, strict=True):
            tensors[f"community_{row}/{name}"] = np.ascontiguousarray(part.reshape(shape))
    save_file(tensors, folder / FILE)
    return folder / FILE


def read_models(folder: Path) -> list[dict[str, np.ndarray]]:
    """Return the tensors of each community's model, by name."""
    models: dict[int, dict[str, np.ndarray]] = {}
    for key, tensor in load_file(folder / FILE).items():
        row, _, name = key.partition("/")
        models.setdefault(int(row.removeprefix("community_")), {})[name] = tensor
    return [models[row] for row in sorted(models)]
