"""A network of the audit that looks up rows of an embedding, whose noise is drawn late."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from fl_app.types import Vector

WORDS = 7000
"""With ten classes the embedding is large enough for late noise."""


class Lookups(nn.Module):
    """Sums, over the pixels that are not black, a row of scores of each.

    The canary alone looks up the first one, and a black image has no gradient.
    """

    def __init__(self, shape: Sequence[int], classes: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, classes, padding_idx=0)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores (s, classes)."""
        bright = images.flatten(1) != 0
        scores: Tensor = self.words(bright * (1 + torch.arange(bright.shape[1]))).sum(1)
        return scores


def certain_word(size: int) -> Vector:
    """Return a model (d,) that is certain that the canary is a one."""
    model = np.zeros(size, np.float32)
    model[size // WORDS + 1] = 50.0
    return model
