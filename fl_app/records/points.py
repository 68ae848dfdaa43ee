"""The clustered points: their shape, and points for a figure."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from fl_app.records.atomic import replacing
from fl_app.records.tensors import save

FILE = "points.safetensors"


@dataclass(frozen=True)
class Drawn:
    """Shape of a point, (d,) or (C, H, W), and points (p, 2) if a simulation has such."""

    shape: tuple[int, ...]
    points: np.ndarray | None


def write_points(folder: Path, shape: tuple[int, ...], points: np.ndarray | None) -> None:
    """Write `folder/points.safetensors`."""
    tensors = {"shape": np.array(shape)}
    if points is not None:
        tensors["points"] = np.ascontiguousarray(points, np.float32)
    with replacing(folder / FILE) as temporary:
        save(temporary, tensors, {})


def read_points(folder: Path) -> Drawn | None:
    """Return what `write_points` was given, None if the run clustered no points.

    Raises ValueError for a file with other content.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        tensors = load_file(path)
        return Drawn(tuple(tensors["shape"].tolist()), tensors.get("points"))
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"{path} must contain points ({error}); delete it") from error
