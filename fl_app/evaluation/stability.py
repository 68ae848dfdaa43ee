"""When has federated averaging stabilised?"""

from collections.abc import Sequence

import numpy as np


def loss_fall(losses: Sequence[float], *, window: int) -> float | None:
    """Return how much the training loss still falls: `(mean(before) - mean(last)) / first`.

    `losses` (r,) has one value a round; the means are over the last `window` rounds and over
    the `window` before them, which averages out who was sampled. In shares of the first
    round's loss: 0 means that it stands, negative that it grows. Against the window before
    it would not settle, since a loss on its way to zero keeps falling by the same share.
    None until 2 * window rounds have passed. Raises ValueError for a window below 1.
    """
    if window < 1:
        raise ValueError(f"window must be at least 1 round, got {window}; use 10")
    if len(losses) < 2 * window:
        return None
    last, before = np.mean(losses[-window:]), np.mean(losses[-2 * window : -window])
    return float((before - last) / losses[0]) if losses[0] > 0 else 0.0
