"""A request to stop a run is a file in its folder, since the rounds may run in another process.

A request creates the file `stop`. The loop accepts it by renaming it to `stopping`, stops at its
next safe point, and removes the file when everything is written.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fl_app.engines import signals
from fl_app.records.names import ROUNDS

STOP, STOPPING = "stop", "stopping"
TAKEN_UP_S = 10.0
"""A running loop accepts a request within this time, even on a busy machine."""
EVALUATED_S = 60.0
"""How long a stop waits for the clients' evaluation, so that the round can be completed."""
LOOK_S = 0.1
"""Time between checks for a request."""


class _Loop:
    """The request to stop this process's loop, its time, and whether the stop is delayed."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.forget()

    def forget(self) -> None:
        """Reset to a loop without a request."""
        self.asked.clear()
        self.since = 0.0
        self.held = False


_loop = _Loop()


def ask(folder: Path) -> None:
    """Ask the rounds of the run in `folder` to stop."""
    (folder / STOP).touch()


def withdraw(folder: Path) -> None:
    """Remove a request that was not accepted, or whose loop was killed."""
    for name in (STOP, STOPPING):
        (folder / name).unlink(missing_ok=True)


def is_over(folder: Path, asked_for_s: float) -> bool:
    """Whether the loop has stopped, or no loop will accept the request of `asked_for_s` ago."""
    if (folder / STOP).exists():  # checked first, since the loop may rename it now
        begun = (folder / ROUNDS).exists()
        return not begun or asked_for_s > TAKEN_UP_S
    return not (folder / STOPPING).exists()


@contextmanager
def listening(folder: Path) -> Iterator[None]:
    """Accept requests during the block, in which `check` and `wait` raise KeyboardInterrupt."""
    ended = threading.Event()
    taker = threading.Thread(target=_take_up, args=(folder, ended), daemon=True)
    taker.start()
    try:
        yield
    finally:
        ended.set()
        taker.join()
        (folder / STOPPING).unlink(missing_ok=True)
        _loop.forget()


def _take_up(folder: Path, ended: threading.Event) -> None:
    while not ended.wait(LOOK_S):
        with contextlib.suppress(OSError):  # no request
            (folder / STOP).replace(folder / STOPPING)
            _loop.since = time.monotonic()
            _loop.asked.set()


def asked() -> bool:
    """Whether the loop in this process was asked to stop."""
    return _loop.asked.is_set()


def check() -> None:
    """Raise KeyboardInterrupt if the loop was asked to stop; called at safe points."""
    if asked() and not _loop.held:
        signals.interrupt()


def wait(seconds: float) -> None:
    """Wait `seconds`, or raise KeyboardInterrupt as soon as the loop is asked to stop."""
    if _loop.held:
        time.sleep(seconds)
    elif _loop.asked.wait(seconds):
        check()


@contextmanager
def held() -> Iterator[None]:
    """Delay a stop until the end of the block, so that the block is never interrupted."""
    _loop.held = True
    try:
        yield
    finally:
        _loop.held = False


def latest() -> float:
    """Return the monotonic time until which clients may answer while a stop is delayed."""
    return _loop.since + EVALUATED_S if asked() and _loop.held else float("inf")
