"""Data sets by name: images or points in memory, ready to be split among clients."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fl_app.rng import generator
from fl_app.types import Text

Share = Annotated[float, Field(gt=0, lt=1)]
Pixels = Annotated[int, Field(gt=0, le=10_000)]


class DataError(ValueError):
    """The data of a run are missing or have the wrong form."""


@dataclass(frozen=True)
class Dataset:
    """Images as bytes (N, C, H, W) and labels (N,) in [0, classes), for training and test.

    Points are float32 (N, 1, 1, d) and are not scaled; one class means that classes are unknown.
    Pixels become float32 when a client loads its samples: they are scaled to [0, 1] and, with
    `moments`, standardised per channel by the mean and deviation of the training images.
    """

    name: str
    classes: int
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    moments: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (C, H, W) of one image."""
        channels, height, width = self.train_images.shape[1:]
        return channels, height, width

    def train(self, indices: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return training images (s, C, H, W) float32 and labels (s,) of some samples."""
        return self._take(self.train_images, self.train_labels, indices)

    def test(self, indices: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return test images (s, C, H, W) float32 and labels (s,) of some samples."""
        return self._take(self.test_images, self.test_labels, indices)

    def _take(self, images: np.ndarray, labels: np.ndarray, i: np.ndarray) -> tuple[Tensor, Tensor]:
        pixels = images[i].astype(np.float32)
        if images.dtype == np.uint8:
            pixels /= 255
        if self.moments is not None:
            mean, deviation = self.moments
            pixels = (pixels - mean[:, None, None]) / deviation[:, None, None]
        return torch.from_numpy(pixels), torch.from_numpy(labels[i].astype(np.int64))


def digits(*, test_share: Share, standardise: bool, seed: int) -> Dataset:
    """Load scikit-learn's embedded digits (1,797 of 8x8), split by the run's seed."""
    from sklearn.datasets import load_digits

    loaded = load_digits()
    # the embedded images have values 0..16; all other data sets have 0..255
    images = np.round(loaded.images[:, None] * (255 / 16)).astype(np.uint8)
    order = generator(seed, purpose="digits split").permutation(len(images))
    cut = round(len(images) * test_share)
    train, test = order[cut:], order[:cut]
    arrays = (images[train], loaded.target[train], images[test], loaded.target[test])
    return _dataset("digits", arrays, 10, standardise)


def mnist(*, root: Text, download: bool, standardise: bool, seed: int) -> Dataset:
    """Load MNIST from `root`/MNIST/raw, or download it; raises DataError if both fail."""
    return _torchvision("MNIST", root, download, standardise)


def fashion_mnist(*, root: Text, download: bool, standardise: bool, seed: int) -> Dataset:
    """Load Fashion-MNIST from `root`/FashionMNIST/raw, or download it; raises DataError."""
    return _torchvision("FashionMNIST", root, download, standardise)


def cifar10(*, root: Text, download: bool, standardise: bool, seed: int) -> Dataset:
    """Load CIFAR-10 from `root`/cifar-10-batches-py, or download it; raises DataError.

    Images in folders, `root`/{train,test}/<class>, are read by `image_folder`.
    """
    return _torchvision("CIFAR10", root, download, standardise, place="cifar-10-batches-py")


def emnist(
    *,
    root: Text,
    split: Literal["balanced", "byclass", "bymerge", "digits", "letters", "mnist"],
    download: bool,
    standardise: bool,
    seed: int,
) -> Dataset:
    """Load a split of EMNIST from `root`/EMNIST/raw, or download it; raises DataError.

    The images in the files are transposed; here they are upright as in MNIST. Cohen et al.,
    IJCNN 2017.
    """
    from torchvision import datasets

    place = Path(root) / "EMNIST" / "raw"
    try:
        train, test = (
            datasets.EMNIST(root=root, split=split, train=part, download=download)
            for part in (True, False)
        )
    except Exception as error:  # mirrors fail in different ways: no network, bad archive
        raise DataError(
            f"EMNIST is not at {place} and could not be downloaded; get gzip.zip from NIST's page "
            f"of the EMNIST dataset and unpack emnist-{split}-*-ubyte.gz there, unzipped, or point "
            f"data.root at a folder that has them ({error})"
        ) from error
    first = int(split == "letters")  # the labels of letters start at 1
    arrays = (_upright(train.data), np.asarray(train.targets) - first,
              _upright(test.data), np.asarray(test.targets) - first)  # fmt: skip
    return _dataset(f"emnist {split}", arrays, len(train.classes) - first, standardise)


def _upright(images: Any) -> np.ndarray:
    return _channels_first(np.ascontiguousarray(np.asarray(images).swapaxes(1, 2)))


def image_folder(*, root: Text, size: Pixels | None, standardise: bool, seed: int) -> Dataset:
    """Load `root`/{train,test}/<class>/<image>, resized to `size` x `size` pixels if given.

    Raises DataError for a folder of another form, or images of several sizes without `size`.
    """
    from torchvision.datasets import ImageFolder

    parts: list[np.ndarray] = []
    classes: list[str] = []
    for split in ("train", "test"):
        try:
            folder = ImageFolder(str(Path(root) / split))
        except (FileNotFoundError, OSError) as error:
            raise DataError(
                f"no image folder at {root}: expected {root}/{split}/<class>/<image>; "
                f"put the images there or point data.root elsewhere ({error})"
            ) from error
        classes = classes or folder.classes
        if folder.classes != classes:
            raise DataError(
                f"the classes of {root}/test must be those of train, {classes}, got "
                f"{folder.classes}; give both the same folders"
            )
        parts += [_pixels(folder, size), np.array(folder.targets)]
    return _dataset(Path(root).name, tuple(parts), len(classes), standardise)


def _pixels(folder: Any, size: int | None) -> np.ndarray:
    """Return all images of a torchvision folder as bytes (N, C, H, W)."""
    images = [image if size is None else image.resize((size, size)) for image, _ in folder]
    shapes = {image.size for image in images}
    if len(shapes) > 1:
        raise DataError(
            f"images must have the same size, got {sorted(shapes)[:4]}; give data.size=<pixels>"
        )
    return np.stack([np.asarray(image) for image in images]).transpose(0, 3, 1, 2)


def _torchvision(
    name: str, root: str, download: bool, standardise: bool, place: str | None = None
) -> Dataset:
    from torchvision import datasets

    try:
        train, test = (
            getattr(datasets, name)(root=root, train=part, download=download)
            for part in (True, False)
        )
    except Exception as error:  # mirrors fail in different ways: no network, bad archive
        raise DataError(
            f"{name} is not at {Path(root) / (place or f'{name}/raw')} and could not be "
            "downloaded; put its files there or point data.root at a folder that has them "
            f"({error})"
        ) from error
    arrays = (_channels_first(train.data), np.asarray(train.targets),
              _channels_first(test.data), np.asarray(test.targets))  # fmt: skip
    return _dataset(name.lower(), arrays, len(train.classes), standardise)


def _channels_first(images: Any) -> np.ndarray:
    """Return images (N, H, W) or (N, H, W, C) as (N, C, H, W)."""
    pixels = np.asarray(images)
    return pixels[:, None] if pixels.ndim == 3 else pixels.transpose(0, 3, 1, 2)


def _dataset(name: str, arrays: tuple[np.ndarray, ...], classes: int, standardise: bool) -> Dataset:
    images = arrays[0]
    found = moments(images) if standardise else None
    return Dataset(name, classes, images, arrays[1], arrays[2], arrays[3], found)


def moments(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation per channel (C,) of pixels scaled to [0, 1].

    Computed from the counts of the 256 byte values: exact and without a float copy.
    """
    values = np.arange(256) / 255
    counts = np.stack([np.bincount(c.ravel(), minlength=256) for c in images.swapaxes(0, 1)])
    shares = counts / counts.sum(axis=1, keepdims=True)
    mean = shares @ values
    deviation = np.sqrt(shares @ values**2 - mean**2)
    return mean.astype(np.float32), np.maximum(deviation, 1e-6).astype(np.float32)
