"""The models that clients train from, with their norms."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from fl_app.types import Vectors

NONE: Mapping[str, slice] = MappingProxyType({})


class Sent:
    """Stores the models (m, d) of a round; the norm of each is computed once, when it is needed.

    `non_negative` are the parts of a model in which no number may be negative, by name.
    """

    def __init__(self, models: Vectors, non_negative: Mapping[str, slice] = NONE) -> None:
        self.models, self.non_negative = models, non_negative
        self._norms: dict[int, float] = {}

    @property
    def size(self) -> int:
        """The number of parameters d."""
        return int(self.models.shape[1])

    def norm(self, row: int) -> float:
        """Return the norm of the model of `row`."""
        if row not in self._norms:
            self._norms[row] = float(np.linalg.norm(self.models[row]))
        return self._norms[row]
