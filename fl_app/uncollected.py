"""Imports without searches for garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Let the block run without Python's search for objects that only refer to each other.

    Torch and Flower leave so many objects that a search takes a tenth of a second, and the imports
    that follow theirs bring on one or two, in the process of each message.
    """
    searches = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searches:
            gc.enable()
