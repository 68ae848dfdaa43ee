"""Blocks side by side: results in order, and torch's threads as they were."""

import time

import pytest
import torch

from fl_app.graph.parallel import in_order


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_order_whoever_is_first(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:

        def work(number: int) -> tuple[int, int]:
            time.sleep(0.01 * (3 - number % 3))
            return number, torch.get_num_threads()

        assert list(in_order(work, range(7))) == [(number, 1) for number in range(7)]
        assert torch.get_num_threads() == threads
        with pytest.raises(ZeroDivisionError):
            list(in_order(lambda number: 1 // number, [1, 0, 2]))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
