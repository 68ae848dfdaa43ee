"""Makes a folder that only its owner can enter, for keys, databases and logs of a federation."""

import os
from pathlib import Path

_OTHERS = 0o077
_MARKS = ("keys", "federation.pid")
"""What is in the folder of a federation, also in that of `scripts/deploy keys`."""


class ExposedFolderError(ValueError):
    """A folder that others can enter, and that is not changed without being asked."""


def make(folder: Path) -> None:
    """Make a folder with mode 0700; one of a federation that is there gets this mode.

    The updates of clients are in clear in the SuperLink's database. Raises ExposedFolderError for a
    folder that others can enter and that is another user's or has something else in it, as a home.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if not found.st_mode & _OTHERS:
        return
    inside = os.listdir(folder)
    if found.st_uid != os.getuid() or (inside and not any(mark in inside for mark in _MARKS)):
        raise ExposedFolderError(
            f"the folder of a federation must be yours with mode 700, as it gets the updates of "
            f"clients, got {folder} with mode {found.st_mode & 0o777:o}; give a new folder, or run "
            "chmod 700 on it"
        )
    folder.chmod(0o700)
