"""What benchmarks of federations with real processes wait for."""

import time
from collections.abc import Callable
from typing import TypeVar

from fl_app.engines.flower import Connection
from fl_app.engines.flower_commands import FlowerError
from fl_app.engines.nodes import nodes_online

T = TypeVar("T")


def wait_for(
    what: str,
    found: Callable[[], T],
    *,
    seconds: float,
    every: float,
    details: Callable[[], str] = str,
) -> T:
    """Return what `found` returns as soon as it is true; it is called `every` so many seconds.

    Raises TimeoutError with `what` was waited for, and with `details`.
    """
    deadline = time.monotonic() + seconds
    while not (value := found()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited for {what}; {details()}".removesuffix("; "))
        time.sleep(every)
    return value


def online(connection: Connection) -> int:
    """Return how many nodes are online; -1 while the SuperLink does not answer."""
    try:
        return nodes_online(connection)
    except FlowerError:
        return -1
