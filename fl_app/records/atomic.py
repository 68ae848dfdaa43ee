"""Atomic replacement of files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path, *, former: Path | None = None) -> Iterator[Path]:
    """Yield a temporary file next to `path` to write to; it becomes `path` when the block ends.

    The old file at `path` is renamed to `former` if given, and is lost otherwise. After a kill or
    a power cut at any moment, either the complete old content exists, under `path` or `former`, or
    the complete new content under `path`. The temporary name is fixed, so that the next write
    overwrites the remains of a killed one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        yield temporary
        flush(temporary)
        if former is not None and path.exists():
            os.replace(path, former)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Wait until the content of a file is on the disk; raises OSError if the disk fails.

    If the system supports it, the cached copy is dropped, so that the next read uses the disk.
    """
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a power cut; only POSIX can open a folder."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
