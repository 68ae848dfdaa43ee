"""A balanced test set on the server, in simulations."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fl_app.client.training import Precision, evaluate
from fl_app.data.datasets import Dataset
from fl_app.params import FlatModule
from fl_app.types import Labels, Vectors

CLOSE = 0.1
"""A community is benign if its accuracy on the root data is at most this below the best."""


@dataclass(frozen=True)
class CentralTest:
    """Scores models on images (s, C, H, W) and labels (s,) with equally many of each class."""

    model: FlatModule
    images: Tensor
    labels: Tensor
    precision: Precision

    def __call__(self, models: Vectors) -> list[float]:
        """Return the accuracy of each model (k, d)."""
        found = []
        for model in models:
            self.model.load(model)
            score = evaluate(self.model.module, self.images, self.labels, precision=self.precision)
            assert score.accuracy is not None
            found.append(score.accuracy)
        return found

    def benign(self, models: Vectors, sizes: Labels) -> set[int]:
        """Return the rows of models (k, d) whose accuracy is within CLOSE of the best one."""
        accuracy = self(models)
        return {row for row, each in enumerate(accuracy) if each >= max(accuracy) - CLOSE}


def balanced(
    dataset: Dataset, device: torch.device, *, most: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the first test samples of each class: as many as the rarest has, at most `most`.

    Classes without any are left out.
    """
    labels = dataset.test_labels
    present, counts = np.unique(labels, return_counts=True)
    each = min(counts.min(), most or len(labels))
    chosen = [np.flatnonzero(labels == c)[:each] for c in present]
    images, targets = dataset.test(np.concatenate(chosen))
    return images.to(device), targets.to(device)
