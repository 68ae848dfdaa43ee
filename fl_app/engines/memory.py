"""How this process holds on to memory: pages that it has freed, objects that stay."""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of the settings in glibc's malloc.h."""
_LARGEST_MMAP_THRESHOLD = 32 * 2**20
_NEVER = 2**31 - 1


def keep_freed_pages() -> bool:
    """Let freed memory serve the next models instead of going back; return whether it will.

    Models come and go by the megabyte every round, and a page that the system hands out
    anew costs ten times what copying into a used one does. The process stays as large as it
    was at its largest. False where the C library is not glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    kept = mallopt(_TRIM_THRESHOLD, _NEVER) and mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
    return bool(kept)


@contextmanager
def keep_objects() -> Iterator[None]:
    """Leave the objects that are there at the start out of garbage collection until the end.

    The clients of a run stay for the whole of it, and each look through a hundred thousand of
    them takes half a second.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
