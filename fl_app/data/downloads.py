"""What is wrong with the files of a published data set, so that an error names the file."""

from collections.abc import Iterable
from hashlib import md5
from math import prod
from pathlib import Path

DIMENSIONS = {"images-idx3-ubyte": 3, "labels-idx1-ubyte": 1}
"""Name to the number of dimensions of a file of MNIST's kind."""
BYTES = 8
"""The code of unsigned bytes in the first four bytes of an IDX file: 0, 0, code, dimensions."""


def idx_fault(folder: Path, parts: Iterable[str]) -> str | None:
    """Return what is wrong with the first damaged IDX file, None if all that exist are whole.

    `parts` are the beginnings of their names, such as "train". The format is LeCun's for MNIST.
    """
    for part in parts:
        for name, dimensions in DIMENSIONS.items():
            path = folder / f"{part}-{name}"
            fault = _idx_fault(path, dimensions) if path.is_file() else None
            if fault:
                return f"{path} {fault}"
    return None


def _idx_fault(path: Path, dimensions: int) -> str | None:
    length = 4 * (1 + dimensions)
    with path.open("rb") as file:
        head = file.read(length)
    wanted = bytes([0, 0, BYTES, dimensions])
    if len(head) < length or head[:4] != wanted:
        return (
            f"must be an IDX file of bytes in {dimensions} dimensions, which starts with "
            f"{wanted.hex()}, got {head[:4].hex() or 'an empty file'}; another file has its name"
        )
    sizes = [int.from_bytes(head[4 * i : 4 * i + 4], "big") for i in range(1, dimensions + 1)]
    expected, size = length + prod(sizes), path.stat().st_size
    if size != expected:
        return (
            f"must have the {expected:,} bytes that its header says, got {size:,}; it is "
            "truncated or damaged, get it again"
        )
    return None


def sum_fault(folder: Path, sums: Iterable[tuple[str, str]]) -> str | None:
    """Return what is wrong with the first file whose MD5 sum is another, None if none is."""
    for name, wanted in sums:
        path = folder / name
        if path.is_file():
            with path.open("rb") as file:
                found = _md5(file.read())
            if found != wanted:
                return f"{path} must have the MD5 sum {wanted}, got {found}; get it again"
    return None


def _md5(content: bytes) -> str:
    return md5(content, usedforsecurity=False).hexdigest()
