"""What SIGINT and SIGTERM do to the process of a user: the first asks it to end, a second ends it.

Python's own way, a KeyboardInterrupt wherever the main thread is, may strike within a queue or
a lock, which then waits for ever. Here a thread counts the signals as they come, whatever the
main thread does; the main thread is interrupted only where nothing is to be written yet.
Standard library only: a program answers before it imports what takes seconds.
"""

import contextlib
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import NoReturn

log = logging.getLogger(__name__)
SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130
ONE_PRESS_S = 0.2
"""Signals closer than this are one: `timeout` sends each to the process and to its group."""
PATIENCE_S = 20.0
"""How long the process may take to end where it defers nothing; then it is ended."""
LAST_S = 5.0
"""How long the last things may take, of a process that is ended at once."""
EXIT_S = 10.0
"""How long Python may take to end: a thread or a queue that somebody left holds it for ever."""
HURRY_S = 5.0
"""How long what can be made again is waited for, once the process was asked to end."""
_TICK_S = 0.1
_SHOW_CURSOR = b"\x1b[?25h"
Call = Callable[[], object]


@dataclass
class _Answer:
    """What is known of the signals to this process; `ask` and `last` are of a run that goes on.

    `pipe` takes their numbers; without one they are not answered.
    """

    pipe: int | None = None
    asked: threading.Event = field(default_factory=threading.Event)
    first: float | None = None
    deferred: int = 0
    interrupted: bool = False
    ask: Call | None = None
    last: Call | None = None


_answer = _Answer()


def answer() -> None:
    """Answer the signals from now on, in the main thread of a program."""
    if _answer.pipe is not None:
        return
    _answer.pipe, end = os.pipe()
    os.set_blocking(end, False)
    signal.set_wakeup_fd(end, warn_on_full_buffer=False)
    threading.Thread(target=_serve, args=(_answer.pipe,), name="signals", daemon=True).start()
    for number in SIGNALS:
        signal.signal(number, _interrupt)


@contextmanager
def answered() -> Iterator[None]:
    """Answer the signals in the block, where `answer` was called: then nothing holds the end."""
    if _answer.pipe is None:
        yield
        return
    status: object = 0
    try:
        yield
    except SystemExit as end:
        status = end.code
        raise
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BaseException:
        status = 1
        raise
    finally:
        if asked() or status == INTERRUPTED:
            leave(INTERRUPTED)
        code = status if isinstance(status, int) else int(status is not None)
        threading.Thread(target=_leave_late, args=(code,), daemon=True).start()


def asked() -> bool:
    """Whether this process was asked to end."""
    return _answer.asked.is_set()


def asked_for() -> float:
    """Return for how many seconds the process has been asked to end; 0 where it was not."""
    return 0.0 if _answer.first is None else time.monotonic() - _answer.first


def interrupt() -> NoReturn:
    """Raise KeyboardInterrupt here: a safe point; no signal raises it once more."""
    _answer.interrupted = True
    raise KeyboardInterrupt


@contextmanager
def deferred() -> Iterator[None]:
    """Let no signal interrupt the block, which looks for requests itself; one is due at its end."""
    if _answer.pipe is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    _answer.deferred += 1
    try:
        yield
    finally:
        _answer.deferred -= 1
    if asked() and not _answer.interrupted and not _answer.deferred:
        interrupt()


@contextmanager
def of_run(*, ask: Call, last: Call) -> Iterator[None]:
    """Say what a signal means during a run: `ask` it to stop; `last` is done if it must end now.

    Both are called in a thread of their own. Without a run a signal ends the process at once.
    """
    if _answer.pipe is None:
        yield
        return
    _answer.ask, _answer.last = ask, last
    try:
        yield
    finally:
        if not asked():
            _answer.ask = _answer.last = None


def patiently(call: Call, limit_s: float, *, hurried: Callable[[], bool]) -> bool:
    """Call in a thread and wait so long, `HURRY_S` once hurried; return whether it is done.

    Raises what the call raises. One that is not done in time is left behind.
    """
    raised: list[BaseException] = []

    def work() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    worker = threading.Thread(target=work, daemon=True)
    with deferred():
        worker.start()
        now = at_ease = time.monotonic()
        end = now + limit_s
        while worker.is_alive() and now < min(end, at_ease + HURRY_S):
            worker.join(_TICK_S)
            now = time.monotonic()
            at_ease = at_ease if hurried() else now
    if worker.is_alive():
        return False
    if raised:
        raise raised[0]
    return True


def leave(status: int) -> NoReturn:
    """End the process now, whatever threads, queues and handlers of its exit would wait for."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(status)


def _leave_late(status: int) -> None:
    time.sleep(EXIT_S)
    leave(status)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Interrupt the main thread, in which Python calls this, once and where it may be."""
    if _answer.ask is not None and not _answer.deferred and not _answer.interrupted:
        _answer.interrupted = True
        _answer.asked.wait(LAST_S)  # first the request, then what withdraws it
        interrupt()


def _serve(pipe: int) -> None:
    """Count the signals, and end the process at the second, or when the first has no effect."""
    left = PATIENCE_S
    while left > 0:
        first = _answer.first
        ready, _, _ = select.select([pipe], [], [], None if first is None else _TICK_S)
        if ready and not {*SIGNALS} & {*os.read(pipe, 4096)}:
            continue  # another signal
        if first is None:
            _first()
        elif ready and time.monotonic() - first > ONE_PRESS_S:
            break
        elif not _answer.deferred:
            left -= _TICK_S
    _end()


def _first() -> None:
    _answer.first = time.monotonic()
    if _answer.ask is None:
        _end()
    _say("stopping; once more to stop at once")
    try:
        _answer.ask()
    except Exception:  # such as a full disk: a second signal ends it, or no more patience
        log.exception("the run could not be asked to stop")
    _answer.asked.set()


def _end() -> NoReturn:
    """End the process, with the last things of its run if they do not take long."""
    if _answer.last is not None:
        last = threading.Thread(target=_answer.last, daemon=True)
        last.start()
        last.join(LAST_S)
    _say("interrupted")
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), _SHOW_CURSOR)
    os._exit(INTERRUPTED)


def _say(words: str) -> None:
    with contextlib.suppress(OSError):  # not by print: the main thread may hold its lock
        os.write(2, f"{words}\n".encode())
