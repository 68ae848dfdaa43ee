"""Whether a folder can take the results of some work, found out before the work begins."""

import contextlib
import errno
import fcntl
import os
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from fl_app.records.names import OVERRIDES, ROUNDS

LOCK = ".lock"
"""The file that a process locks, and into which it writes its id, while its run uses a folder."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of the errors of a disk that is full, for all or for the user."""
PROBE = bytes(4096)
"""What is written to find out: a disk can take a name and have no room for a block."""


class InUseError(RuntimeError):
    """Another process writes a run into a folder."""


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


def foreign(folder: Path, written: Collection[str]) -> str | None:
    """Return why a new run must not begin in `folder`: it would replace what no run has written.

    `written` are names of files and folders that a run writes or removes. None in the folder of a
    run, and in one without such names.
    """
    if any((folder / mark).exists() for mark in (OVERRIDES, ROUNDS)):
        return None
    found = [name for name in written if os.path.lexists(folder / name)]
    if not found:
        return None
    return (
        f"the output folder must be a new one or that of a run, got {folder} with your own "
        f"{' and '.join(found)}, which the run would replace; give another folder"
    )


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold `folder` during the block, so that one process at a time writes a run into it.

    Raises InUseError if another process holds it. The system frees the folder of a killed process,
    and its other processes do not inherit it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            lock.seek(0)
            raise InUseError(
                f"the output folder must be that of one run at a time, got {folder}, in which "
                f"process {lock.read().strip()} runs; wait for its end, stop it, or give another "
                "folder"
            ) from None
        except OSError:  # a file system without locks
            pass
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield
