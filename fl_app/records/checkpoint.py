"""Checkpoints: the last state of a run and the previous one; damaged files are rejected.

A checkpoint is a safetensors file. The JSON state is one of its tensors, because a safetensors
header is limited to 100 MB. Nothing is ever unpickled.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from safetensors import SafetensorError

from fl_app.records.atomic import flush, replacing
from fl_app.records.json_state import decode, encode
from fl_app.records.tensors import (
    Stored,
    blocks,
    blocks_of,
    contiguous,
    header,
    load,
    raw,
    save,
)

FILE = "checkpoint.safetensors"
PREVIOUS = "checkpoint.previous.safetensors"
DAMAGED = "checkpoint.damaged.safetensors"
FORMER = "checkpoint.former_run.safetensors"
FORMAT = "fl-app-checkpoint"
VERSION = 5
STATE = "state.json"
METADATA = "__metadata__"
HEAD = 65536
T = TypeVar("T", np.ndarray, Stored)
R = TypeVar("R")


class CheckpointError(ValueError):
    """A checkpoint that cannot be read or written, with the reason."""


class _UnusableError(Exception):
    """The fault of a file, as the end of a sentence that begins with the file name."""


class _OtherVersionError(_UnusableError):
    """A file of another version; using an older file instead would lose its content."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything that a run needs to continue.

    `round` is the last finished round, `arrays` are numpy arrays of any shape by name, and
    `state` is a JSON object: its keys are strings, and its floats are restored exactly. All
    numbers are finite.
    """

    round: int
    arrays: dict[str, np.ndarray]
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """A checkpoint, the name of its file, and the fault of the newer file, if any."""

    checkpoint: Checkpoint
    file: str
    fault: str | None

    def __str__(self) -> str:
        text = f"resuming after round {self.checkpoint.round} from {self.file}"
        return text if self.fault is None else f"{FILE} {self.fault}: {text}"


def write(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write `folder/checkpoint.safetensors`, verify it, and keep the previous one next to it.

    The new file replaces the old one only after it is on the disk and was read back once, in
    blocks. This needs no memory and makes a write a third longer (3.1 s instead of 2.3 s for
    1 GB). During the write the folder contains three files. What `retire` left is removed.

    Raises CheckpointError for a state that is not JSON, an array that is not numeric, a number
    that is not finite or a file that differs from what was written, and OSError if the disk
    fails. All of them leave the old checkpoints in place.
    """
    try:
        tensors = _tensors(checkpoint)
        digest = _digest(str(checkpoint.round), tensors, blocks)
    except ValueError as error:
        raise CheckpointError(str(error)) from error
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "round": str(checkpoint.round),
        "sha256": digest,
    }
    path = folder / FILE
    with replacing(path, former=folder / PREVIOUS) as temporary:
        save(temporary, tensors, metadata)
        flush(temporary)
        try:
            _verify(temporary)
        except _UnusableError as error:
            raise CheckpointError(f"{temporary} {error}; check the disk") from error
    (folder / FORMER).unlink(missing_ok=True)
    return path


def exists(folder: Path) -> bool:
    """Whether there is a checkpoint in `folder`, intact or not."""
    return any((folder / name).exists() for name in (FILE, PREVIOUS))


def read(folder: Path) -> Checkpoint:
    """Return the checkpoint that `find` finds."""
    return find(folder).checkpoint


def find(folder: Path) -> Found:
    """Return the newest intact checkpoint in `folder`, verified by its digest.

    Raises CheckpointError if there is none, with the fault of each file, and if the newest has
    another version.
    """
    return Found(*_newest(folder, _read_file))


def state(folder: Path) -> dict[str, Any]:
    """Return the state of the newest intact checkpoint, without taking memory for its arrays.

    Raises CheckpointError as `find` does.
    """
    return _newest(folder, _read_state)[0]


def _newest(folder: Path, read: Callable[[Path], R]) -> tuple[R, str, str | None]:
    """Return what can be read first, the name of its file, and the fault of the newer file."""
    if not exists(folder):
        raise CheckpointError(
            f"there is no checkpoint in {folder}; give the folder of a run that wrote one"
        )
    faults: dict[str, str] = {}
    for name in (FILE, PREVIOUS):
        try:
            return read(folder / name), name, faults.get(FILE)
        except _OtherVersionError as error:
            if not faults:
                raise CheckpointError(
                    f"{folder / name} {error}; resume with the version that wrote it"
                ) from error
            faults[name] = str(error)
        except _UnusableError as error:
            faults[name] = str(error)
    raise CheckpointError(
        f"no checkpoint in {folder} is intact: "
        + ", ".join(f"{name} {fault}" for name, fault in faults.items())
        + "; restore one from a copy or start a new run"
    )


