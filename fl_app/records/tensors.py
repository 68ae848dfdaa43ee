"""Arrays into a safetensors file and back, streamed from and to the memory they lie in.

The library's own writer goes through a second temporary file under a random name, which a
killed write would leave behind at full size. Its reader checks the header here, but it maps
the file: a disk that cannot read a page would end the process, where a read raises OSError.
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
"""numpy's names of the dtypes that both sides know, in safetensors' words."""

ALIGNMENT = 8
BLOCK = 2**20
"""Bytes at a time: short enough to stay in the processor's cache between two looks at them."""


@dataclass(frozen=True)
class Stored:
    """Where a tensor lies in a file: its dtype and shape, its first byte and how many."""

    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    size: int


def contiguous(name: str, array: np.ndarray) -> np.ndarray:
    """Return `array` as little-endian C-contiguous memory, itself where it already is.

    Raises ValueError for a dtype that is neither number nor boolean.
    """
    if array.dtype.name not in CODES:
        raise ValueError(
            f"array {name!r} has dtype {array.dtype}; a tensor file holds numbers and booleans, "
            "put text into the state"
        )
    # asarray and not ascontiguousarray, which would turn a scalar array into one of shape (1,)
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def raw(array: np.ndarray) -> memoryview:
    """Return the bytes of a C-contiguous array without a copy."""
    return array.reshape(-1).view(np.uint8).data


def save(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write contiguous arrays and text metadata to `path` in safetensors format."""
    # Widest first, so that every tensor starts at a multiple of its item size.
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
    """Return the text metadata of a safetensors file, and where each of its tensors lies.

    Raises SafetensorError for a file that is none or was cut short, and ValueError for a
    dtype that numpy does not know.
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
        raise ValueError(f"tensor {name!r} has dtype {entry['dtype']}, which numpy does not know")
    start, end = entry["data_offsets"]
    dtype = np.dtype(known[entry["dtype"]]).newbyteorder("<")
    return Stored(dtype, tuple(entry["shape"]), offset + start, end - start)


def load(file: BinaryIO, stored: Stored) -> np.ndarray:
    """Return a tensor of an open file; raises ValueError where the file ends before it."""
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
    """Yield the same parts of a tensor in an open file; raises ValueError where it ends early."""
    file.seek(stored.start)
    for start in range(0, stored.size, BLOCK):
        wanted = min(BLOCK, stored.size - start)
        data = file.read(wanted)
        if len(data) < wanted:
            raise ValueError("the file ends in the middle of a tensor")
        yield np.frombuffer(data, stored.dtype)
