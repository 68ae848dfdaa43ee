"""What a client keeps of its own updates, and the one sketch of them that it releases."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fl_app.client.memory import Memory
from fl_app.client.sketch_release import SketchRelease
from fl_app.masking.sketch import OwnUpdates
from fl_app.types import Sketch, Vector

SKETCH = "sketch"
LAST = 2**31
"""Above every round: what was released stays, also if a resumed run repeats earlier rounds."""


@dataclass(frozen=True)
class OwnSketch:
    """A client in the round `now`; `memory` is what stays with it."""

    release: SketchRelease
    memory: Memory
    seed: int
    client_id: int
    now: int

    def trained(self, start: Vector, update: Vector) -> None:
        """Add an update (d,) of the model `start` (d,), until the sketch is released."""
        if SKETCH not in self.memory.read(LAST):
            after = self._before(len(start)).trained(start, update, self.now)
            self.memory.write({k: np.asarray(each) for k, each in vars(after).items()}, self.now)

    def released(self, models: Sequence[Vector], direction: Callable[[], slice]) -> Sketch:
        """Return the sketch (q,), each time the same, so that it is one release.

        `models` are those of this round, `direction` returns the part of them that is compared.
        Raises ValueError for a client that has not trained.
        """
        kept = self.memory.read(LAST).get(SKETCH)
        if kept is None:
            kept = self._drawn(models, direction)
            self.memory.write({SKETCH: kept}, self.now)
        return kept

    def _drawn(self, models: Sequence[Vector], direction: Callable[[], slice]) -> Sketch:
        before = self._before(len(models[0]))
        if not before.round:
            raise ValueError(
                f"a client must have trained before round {self.now} to have a sketch, got none; "
                "ask another one"
            )
        # several models are those of communities, of which none moved by the mean of all clients
        total = before.known(models[0], self.now) if len(models) == 1 else before.total
        return self.release.sketch(
            total[direction()], seed=self.seed, server_round=self.now, client_id=self.client_id
        )

    def _before(self, parameters: int) -> OwnUpdates:
        kept = self.memory.read(self.now - 1)
        if not kept:
            return OwnUpdates.none(parameters)
        return OwnUpdates(kept["total"], kept["start"], kept["update"], int(kept["round"]))
