"""Random changes of training images, drawn by the keys of the project."""

from collections.abc import Callable

import torch
from torch import Tensor

from fl_app.rng import global_seeds

Transform = Callable[[Tensor], Tensor]
"""Maps one image (C, H, W) to another of a fixed shape, by torch's global generator."""


def augmented(transform: Transform, images: Tensor, epoch: int, *, seed: int) -> Tensor:
    """Return images (s, C, H, W), each changed by a draw of its own in each epoch.

    `seed` is that of a client in a round. A transform draws once for a whole batch, so each
    image is transformed separately.
    """
    with global_seeds((seed + epoch) % 2**63):
        return torch.stack([transform(image) for image in images])
