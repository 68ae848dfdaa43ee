"""The mean loss of a network on each class of a client's samples."""

import numpy as np
import torch
from torch import Tensor, nn

from fl_app.client.task import Loss
from fl_app.client.training import SCORED, Precision, autocast, scores
from fl_app.types import Vector

LOSSES, COUNTS = "class_losses", "class_counts"
"""Names of the reports: mean loss of each class, and its number of samples."""


@torch.no_grad()
def class_losses(
    module: nn.Module,
    images: Tensor,
    labels: Tensor,
    loss_of: Loss,
    *,
    classes: int,
    precision: Precision,
) -> dict[str, Vector]:
    """Return mean losses and numbers of samples (classes,) of `images` (s, ...), `labels` (s,).

    A class without samples has the loss 0.
    """
    module.eval()
    answers = []
    for part in torch.split(images, SCORED):
        with autocast(part.device, precision):
            answers.append(scores(module, part))
    found = torch.cat(answers).float()
    losses = np.zeros(classes, np.float32)
    counts = torch.bincount(labels, minlength=classes).cpu().numpy()
    for each in np.flatnonzero(counts).tolist():
        of_class = labels == each
        losses[each] = float(loss_of(found[of_class], labels[of_class]))
    return {LOSSES: losses, COUNTS: counts.astype(np.float32)}
