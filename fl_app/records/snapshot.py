"""The similarity matrix of the clients at chosen rounds, for figures and notebooks."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32
from safetensors import SafetensorError
from safetensors.numpy import load_file

from fl_app.records.atomic import replacing
from fl_app.records.tensors import save
from fl_app.types import Labels, Matrix

FOLDER = "snapshots"
FILES = "round_*.safetensors"


@dataclass(frozen=True)
class Snapshot:
    """The communities and the matrix after `round`.

    `ids` (n,) sorted client ids, `similarity` (n, n), `labels` (n,) communities and `groups`
    (n,) planted groups, -1 if unknown; `distance` (n, n) if the similarity comes from distances.
    """

    round: int
    ids: Labels
    similarity: Float32[np.ndarray, "n n"]
    labels: Labels
    groups: Labels
    distance: Float32[np.ndarray, "n n"] | None = None


def spread(rounds: int, count: int) -> set[int]:
    """Return at most `count` rounds evenly spread over a run, including the last one."""
    return set(np.linspace(rounds, 1, min(count, rounds)).round().astype(int).tolist())


def write_snapshot(
    folder: Path,
    *,
    round: int,
    ids: Labels,
    similarity: Matrix,
    labels: Labels,
    groups: Labels,
    distance: Matrix | None = None,
) -> Path:
    """Write `folder/snapshots/round_<round>.safetensors`, the similarity (n, n) as float32.

    Raises ValueError if the shapes are not (n,), (n, n), (n,), (n,).
    """
    n = len(ids)
    shapes = (ids.shape, similarity.shape, labels.shape, groups.shape)
    if shapes != ((n,), (n, n), (n,), (n,)):
        raise ValueError(
            f"ids, similarity, labels and groups must have shapes (n,), (n, n), (n,), (n,), got "
            f"{shapes}; give all four for the same clients"
        )
    tensors: dict[str, np.ndarray] = {
        "ids": np.ascontiguousarray(ids, np.int64),
        "similarity": np.ascontiguousarray(similarity, np.float32),
        "labels": np.ascontiguousarray(labels, np.int64),
        "groups": np.ascontiguousarray(groups, np.int64),
    }
    if distance is not None:
        tensors["distance"] = np.ascontiguousarray(distance, np.float32)
    path = folder / FOLDER / f"round_{round:05d}.safetensors"
    with replacing(path) as temporary:
        save(temporary, tensors, {})
    return path


def read_snapshots(folder: Path) -> list[Snapshot]:
    """Return the snapshots of a run in order of rounds.

    Raises ValueError with the name of a file that is not a snapshot.
    """
    paths = (folder / FOLDER).glob(FILES)
    return sorted((_read(path) for path in paths), key=lambda snapshot: snapshot.round)


def _read(path: Path) -> Snapshot:
    try:
        return Snapshot(int(path.stem.removeprefix("round_")), **load_file(path))
    except (SafetensorError, TypeError, ValueError) as error:
        raise ValueError(f"{path} must be a snapshot ({error}); delete it") from error
