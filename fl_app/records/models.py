"""The trained models, one file with the tensors under their names."""

from logging import getLogger
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from fl_app.params import Layout, is_finite
from fl_app.records.atomic import replacing
from fl_app.records.tensors import save
from fl_app.types import Vectors

log = getLogger(__name__)
FILE = "models.safetensors"


def write_models(folder: Path, models: Vectors, layout: Layout) -> Path:
    """Write models (k, d) as `community_<row>/<tensor name>`, ready for `load_state_dict`.

    A model that is not finite is written as it is, and logged as an error. Raises OSError when
    the disk refuses; the former file stays then.
    """
    tensors = {}
    for row, model in enumerate(models):
        if not is_finite(model):
            log.error("the model of community %d is not finite; do not use it", row)
        parts = np.split(model, np.cumsum(layout.sizes)[:-1])
        for name, shape, part in zip(layout.names, layout.shapes, parts, strict=True):
            tensors[f"community_{row}/{name}"] = np.ascontiguousarray(part.reshape(shape))
    with replacing(folder / FILE) as temporary:
        save(temporary, tensors, {})
    return folder / FILE


def read_models(folder: Path) -> list[dict[str, np.ndarray]]:
    """Return the tensors of each community's model, by name."""
    models: dict[int, dict[str, np.ndarray]] = {}
    for key, tensor in load_file(folder / FILE).items():
        row, _, name = key.partition("/")
        models.setdefault(int(row.removeprefix("community_")), {})[name] = tensor
    return [models[row] for row in sorted(models)]