def shapes(folder: Path) -> dict[str, Stored]:
    """Return the positions of the tensors in the newest checkpoint; empty if it cannot be read."""
    for name in (FILE, PREVIOUS):
        with suppress(_UnusableError), _opened(folder / name) as (_, _, stored):
            return stored
    return {}


def retire(folder: Path) -> None:
    """Rename the newest checkpoint to FORMER, for a new run in the folder of an earlier one.

    A run can be resumed before its first checkpoint, and must not go on from that of another run.
    """
    newest = next((name for name in (FILE, PREVIOUS) if (folder / name).exists()), None)
    if newest is not None:
        os.replace(folder / newest, folder / FORMER)
        (folder / PREVIOUS).unlink(missing_ok=True)


def set_aside(folder: Path) -> bool:
    """Rename the damaged current checkpoint; return whether it exists.

    Otherwise the next write would replace the intact previous checkpoint with it.
    """
    if not (folder / FILE).exists():
        return False
    os.replace(folder / FILE, folder / DAMAGED)
    return True


def _tensors(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    tensors = {name: contiguous(name, array) for name, array in checkpoint.arrays.items()}
    if not tensors.keys().isdisjoint({STATE, METADATA}):
        raise ValueError(f"the names {STATE!r} and {METADATA!r} are reserved; rename that array")
    return tensors | {STATE: np.frombuffer(encode(checkpoint.state), np.uint8)}


def _read_file(path: Path) -> Checkpoint:
    """Return the checkpoint in one file; raises _UnusableError."""
    with _opened(path) as (file, metadata, stored):
        tensors = {name: load(file, where) for name, where in stored.items()}
        _check_digest(metadata, _digest(metadata.get("round", ""), tensors, blocks))
        state = decode(tensors.pop(STATE).tobytes())
        return Checkpoint(int(metadata["round"]), tensors, state)


def _read_state(path: Path) -> dict[str, Any]:
    """Return the state in one file; raises _UnusableError."""
    _verify(path)
    with _opened(path) as (file, _, stored):
        return decode(load(file, stored[STATE]).tobytes())


def _verify(path: Path) -> None:
    """Read one file block by block; raises _UnusableError unless it is an intact checkpoint."""
    with _opened(path) as (file, metadata, stored):
        parts = partial(blocks_of, file)
        _check_digest(metadata, _digest(metadata.get("round", ""), stored, parts))


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, dict[str, str], dict[str, Stored]]]:
    """Yield the open file, its metadata and the positions of its tensors; raises _UnusableError.

    Errors that the block raises about the content become this error too.
    """
    try:
        metadata, stored = header(path)
        _check_format(metadata)
        with path.open("rb") as file:
            yield file, metadata, stored
    except FileNotFoundError as error:
        raise _UnusableError("is missing") from error
    except OSError as error:
        raise _UnusableError(f"cannot be read ({error})") from error
    except SafetensorError as error:
        raise _UnusableError(_unreadable(path, error)) from error
    except ValueError as error:
        raise _UnusableError(f"is damaged ({error})") from error


def _check_format(metadata: Mapping[str, str]) -> None:
    found, version = metadata.get("format"), metadata.get("version", "none")
    if found != FORMAT:
        raise _UnusableError(
            "is a safetensors file but not a checkpoint of fl-app "
            f"(format {found!r}, expected {FORMAT!r})"
        )
    if version.isdecimal() and version != str(VERSION):
        raise _OtherVersionError(f"has version {version}, this program reads version {VERSION}")
    if version != str(VERSION):
        raise ValueError(f"its version is {version!r}, which is not a number")


def _unreadable(path: Path, error: Exception) -> str:
    """Return whether a file is a damaged checkpoint of fl-app or another file, as a sentence."""
    with path.open("rb") as file:
        ours = FORMAT.encode() in file.read(HEAD)
    if ours:
        return f"is truncated or damaged ({error})"
    return f"is not a checkpoint of fl-app ({error})"


def _check_digest(metadata: Mapping[str, str], found: str) -> None:
    if found != metadata.get("sha256"):
        raise ValueError("its content does not match its SHA-256 digest")


def _digest(
    round: str, tensors: Mapping[str, T], parts: Callable[[T], Iterator[np.ndarray]]
) -> str:
    """Return the SHA-256 of the round and of every tensor: name, dtype, shape and bytes.

    `parts` yields the flat parts of a tensor. Raises ValueError for a number that is not finite.
    """
    digest = sha256(round.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name!r} {tensor.dtype.name} {tensor.shape}\n".encode())
        for part in parts(tensor):
            finite = np.isfinite(part)
            if not finite.all():
                raise ValueError(f"array {name!r} must be finite, got {part[~finite][0]}")
            digest.update(raw(part))
    return digest.hexdigest()
