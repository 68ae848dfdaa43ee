"""What stays with a client between rounds, in files on its own machine."""

import os
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

import numpy as np

_READING = Lock()
"""NumPy reads headers by `ast`, in which two threads at once fail at times with Python 3.11."""
CLIENTS = "clients"
"""The folder in the output folder of a run with a folder for each simulated client."""
KEPT = 2
"""Checkpoints that may lie behind a client's last round: the last one and the one before."""


class FolderMemory:
    """Stores tensors by name for each of a client's last rounds, so that a resumed run finds them.

    A checkpoint is written every `every` rounds. Those of a round that a resumed run repeats are
    replaced.
    """

    def __init__(self, folder: Path, every: int) -> None:
        self.folder, self.every = folder, every

    def read(self, until: int) -> dict[str, np.ndarray]:
        """Return what was written last, up to a round; empty for a client that had not trained."""
        found = [each for each in self._rounds() if each <= until]
        if not found:
            return {}
        with _READING, np.load(self._file(max(found)), allow_pickle=False) as tensors:
            return dict(tensors)

    def write(self, tensors: Mapping[str, np.ndarray], server_round: int) -> None:
        """Store the tensors after a round."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._file(server_round)
        temporary = path.with_suffix(".tmp")
        with temporary.open("wb") as file:
            np.savez(file, **tensors)  # type: ignore[arg-type]
        os.replace(temporary, path)
        needed = server_round - KEPT * self.every
        older = [each for each in self._rounds() if each <= needed]
        for each in self._rounds():
            if each > server_round or (older and each < max(older)):
                self._file(each).unlink(missing_ok=True)

    def _rounds(self) -> list[int]:
        return [int(each.stem) for each in self.folder.glob("*.npz") if each.stem.isdecimal()]

    def _file(self, server_round: int) -> Path:
        return self.folder / f"{server_round}.npz"


def of_run(folder: Path, client_id: int, every: int, part: str = "") -> FolderMemory:
    """Return the memory of a client that is simulated by the run with this output folder.

    A `part` is a memory of its own, in a folder of that name.
    """
    return FolderMemory(folder / CLIENTS / str(client_id) / part, every)
