"""Arrays into a safetensors file, streamed from the memory they lie in.

The library's own writer goes through a second temporary file under a random name, which a
killed write would leave behind at full size; reading stays with the library, which checks.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

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
}
"""numpy's names of the dtypes that both sides know, in safetensors' words."""

ALIGNMENT = 8


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
