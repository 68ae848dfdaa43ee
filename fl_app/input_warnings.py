"""Warnings before a run of inputs that a network takes, but hardly learns from."""

from logging import getLogger

import numpy as np
from torch import nn

from fl_app.data.datasets import Dataset

log = getLogger(__name__)
LARGE = 10.0
"""Usual size of a number of the inputs above which training at usual rates diverges or stands."""
LOOKED_AT = 512
"""Samples by which the usual size is told."""
USUAL_CHANNELS = (1, 3, 4)


def warn_of_inputs(module: nn.Module, data: Dataset, *, scales: bool) -> None:
    """Log that inputs are far too large, or that images seem to have their channels at the end.

    `scales`: whether a setting of the data can scale them.
    """
    _warn_of_size(data, scales=scales)
    _warn_of_channels(module, data)


def _warn_of_size(data: Dataset, *, scales: bool) -> None:
    if data.train_images.dtype.kind != "f" or not len(data.train_images):
        return
    shown = data.train_images[:LOOKED_AT]
    columns = shown.reshape(len(shown), -1).astype(np.float64)
    sizes = np.sqrt(np.square(columns).mean(axis=0))
    if large := int((sizes > LARGE).sum()):
        log.warning(
            "%d of the %d numbers of an input of %s are large, up to about %.3g, but a network "
            "learns from numbers of about 1 and little from others: %s",
            large, len(sizes), data.name, sizes.max(),
            "give data.standardise=true" if scales else "divide them in the data or the network",
        )  # fmt: skip


def _warn_of_channels(module: nn.Module, data: Dataset) -> None:
    """Log that the last dimension of images looks like the channels, where the network has pixels.

    Their rows are its channels then. It trains all the same, but does not see the images.
    """
    first = next((each for each in module.modules() if isinstance(each, nn.Conv2d)), None)
    if first is None or len(data.shape) != 3 or first.in_channels != data.shape[0]:
        return
    channels, height, width = data.shape
    if width in USUAL_CHANNELS and channels not in USUAL_CHANNELS:
        log.warning(
            "the images of %s have %d channels of %dx%d pixels for the network; if the %d numbers "
            "at the end are the channels, give images.transpose(0, 3, 1, 2)",
            data.name, channels, height, width, width,
        )  # fmt: skip
