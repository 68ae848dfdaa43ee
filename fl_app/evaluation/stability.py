"""A criterion for the stability of federated averaging."""

from collections.abc import Sequence

import numpy as np


def loss_fall(losses: Sequence[float], *, window: int) -> float | None:
    """Return the fall of the training loss: `(mean(before) - mean(last)) / first`.

    `losses` (r,) has one value per round. The means are over the last `window` rounds and over
    the `window` rounds before them; they average out the effect of sampling. The result is a
    share of the first loss, negative if the loss grows; 0 if the first loss is not positive.
    Relative to the window before it would not become small, since a loss that converges to zero
    falls by the same share each time. None until 2 * window rounds have passed. Raises ValueError
    for a window below 1.
    """
    if window < 1:
        raise ValueError(f"window must be at least 1 round, got {window}; use 10")
    if len(losses) < 2 * window:
        return None
    last, before = np.mean(losses[-window:]), np.mean(losses[-2 * window : -window])
    return float((before - last) / losses[0]) if losses[0] > 0 else 0.0
