"""A barrier at which clients in separate threads wait to train as one computation."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Run = Callable[[Sequence[Any]], Sequence[Any]]
"""Maps the jobs of all clients to their results, in the same order; an exception is raised to its
client alone."""


class CohortBarrier:
    """Waits until each of `count` clients has submitted a job or ended without one.

    The thread of the last client runs all jobs, always in the order of their places.
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
    def member(self, place: int) -> Iterator[None]:
        """Make this thread the client at `place` during the block."""
        token = _member.set((self, place))
        try:
            yield
        finally:
            _member.reset(token)

    def arrived(self, place: int) -> None:
        """Stop waiting for `place`; the last client runs all jobs."""
        with self._lock:
            complete = self._absent == {place}
            self._absent.discard(place)
        if complete and self._run is not None:
            self._work(self._run)

    def result(self, place: int, job: Any, run: Run) -> Any:
        """Submit a job, wait for the others, and return its result from `run`."""
        with self._lock:
            self._jobs[place] = job
            self._run = run
        self.arrived(place)
        self._done.wait()
        if self._error is not None:
            raise RuntimeError(f"training as a cohort failed: {self._error}") from self._error
        return _own(self._results[place])

    def _work(self, run: Run) -> None:
        places = sorted(self._jobs)
        try:
            found = run([self._jobs[place] for place in places])
            self._results = dict(zip(places, found, strict=True))
        except BaseException as error:
            self._error = error
        self._done.set()


def _own(result: Any) -> Any:
    if isinstance(result, Exception):
        raise result
    return result


_member: ContextVar[tuple[CohortBarrier, int] | None] = ContextVar("member", default=None)


def gathered() -> bool:
    """Whether this thread's client belongs to a cohort."""
    return _member.get() is not None


def together(job: Any, run: Run) -> Any:
    """Return the result of `job`, run together with the jobs of the cohort."""
    member = _member.get()
    if member is None:
        return _own(run([job])[0])
    barrier, place = member
    return barrier.result(place, job, run)
