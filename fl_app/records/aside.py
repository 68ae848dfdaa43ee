"""Calls that may never return, made in a separate thread that can be abandoned."""

from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")
Job = tuple["Future[Any]", Callable[[], Any]]


class Aside:
    """A daemon thread that makes one call after another and never delays the process's end."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        Thread(target=work, args=(self._jobs,), name=name, daemon=True).start()

    def call(self, function: Callable[[], T], limit_s: float) -> T:
        """Return what the call returns, or raise what it raises; TimeoutError after `limit_s`."""
        result: Future[T] = Future()
        self._jobs.put((result, function))
        return result.result(limit_s)

    def end(self) -> None:
        """End the thread after the waiting calls."""
        self._jobs.put(None)


def work(jobs: "SimpleQueue[Job | None]") -> None:
    """Make the calls of a queue and set their futures, until None arrives."""
    while (job := jobs.get()) is not None:
        result, function = job
        try:
            result.set_result(function())
        except BaseException as error:
            result.set_exception(error)
