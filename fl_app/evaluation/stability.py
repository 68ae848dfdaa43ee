"""When has federated averaging stabilised?"""

from collections.abc import Sequence

import numpy as np


def relative_improvement(losses: Sequence[float], *, window: int) -> float | None:
    """Return how much the training loss still falls: `1 - mean(last) / mean(before)`.

    `losses` (r,) has one value a round; the means are over the last `window` rounds and over
    the `window` before them. 1 means the loss vanished, 0 that it stands, negative that it
    grows; None until 2 * window rounds have passed. A window averages out who was sampled.
    """
    if window < 1:
        raise ValueError(f"window must be at least 1 round, got {window}; use 10")
    if len(losses) < 2 * window:
        return None
    last, before = np.mean(losses[-window:]), np.mean(losses[-2 * window : -window])
    return float(1 - last / before) if before > 0 else 0.0
