"""Handles SIGINT and SIGTERM: the first asks the process to end, the second ends it.

By default Python raises KeyboardInterrupt anywhere in the main thread. Inside a queue or a lock
this can block the process forever. Here a thread counts the signals, and the main thread is
interrupted only where nothing has to be written. The module imports only the standard library,
so that signals are handled before slow imports.
"""

import contextlib
import logging
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import NoReturn

log = logging.getLogger(__name__)
SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130
ONE_PRESS_S = 0.2
"""Signals within this time count as one: `timeout` signals both the process and its group."""
PATIENCE_S = 20.0
"""Time for the process to end outside of `deferred` blocks; then it is ended."""
LAST_S = 5.0
"""Time for the last steps of a process that is ended at once."""
EXIT_S = 10.0
"""Time for Python to exit; an unfinished thread or queue could block it forever."""
HURRY_S = 5.0
"""Time for results that can be produced again later, after the process was asked to end."""
_TICK_S = 0.1
_SHOW_CURSOR = b"\x1b[?25h"
Call = Callable[[], object]


@dataclass
class _Answer:
    """The state of signal handling; `ask` and `last` belong to the current run.

    `pipe` receives the signal numbers; None: signals are not handled here.
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
    """Handle signals from now on; must be called in the main thread of a program."""
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
    """End the process after the block, within EXIT_S, if `answer` was called before."""
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
        if asked():
            traceback.print_exc()  # the process leaves before Python would print it
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
    """Return the seconds since the process was asked to end; 0 if it was not."""
    return 0.0 if _answer.first is None else time.monotonic() - _answer.first


def interrupt() -> NoReturn:
    """Raise KeyboardInterrupt at a safe point; later signals do not raise it again."""
    _answer.interrupted = True
    raise KeyboardInterrupt


@contextmanager
def deferred() -> Iterator[None]:
    """Prevent signals from interrupting the block; a pending interrupt is raised at its end.

    The block must check for requests to stop itself.
    """
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
    """Set how signals act during a run: `ask` requests a stop, `last` precedes an immediate end.

    Both are called in separate threads. Without a run, a signal ends the process at once.
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
    """Run `call` in a thread; return whether it completed within `limit_s`.

    Once `hurried()` is true, it has HURRY_S left at most. Raises what the call raises. A call that
    does not complete in time continues in its thread.
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
    """End the process now, without waiting for threads, queues or exit handlers."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(status)


def _leave_late(status: int) -> None:
    time.sleep(EXIT_S)
    leave(status)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Interrupt the main thread, in which Python calls this, once and outside `deferred`."""
    if _answer.ask is not None and not _answer.deferred and not _answer.interrupted:
        _answer.interrupted = True
        _answer.asked.wait(LAST_S)  # the request must precede its withdrawal
        interrupt()


def _serve(pipe: int) -> None:
    """Count signals; end the process at the second one, or if the first has no effect."""
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
    _say("stopping; a second signal stops at once")
    try:
        _answer.ask()
    except Exception:  # for example a full disk; a second signal or the time limit ends the run
        log.exception("the run could not be asked to stop")
    _answer.asked.set()


def _end() -> NoReturn:
    """End the process after the last steps of its run, for which it has LAST_S."""
    if _answer.last is not None:
        last = threading.Thread(target=_answer.last, daemon=True)
        last.start()
        last.join(LAST_S)
    _say("interrupted")
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), _SHOW_CURSOR)
    os._exit(INTERRUPTED)


def _say(words: str) -> None:
    with contextlib.suppress(OSError):  # print would need a lock that the main thread may have
        os.write(2, f"{words}\n".encode())
