"""Networks by name: each takes an image shape (C, H, W) and a number of classes."""

from torch import nn


def mcmahan_cnn(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Return the CNN of McMahan et al. (AISTATS 2017, section 3): 1,663,370 parameters on MNIST.

    Two 5x5 convolutions (32 and 64 channels, same padding), each followed by 2x2 max pooling,
    then a dense layer of 512 and the output layer.
    """
    return _two_convolutions(shape, classes, channels=(32, 64), kernel=5, hidden=512)


def small_cnn(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Return a CNN for 8x8 digits: 3x3 convolutions of 16 and 32 channels, dense 64."""
    return _two_convolutions(shape, classes, channels=(16, 32), kernel=3, hidden=64)


def _two_convolutions(
    shape: tuple[int, int, int],
    classes: int,
    *,
    channels: tuple[int, int],
    kernel: int,
    hidden: int,
) -> nn.Module:
    depth, height, width = shape
    if min(height, width) < 4:
        raise ValueError(
            f"images must be at least 4x4 pixels for two poolings, got {height}x{width}; "
            "use a larger image size"
        )
    first, second = channels
    return nn.Sequential(
        nn.Conv2d(depth, first, kernel, padding="same"),
        nn.MaxPool2d(2),  # before the ReLU: the same function of a quarter of the entries
        nn.ReLU(),
        nn.Conv2d(first, second, kernel, padding="same"),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(second * (height // 4) * (width // 4), hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )
