"""No lie changes what a strategy learns: every method, every kind of message."""

import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from lockstep import Lockstep
from methods import STRATEGIES

ROUNDS = 7


@pytest.mark.parametrize("name", list(STRATEGIES))
@settings(max_examples=4, deadline=None, database=None, phases=[Phase.generate])
@given(seed=st.integers(0, 2**32 - 1))
def test_the_state_is_that_of_a_run_in_which_the_rejected_replies_never_came(
    name: str, seed: int
) -> None:
    both = Lockstep(STRATEGIES[name], Random(seed))
    for server_round in range(1, ROUNDS + 1):
        both.round(server_round)
