"""Parallel work on blocks of columns."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Part = TypeVar("Part")
Result = TypeVar("Result")


def in_order(work: Callable[[Part], Result], parts: Iterable[Part]) -> Iterator[Result]:
    """Yield `work(part)` of each part in order, so that sums do not depend on the scheduling.

    Each thread works on its own block, with one thread of torch. Threads that share a block wait
    for each other after every step; on busy cores this took ten times longer.
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
