"""The mutated replies: what ends their workers."""

import multiprocessing
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import fuzz


def interrupted() -> "Future[None]":
    context = multiprocessing.get_context("spawn")
    with (
        suppress(KeyboardInterrupt),
        ProcessPoolExecutor(1, mp_context=context) as pool,
        fuzz.ending(pool),
    ):
        playing = pool.submit(time.sleep, 20)
        raise KeyboardInterrupt
    return playing


def test_an_interrupt_does_not_wait_for_the_workers() -> None:
    playing = interrupted()
    assert playing.cancelled() or isinstance(playing.exception(), BrokenProcessPool)
