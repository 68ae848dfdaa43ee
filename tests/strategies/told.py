"""What clients tell of their community's model and the common one, in tests of trials."""

import numpy as np

from fl_app.learner_reports import HELD_OUT_PARTS
from fl_app.strategies.trial import JudgedState
from fl_app.types import Vector


def told_losses(state: JudgedState, start: Vector, own: float, common: float) -> Vector:
    """Return the losses that a client sends, first that of the model `start` (d,) that it trains.

    Those of its community's model and the common one are `own` and `common`.
    """
    own_ones = [np.array_equal(start, each) for each in state.communities.models]
    joint = state.common is not None and np.array_equal(start, state.common) and not any(own_ones)
    losses = (common, own) if joint else (own, common)
    return np.repeat(np.array(losses, np.float32), HELD_OUT_PARTS)
