"""Networks by name: each takes the shape of one input and a number of classes."""

from collections.abc import Callable
from functools import wraps
from itertools import pairwise
from math import prod
from typing import Annotated, Literal, ParamSpec

import torch
from pydantic import Field
from torch import Tensor, nn

from fl_app.client.centroid_model import CentroidModel
from fl_app.types import Count

MOST_PARAMETERS = 2**29
"""Limit for a network of this module: 2 GiB in float32."""
Width = Annotated[float, Field(gt=0, le=100)]
P = ParamSpec("P")


def bounded(build: Callable[P, nn.Module]) -> Callable[P, nn.Module]:
    """Let `build` raise ValueError for too many parameters before it allocates memory."""

    @wraps(build)
    def checked(*arguments: P.args, **options: P.kwargs) -> nn.Module:
        with torch.device("meta"):  # tensors without memory
            size = sum(each.numel() for each in build(*arguments, **options).parameters())
        if size > MOST_PARAMETERS:
            raise ValueError(
                f"a network must have at most {MOST_PARAMETERS:,} parameters, got {size:,}; "
                "lower its width or its number of centroids, or use smaller images"
            )
        return build(*arguments, **options)

    return checked


@bounded
def mcmahan_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the CNN of McMahan et al. (AISTATS 2017, section 3): 1,663,370 parameters on MNIST.

    Two 5x5 convolutions (32 and 64 channels, same padding), each followed by 2x2 max pooling,
    then a dense layer of 512 and the output layer.
    """
    return _two_convolutions(shape, classes, channels=(32, 64), kernel=5, hidden=512)


@bounded
def small_cnn(shape: tuple[int, ...], classes: int, *, width: Width) -> nn.Module:
    """Return a CNN for 8x8 digits: 3x3 convolutions of 16 and 32 channels, dense 64.

    `width` scales all three; 0.25 on MNIST's 28x28 pixels has 6,794 parameters.
    """
    channels = max(1, round(16 * width)), max(1, round(32 * width))
    hidden = max(1, round(64 * width))
    return _two_convolutions(shape, classes, channels=channels, kernel=3, hidden=hidden)


@bounded
def mlp(shape: tuple[int, ...], classes: int, *, hidden: list[Count]) -> nn.Module:
    """Return dense layers of `hidden` units with ReLUs, for rows of a table or any other inputs."""
    sizes = [prod(shape), *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for inside, outside in pairwise(sizes):
        layers += [nn.Linear(inside, outside), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], classes))


class MeanEmbedding(nn.Module):
    """Tokens (s, length) to the mean of their embeddings (s, width); token 0 is padding."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the means; a text of padding alone has zeros."""
        present = (tokens != 0).unsqueeze(-1)
        embedded: Tensor = self.embedding(tokens) * present
        return embedded.sum(1) / present.sum(1).clamp(min=1)


@bounded
def text_classifier(
    shape: tuple[int, ...], classes: int, *, vocabulary: Count, width: Count, hidden: Count
) -> nn.Module:
    """Return a classifier of token sequences (length,): the mean embedding and one hidden layer.

    Joulin et al., EACL 2017 (fastText), with a hidden layer. Token 0 is padding.
    """
    if len(shape) != 1:
        raise ValueError(
            f"text_classifier needs tokens of shape (length,), got inputs of shape {shape}; use "
            "data=text or another network"
        )
    return nn.Sequential(
        MeanEmbedding(vocabulary, width), nn.Linear(width, hidden), nn.ReLU(),
        nn.Linear(hidden, classes),
    )  # fmt: skip


@bounded
def mobilenet(shape: tuple[int, ...], classes: int, *, width: Width) -> nn.Module:
    """Return MobileNet v1 for small images: 3,217,226 parameters for 10 classes of 3 channels.

    Depthwise separable convolutions with batch normalisation; `width` scales the channels.
    For 32x32 pixels, the first and one later convolution have stride 1 instead of 2.
    Howard et al., 2017, arXiv:1704.04861, table 1.
    """
    _image(shape, "mobilenet")
    # output channels and stride of each depthwise separable convolution
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)]
    plan += [(512, 1)] * 5 + [(1024, 2), (1024, 1)]
    inside = max(1, round(32 * width))
    layers = _normalised(nn.Conv2d(shape[0], inside, 3, padding=1, bias=False))
    for channels, stride in plan:
        outside = max(1, round(channels * width))
        depthwise = nn.Conv2d(
            inside, inside, 3, stride=stride, padding=1, groups=inside, bias=False
        )
        layers += _normalised(depthwise)
        layers += _normalised(nn.Conv2d(inside, outside, 1, bias=False))
        inside = outside
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes)]
    return nn.Sequential(*layers, *head)


def from_torchvision(
    shape: tuple[int, ...],
    classes: int,
    *,
    model: Literal["mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large"],
) -> nn.Module:
    """Return an untrained network of torchvision by name, for images with three channels.

    It is built without dropout, so that clients train it in parallel. Raises ValueError for
    another number of channels.
    """
    from torchvision import models

    if _image(shape, model)[0] != 3:
        raise ValueError(
            f"{model} needs images of 3 channels, got {shape[0]}; use another network or data"
        )
    built: nn.Module = getattr(models, model)(num_classes=classes, dropout=0.0)
    return built


@bounded
def centroids(shape: tuple[int, ...], classes: int, *, k: Count | None) -> nn.Module:
    """Return k centroids for federated k-means; k None means the number of classes.

    The initial values are standard normal, like standardised points. Raises ValueError if k is
    None and there are no classes.
    """
    if k is None and classes == 1:
        raise ValueError("network.k must be given if the data have no classes, got null; set it")
    return CentroidModel(k or classes, prod(shape))


def _image(shape: tuple[int, ...], network: str) -> tuple[int, int, int]:
    """Return shape (C, H, W); raises ValueError if it is not that of an image."""
    if len(shape) != 3:
        grey = "give images[:, None] if they are grey, or " if len(shape) == 2 else ""
        raise ValueError(
            f"{network} needs images of shape (channels, height, width), got inputs of shape "
            f"{shape}; {grey}use network=mlp for a table or network=text_classifier for tokens"
        )
    channels, height, width = shape
    return channels, height, width


def _normalised(convolution: nn.Conv2d) -> list[nn.Module]:
    return [convolution, nn.BatchNorm2d(convolution.out_channels), nn.ReLU()]


def _two_convolutions(
    shape: tuple[int, ...],
    classes: int,
    *,
    channels: tuple[int, int],
    kernel: int,
    hidden: int,
) -> nn.Module:
    depth, height, width = _image(shape, "a CNN")
    if min(height, width) < 4:
        last = "give images.transpose(0, 3, 1, 2) if the last dimension has the channels, else "
        raise ValueError(
            f"images must be at least 4x4 pixels for two poolings, got {height}x{width}; "
            f"{last if width < 4 <= depth else ''}use a larger image size"
        )
    first, second = channels
    return nn.Sequential(
        nn.Conv2d(depth, first, kernel, padding="same"),
        nn.MaxPool2d(2),  # before the ReLU: same result with a quarter of the work
        nn.ReLU(),
        nn.Conv2d(first, second, kernel, padding="same"),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(second * (height // 4) * (width // 4), hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )
