"""The output in the terminal, which can be lost before the run ends: then the run goes on."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from logging import getLogger
from typing import Any, TextIO, cast

from rich.console import Console

log = getLogger(__name__)


class _Output:
    """A stream that drops what it cannot write, as to a full disk; a closed pipe is rich's."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with self._kept():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._kept():
            self._stream.flush()

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Let all output go nowhere after an error, also what Python would write at its end."""
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            log.warning("the output cannot be written any more, the run goes on: %s", error)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def console() -> Console:
    """Return a console for the standard output that outlives a full disk.

    It shows names, paths and reasons as they are, without markup.
    """
    file = cast(TextIO, _Output(sys.stdout)) if sys.stdout else None
    return Console(file=file, markup=False)
