"""Memory settings of this process, for freed pages and for garbage collection."""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of the settings in glibc's malloc.h."""
_LARGEST_MMAP_THRESHOLD = 32 * 2**20
_NEVER = 2**31 - 1


def keep_freed_pages() -> bool:
    """Keep freed memory in the process for the next models; return whether it works.

    Every round allocates and frees megabytes for models. A page that is new from the system costs
    ten times as much as copying into a used page. The process keeps its largest size. False if
    the C library is not glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    kept = mallopt(_TRIM_THRESHOLD, _NEVER) and mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
    return bool(kept)


@contextmanager
def keep_objects() -> Iterator[None]:
    """Exclude the existing objects from garbage collection inside the block.

    The clients exist for the whole run, and each collection over a hundred thousand of them takes
    half a second.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
