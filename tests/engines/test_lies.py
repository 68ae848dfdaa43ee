"""No lie sent as a message changes a run: through grid, messenger and strategy."""

import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "strategies"))
sys.path.insert(0, str(Path(__file__).parent))
from methods import STRATEGIES
from over_the_wire import OverTheWire


@pytest.mark.parametrize("name", list(STRATEGIES))
@settings(max_examples=1, deadline=None, database=None, phases=[Phase.generate])
@given(seed=st.integers(0, 2**32 - 1))
def test_the_state_is_that_of_a_run_in_which_the_rejected_replies_never_came(
    name: str, seed: int
) -> None:
    both = OverTheWire(STRATEGIES[name], Random(seed))
    try:
        both.introduce()
        for server_round in range(1, 7):
            both.round(server_round)
    finally:
        both.grid.close()
