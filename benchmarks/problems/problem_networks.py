"""Networks of the worked problems: buffers of every kind, and a backbone with a head."""

import torch
from torch import Tensor, nn


class Buffers(nn.Module):
    """Batch norm, dropout, and buffers of integers and truth values that the answer depends on."""

    def __init__(self, pixels: int, classes: int, width: int) -> None:
        super().__init__()
        self.register_buffer("order", torch.arange(pixels).flip(0))
        self.register_buffer("seen", torch.arange(pixels) % 8 > 0)
        self.body = nn.Sequential(
            nn.Linear(pixels, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.2)
        )
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores (s, classes) of images (s, 1, H, W)."""
        pixels = images.flatten(1)[:, self.order] * self.seen
        answers: Tensor = self.head(self.body(pixels))
        return answers


def buffers(shape: tuple[int, ...], classes: int, *, width: int) -> nn.Module:
    """Return the network with buffers."""
    return Buffers(shape[0] * shape[1] * shape[2], classes, width)


def backbone(shape: tuple[int, ...], classes: int, *, width: int) -> nn.Module:
    """Return convolutions `features` and a linear `head`."""
    channels, height, length = shape
    features = nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    )  # fmt: skip
    net = nn.Sequential()
    net.add_module("features", features)
    net.add_module("head", nn.Linear(2 * width * (height // 4) * (length // 4), classes))
    return net
