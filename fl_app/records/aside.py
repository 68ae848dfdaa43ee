"""Calls that may never return, made in a thread of their own, which can be left behind with one."""

from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")
Job = tuple["Future[Any]", Callable[[], Any]]


class Aside:
    """A daemon thread that makes one call after another; none holds the end of the process."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        Thread(target=work, args=(self._jobs,), name=name, daemon=True).start()

    def call(self, function: Callable[[], T], limit_s: float) -> T:
        """Return what the call returns, or raise what it raises; TimeoutError after so long."""
        result: Future[T] = Future()
        self._jobs.put((result, function))
        return result.result(limit_s)

    def end(self) -> None:
        """End the thread after the calls that it has."""
        self._jobs.put(None)


def work(jobs: "SimpleQueue[Job | None]") -> None:
    """Make the calls of a queue, each into its future, until None comes."""
    while (job := jobs.get()) is not None:
        result, function = job
        try:
            result.set_result(function())
        except BaseException as error:
            result.set_exception(error)
