"""Whether files can be written into a folder, found out before the work whose result goes there."""

import contextlib
import os
import tempfile
from pathlib import Path

PROBE = bytes(4096)
"""What is written to find out: a disk can take a name and have no room for a block."""


def problem(folder: Path) -> str | None:
    """Return why no file can be written into `folder`, None if one can; leaves nothing there."""
    missing = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(PROBE)
            probe.flush()
    except OSError as error:
        return (
            f"the output folder must be one into which files can be written, got {folder}: "
            f"{error.strerror}; give another folder, or change its permissions or free space"
        )
    finally:
        for path in missing:  # the folder itself first
            with contextlib.suppress(OSError):
                path.rmdir()
    return None


def require(folder: Path) -> None:
    """Raise ValueError if no file can be written into `folder`."""
    if fault := problem(folder):
        raise ValueError(fault)
