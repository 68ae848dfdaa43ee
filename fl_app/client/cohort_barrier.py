"""Where the clients of a round, each called in a thread of its own, meet to train at once."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Run = Callable[[Sequence[Any]], Sequence[Any]]
"""The jobs of all to the results of all, in the same order."""


class CohortBarrier:
    """Waits until each of `count` clients has brought a job or ended without one.

    The last to come does the work of all, in the order of their places, whatever thread
    came first.
    """

    def __init__(self, count: int) -> None:
        self._absent = set(range(count))
        self._jobs: dict[int, Any] = {}
        self._results: dict[int, Any] = {}
        self._error: BaseException | None = None
        self._run: Run | None = None
        self._done = threading.Event()
        self._lock = threading.Lock()

    @contextmanager
    def seat(self, place: int) -> Iterator[None]:
        """Make this thread the client at `place` while it is called."""
        token = _seat.set((self, place))
        try:
            yield
        finally:
            _seat.reset(token)

    def arrived(self, place: int) -> None:
        """Wait for `place` no longer; the last client does the work."""
        with self._lock:
            complete = self._absent == {place}
            self._absent.discard(place)
        if complete and self._run is not None:
            self._work(self._run)

    def result(self, place: int, job: Any, run: Run) -> Any:
        """Bring a job, wait for the others, and return its own part of what `run` gives."""
        with self._lock:
            self._jobs[place] = job
            self._run = run
        self.arrived(place)
        self._done.wait()
        if self._error is not None:
            raise RuntimeError(f"training as a cohort failed: {self._error}") from self._error
        return self._results[place]

    def _work(self, run: Run) -> None:
        places = sorted(self._jobs)
        try:
            found = run([self._jobs[place] for place in places])
            self._results = dict(zip(places, found, strict=True))
        except BaseException as error:
            self._error = error
        self._done.set()


_seat: ContextVar[tuple[CohortBarrier, int] | None] = ContextVar("seat", default=None)


def gathered() -> bool:
    """Whether this thread's client is called together with others."""
    return _seat.get() is not None


def together(job: Any, run: Run) -> Any:
    """Return the result of `job`, run with the jobs of all who are called together."""
    seat = _seat.get()
    if seat is None:
        return run([job])[0]
    barrier, place = seat
    return barrier.result(place, job, run)
