"""Samples the clients that train or evaluate in a round, by keyed generators."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fl_app.rng import cohort_size, generator


@dataclass
class CohortSampler:
    """Draws the clients that train; the draw is keyed by seed, round and purpose."""

    seed: int
    participation: float
    """Share of the clients that is drawn, in (0, 1]."""

    def draw(self, server_round: int, client_ids: Sequence[int], purpose: str) -> list[int]:
        """Return `cohort_size` of the client ids, sorted."""
        if not client_ids:
            return []
        size = cohort_size(self.participation, len(client_ids))
        draw = generator(self.seed, purpose=f"sample {purpose}", round=server_round)
        return sorted(draw.choice(np.sort(client_ids), size, replace=False).tolist())


def draw_at_most(
    most: int | None, client_ids: Sequence[int], *, seed: int, server_round: int
) -> list[int]:
    """Return `most` client ids for an evaluation, with a new draw each round; None: all."""
    if most is None or len(client_ids) <= most:
        return list(client_ids)
    draw = generator(seed, purpose="sample evaluation", round=server_round)
    return sorted(draw.choice(client_ids, most, replace=False).tolist())
