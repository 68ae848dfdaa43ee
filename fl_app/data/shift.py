"""How groups of clients can differ: images turned, labels swapped."""

import torch
from torch import Tensor


def rotate(images: Tensor, degrees: float) -> Tensor:
    """Turn images (s, C, H, W) counter-clockwise; square ones exactly by multiples of 90."""
    quarters, rest = divmod(degrees, 90)
    if rest == 0 and images.shape[2] == images.shape[3]:
        return torch.rot90(images, int(quarters), (2, 3))
    from torchvision.transforms.v2 import functional

    # above a background of zero, since torchvision interpolates with zeros beyond the edge
    background = images.amin()
    turned: Tensor = functional.rotate(
        images - background, degrees, interpolation=functional.InterpolationMode.BILINEAR
    )
    return turned + background


def swap(images: Tensor, labels: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Return labels (s,) in which 2 * group and 2 * group + 1 have changed places."""
    first, second = 2 * group, 2 * group + 1
    swapped = labels.clone()
    swapped[labels == first], swapped[labels == second] = second, first
    return images, swapped
