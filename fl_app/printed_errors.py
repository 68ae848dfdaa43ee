"""What a command prints of an error, and its exit status."""

import errno
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console

from fl_app.config import ConfigError
from fl_app.engines import signals
from fl_app.launch import RunFailedError
from fl_app.records.names import OVERRIDES
from fl_app.records.output_folder import NO_ROOM
from fl_app.records.summary import read_summary
from fl_app.schema import USAGE_ERROR
from fl_app.strategies.replies import TooFewRepliesError

CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE)
"""Numbers of the errors of a folder that takes no files any more, as after a fault of its disk."""


@contextmanager
def errors_printed(folder: Path | None = None) -> Iterator[None]:
    """Print a user's errors as a sentence and set the exit status; bugs keep their traceback.

    `folder` is that of the run, with which it can be continued.
    """
    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    try:
        yield
    except ConfigError as error:
        console.print(str(error))
        sys.exit(USAGE_ERROR)
    except (RunFailedError, TimeoutError, TooFewRepliesError, ValueError) as error:
        console.print(f"the run failed: {error}")
        sys.exit(1)
    except OSError as error:
        if folder and _was_moved(folder, error):
            told = "the run failed: its output folder must stay in place, but was moved or removed"
            console.print(f"{told}: {folder}; fl-app resume=<where it is now> continues the run")
            sys.exit(1)
        remedy = _remedy(folder, error)
        if remedy is None:
            raise
        then = _after_it(folder) if folder else "; repeat the command"
        console.print(f"no file could be written: {error.strerror}; {remedy}{then}")
        sys.exit(1)
    except KeyboardInterrupt:
        console.print(f"interrupted{_after_it(folder) if folder else ''}")
        sys.exit(signals.INTERRUPTED)


def _was_moved(folder: Path, error: OSError) -> bool:
    """Whether a file of a run that had begun is missing because its folder is no longer there."""
    gone = error.errno == errno.ENOENT and _is_inside(folder, error)
    return gone and not (folder / OVERRIDES).exists()


def _remedy(folder: Path | None, error: OSError) -> str | None:
    """Return what lets files be written again, None if the error is of something else."""
    if error.errno in NO_ROOM:
        return "make room"
    if folder and error.errno in CLOSED and _is_inside(folder, error):
        return f"make {folder} writable"
    return None


def _is_inside(folder: Path, error: OSError) -> bool:
    return folder in Path(str(error.filename)).parents


def _after_it(folder: Path) -> str:
    """Return what is left of an interrupted run: nothing, if its rounds are done."""
    with suppress(OSError, ValueError):
        if (read_summary(folder) or {}).get("status") == "completed":
            return f"; the run is completed, its results are in {folder}"
    return f"; continue with fl-app resume={shlex.quote(str(folder))}"
