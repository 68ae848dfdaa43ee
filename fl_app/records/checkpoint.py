"""The state of a run in one file: written whole or not at all, read whole or refused.

A safetensors file; the JSON state is one of its tensors, since a safetensors header, the
other place for it, ends at 100 MB. Nothing is ever unpickled.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from fl_app.records.atomic import replacing
from fl_app.records.tensors import contiguous, raw, save

FILE = "checkpoint.safetensors"
FORMAT = "fl-app-checkpoint"
VERSION = 2
STATE = "state.json"
METADATA = "__metadata__"
HEAD = 65536


class CheckpointError(ValueError):
    """A checkpoint that cannot be read or written, with the reason."""


@dataclass(frozen=True)
class Checkpoint:
    """All that a run needs to go on.

    `round` is the last finished round, `arrays` are numpy arrays of any shape by name, and
    `state` is a JSON object: its keys are strings, its floats come back bit for bit.
    """

    round: int
    arrays: dict[str, np.ndarray]
    state: dict[str, Any] = field(default_factory=dict)


def write(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write `folder/checkpoint.safetensors`; until it is whole the former one stays.

    Raises CheckpointError for a state that is not JSON or an array that is not numbers, and
    OSError when the disk refuses; both leave the former checkpoint.
    """
    try:
        tensors = {name: contiguous(name, array) for name, array in checkpoint.arrays.items()}
    except ValueError as error:
        raise CheckpointError(str(error)) from error
    if not tensors.keys().isdisjoint({STATE, METADATA}):
        raise CheckpointError(f"the names {STATE!r} and {METADATA!r} are taken; rename that array")
    tensors[STATE] = np.frombuffer(_state_bytes(checkpoint.state), np.uint8)
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "round": str(checkpoint.round),
        "sha256": _digest(str(checkpoint.round), tensors),
    }
    path = folder / FILE
    with replacing(path) as temporary:
        save(temporary, tensors, metadata)
    return path


def read(folder: Path) -> Checkpoint:
    """Return the checkpoint in `folder`, every byte of it checked against its digest.

    Raises CheckpointError with the reason: missing, foreign, of another version, truncated
    or damaged.
    """
    path = folder / FILE
    if not path.is_file():
        raise CheckpointError(
            f"there is no checkpoint {path}; give the folder of a run that made one"
        )
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            _check_format(path, metadata)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, TypeError) as error:
        raise _unreadable(path, error) from error
    found = _digest(metadata.get("round", ""), tensors)
    if found != metadata.get("sha256"):
        raise CheckpointError(
            f"checkpoint {path} is damaged: its content does not match its SHA-256 digest; "
            "restore it from a copy or start the run anew"
        )
    state = json.loads(tensors.pop(STATE).tobytes())
    return Checkpoint(int(metadata["round"]), tensors, state)


def _check_format(path: Path, metadata: Mapping[str, str]) -> None:
    if metadata.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} is a safetensors file but no checkpoint of fl-app (format "
            f"{metadata.get('format')!r}, expected {FORMAT!r}); give the folder of a run"
        )
    if metadata.get("version") != str(VERSION):
        raise CheckpointError(
            f"checkpoint {path} has version {metadata.get('version')}, this program reads version "
            f"{VERSION}; go on with the program that wrote it"
        )


def _unreadable(path: Path, error: Exception) -> CheckpointError:
    """Tell a checkpoint of ours that was cut short or damaged from a file of another kind."""
    with path.open("rb") as file:
        ours = FORMAT.encode() in file.read(HEAD)
    if ours:
        return CheckpointError(
            f"checkpoint {path} is truncated or damaged ({error}); "
            "restore it from a copy or start the run anew"
        )
    return CheckpointError(f"{path} is no checkpoint of fl-app ({error}); give the folder of a run")


def _state_bytes(state: Mapping[str, Any]) -> bytes:
    for mapping in _mappings(state):
        strange = [key for key in mapping if not isinstance(key, str)]
        if strange:
            # json.dumps would turn 3 into "3" silently, and the resumed run would look for 3.
            raise CheckpointError(
                f"key {strange[0]!r} of the state is not a string; convert the keys with str"
            )
    try:
        return json.dumps(state).encode()
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"the state is not JSON: {error}; put arrays into `arrays` and convert the rest"
        ) from error


def _mappings(value: Any) -> Iterator[Mapping[Any, Any]]:
    if isinstance(value, Mapping):
        yield value
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            if isinstance(item, Mapping | list | tuple):
                yield from _mappings(item)


def _digest(round: str, tensors: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of the round and of every tensor: name, dtype, shape and bytes."""
    digest = sha256(round.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name!r} {tensor.dtype.name} {tensor.shape}\n".encode())
        digest.update(raw(tensor))
    return digest.hexdigest()
