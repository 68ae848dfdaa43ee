"""DCFL among liars whose update vectors are near to all others by its distance."""

import numpy as np
from flwr.common import FitRes

from fl_app.strategies.dcfl import Dcfl
from fl_app.testing.toy import SIZE, builder, context, play, reply, roster
from fl_app.types import Vector

OWN = np.tile([1.0, -1.0], SIZE // 2)
LIARS = {1: 1.0, 5: -1.0}
"""How many times the received model each of them sends back."""


def _client(client_id: int, start: Vector, server_round: int) -> FitRes:
    """Train half-way to the target of the client's group; liars send back what they received."""
    if client_id in LIARS:
        return reply(np.float32(LIARS[client_id]) * start)
    noise = np.random.default_rng((client_id, server_round)).normal(0, 0.2, SIZE)
    target = 3.0 + OWN if client_id % 2 else 1.5 - OWN
    return reply((start + 0.5 * (target - start) + noise).astype(np.float32))


def test_liars_near_to_all_others_do_not_merge_the_groups() -> None:
    given = context(clip_update=2.0, initial=np.ones(SIZE, np.float32))
    strategy = builder("dcfl", participation=1.0)(given)
    assert isinstance(strategy, Dcfl)
    play(strategy, roster(12), range(1, 5), client=_client)
    members = strategy.state.communities.members
    groups = [{members[c] for c in range(12) if c % 2 == g and c not in LIARS} for g in (0, 1)]
    assert not groups[0] & groups[1]
