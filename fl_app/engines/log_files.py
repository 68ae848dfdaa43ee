"""Limits the log of a process that writes to it for months, without telling the process."""

import contextlib
import shutil
from pathlib import Path

MOST_BYTES = 50_000_000
"""A log that has more becomes the former one, so that both have about twice as much at most."""


def former(log: Path) -> Path:
    """Return the file with what a log had before it was emptied last."""
    return log.with_name(f"{log.stem}.former{log.suffix}")


def limit(log: Path) -> None:
    """Move the content of a log that is too long to its former file, in place of that one's.

    The writer keeps its open file, which must be in append mode. Lines that come between the end
    of the copy and the emptying, a moment later, are lost. On a full disk the content is lost.
    """
    try:
        if log.stat().st_size <= MOST_BYTES:
            return
    except OSError:  # somebody removed it
        return
    place = former(log)
    place.unlink(missing_ok=True)  # makes room for the copy
    with log.open("r+b") as source:
        try:
            with place.open("wb") as target:
                shutil.copyfileobj(source, target)
        except OSError:  # a part of a log is not the former one
            with contextlib.suppress(OSError):
                place.unlink()
        source.truncate(0)
