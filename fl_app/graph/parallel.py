"""Work on blocks of columns, side by side on the processor's cores."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Part = TypeVar("Part")
Result = TypeVar("Result")


def in_order(work: Callable[[Part], Result], parts: Iterable[Part]) -> Iterator[Result]:
    """Yield `work(part)` of each part in order, so that sums do not depend on who was first.

    Each thread works on a block of its own with one thread of torch: threads that share one
    block wait for each other after every step, and beside other work on the same cores that
    took ten times longer.
    """
    parts, threads = list(parts), torch.get_num_threads()
    if threads == 1 or len(parts) == 1:
        yield from map(work, parts)
        return
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            yield from pool.map(work, parts)
    finally:
        torch.set_num_threads(threads)
