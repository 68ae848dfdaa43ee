"""A request to stop reaches the rounds in whatever process they run: a file in the run's folder.

Whoever wants them to stop drops `stop`. The loop takes it up at any time by renaming it to
`stopping`, stops at its next safe point, and removes it when all is written.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fl_app.engines import signals

STOP, STOPPING = "stop", "stopping"
TAKEN_UP_S = 10.0
"""A loop that goes on takes a request up sooner, also on a busy machine."""
EVALUATED_S = 60.0
"""How long a stop waits for the clients' evaluation, so that the round is whole."""
LOOK_S = 0.1
"""Time between looks for a request, and between those of a loop that waits for something."""


class _Loop:
    """What was asked of the loop in this process, and since when it holds the stop off."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.forget()

    def forget(self) -> None:
        """Start as a loop that nobody has asked."""
        self.asked.clear()
        self.since = 0.0
        self.held = False


_loop = _Loop()


def ask(folder: Path) -> None:
    """Ask the rounds of the run in `folder` to stop."""
    (folder / STOP).touch()


def withdraw(folder: Path) -> None:
    """Remove a request that nobody took up, or whose loop was killed."""
    for name in (STOP, STOPPING):
        (folder / name).unlink(missing_ok=True)


def is_over(folder: Path, asked_for_s: float) -> bool:
    """Whether the loop has stopped on a request so long ago, or none will take it up."""
    if (folder / STOP).exists():  # before the other: the loop renames it meanwhile
        begun = (folder / "rounds.jsonl").exists()
        return not begun or asked_for_s > TAKEN_UP_S
    return not (folder / STOPPING).exists()


@contextmanager
def listening(folder: Path) -> Iterator[None]:
    """Take up requests while the block runs; in it `check` and `wait` raise KeyboardInterrupt."""
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
        with contextlib.suppress(OSError):  # there is none
            (folder / STOP).replace(folder / STOPPING)
            _loop.since = time.monotonic()
            _loop.asked.set()


def asked() -> bool:
    """Whether the loop in this process was asked to stop."""
    return _loop.asked.is_set()


def check() -> None:
    """Raise KeyboardInterrupt if the loop was asked to stop: for its safe points."""
    if asked() and not _loop.held:
        signals.interrupt()


def wait(seconds: float) -> None:
    """Wait so long, or raise KeyboardInterrupt once the loop is asked to stop."""
    if _loop.held:
        time.sleep(seconds)
    elif _loop.asked.wait(seconds):
        check()


@contextmanager
def held() -> Iterator[None]:
    """Hold a stop off: what the block does is whole or lost."""
    _loop.held = True
    try:
        yield
    finally:
        _loop.held = False


def latest() -> float:
    """Return until when, on the monotonic clock, clients may answer while a stop is held off."""
    return _loop.since + EVALUATED_S if asked() and _loop.held else float("inf")
