"""Writes arrays to a safetensors file and reads them, without copies in memory.

The library's writer uses a second temporary file with a random name, which would remain at full
size after a killed write. Its reader is used here only to check the header, because it maps the
file into memory: a page that the disk cannot read would end the process instead of an OSError.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import safe_open

CODES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
    "complex64": "C64",
}
"""Maps numpy's names of the common dtypes to those of safetensors."""

ALIGNMENT = 8
BLOCK = 2**20
"""Bytes per block: small enough to stay in the processor's cache between two passes."""


@dataclass(frozen=True)
class Stored:
    """The position of a tensor in a file: dtype, shape, first byte and number of bytes."""

    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    size: int


def contiguous(name: str, array: np.ndarray) -> np.ndarray:
    """Return `array` as little-endian C-contiguous memory, without a copy if it already is.

    Raises ValueError for a dtype that is neither numeric nor boolean.
    """
    if array.dtype.name not in CODES:
        raise ValueError(
            f"array {name!r} must be of numbers or booleans, got dtype {array.dtype}; put text "
            "into the state"
        )
    # asarray and not ascontiguousarray, which would turn a scalar array into one of shape (1,)
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def raw(array: np.ndarray) -> memoryview:
    """Return the bytes of a C-contiguous array without a copy."""
    return array.reshape(-1).view(np.uint8).data


def save(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write contiguous arrays and text metadata to `path` in safetensors format."""
    # Largest item size first, so that every tensor starts at a multiple of its item size.
    names = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for name in names:
        tensor = tensors[name]
        start, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": CODES[tensor.dtype.name],
            "shape": tensor.shape,
            "data_offsets": (start, end),
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            file.write(raw(tensors[name]))


def header(path: Path) -> tuple[dict[str, str], dict[str, Stored]]:
    """Return the text metadata of a safetensors file, and the position of each of its tensors.

    Raises SafetensorError for a truncated file or another format, and ValueError for a dtype that
    numpy does not know.
    """
    with safe_open(path, framework="np"):  # checks that the tensors fill the file exactly
        pass
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        entries = json.loads(file.read(length))
    metadata = entries.pop("__metadata__", {})
    return metadata, {name: _stored(name, entry, 8 + length) for name, entry in entries.items()}


def _stored(name: str, entry: Mapping[str, Any], offset: int) -> Stored:
    known = {code: dtype for dtype, code in CODES.items()}
    if entry["dtype"] not in known:
        raise ValueError(f"tensor {name!r} must have a dtype of numpy, got {entry['dtype']}")
    start, end = entry["data_offsets"]
    dtype = np.dtype(known[entry["dtype"]]).newbyteorder("<")
    return Stored(dtype, tuple(entry["shape"]), offset + start, end - start)


def load(file: BinaryIO, stored: Stored) -> np.ndarray:
    """Return a tensor of an open file; raises ValueError if the file ends too early."""
    array = np.empty(stored.shape, stored.dtype)
    file.seek(stored.start)
    if file.readinto(raw(array)) < stored.size:  # type: ignore[attr-defined]
        raise ValueError("the file ends in the middle of a tensor")
    return array


def blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield a C-contiguous array in flat parts of at most BLOCK bytes, without a copy."""
    flat, step = array.reshape(-1), BLOCK // array.itemsize
    for start in range(0, len(flat), step):
        yield flat[start : start + step]


def blocks_of(file: BinaryIO, stored: Stored) -> Iterator[np.ndarray]:
    """Yield the same parts of a tensor in an open file; raises ValueError if it ends too early."""
    file.seek(stored.start)
    for start in range(0, stored.size, BLOCK):
        wanted = min(BLOCK, stored.size - start)
        data = file.read(wanted)
        if len(data) < wanted:
            raise ValueError("the file ends in the middle of a tensor")
        yield np.frombuffer(data, stored.dtype)
