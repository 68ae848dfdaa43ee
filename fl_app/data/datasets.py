"""Data sets by name: images or points in memory, ready to be split among clients."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fl_app.data.checks import (
    DataError,
    LabelKind,
    NoClassesError,
    checked_inputs,
    checked_labels,
)
from fl_app.data.downloads import idx_fault, sum_fault
from fl_app.data.preparation import Preparation, as_inputs, usual
from fl_app.data.split import Owners
from fl_app.rng import generator
from fl_app.types import Text

__all__ = ["DataError", "Dataset", "LabelKind", "cifar10", "digits", "emnist", "fashion_mnist",
           "mnist", "moments"]  # fmt: skip

Share = Annotated[float, Field(gt=0, lt=1)]
Fault = Callable[[Path], str | None]
_idx_fault = partial(idx_fault, parts=("train", "t10k"))


@dataclass(frozen=True)
class Dataset:
    """Inputs (N, ...) of any shape and their labels, for training and test, in memory.

    Bytes are pixels (N, C, H, W). They become float32 when a client loads its samples: they are
    scaled to [0, 1] and, with `moments`, standardised per channel by the mean and deviation of the
    training images. Other integers, such as tokens (N, length), stay integers up to the network;
    other numbers, such as rows of a table (N, d), become float32 and are not scaled.

    `target` says what the labels are, and `classes` how many outputs a network needs:
    "classification", integers (N,) in [0, classes), where one class means that classes are
    unknown; "regression", numbers (N,) or (N, classes); "multilabel", 0 or 1 (N, classes);
    "tokens", a class per token (N, length), or -100 for padding. Labels become float32 for a
    regression and int64 otherwise. Raises DataError for labels or
    inputs that do not fit.
    """

    name: str
    classes: int
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    moments: tuple[np.ndarray, np.ndarray] | None = None
    target: LabelKind = "classification"
    class_names: tuple[str, ...] = ()
    """The names of the classes, if they have any."""
    owners: Owners | None = None
    """The client of each sample, if the data name it."""
    inferred: tuple[str, ...] = ()
    """Settings of the data that were left open and found in the rows, so others may differ."""
    preparation: Preparation | None = None
    """How raw samples become inputs; None: arrays like those above are taken as they are."""

    def __post_init__(self) -> None:
        for part, kind in (("train", "training"), ("test", "test")):
            data = f"the {kind} data of {self.name}"
            inputs = checked_inputs(getattr(self, f"{part}_images"), data)
            labels = checked_labels(
                getattr(self, f"{part}_labels"), data, samples=len(inputs),
                classes=self.classes, target=self.target,
            )  # fmt: skip
            # frozen for everyone else
            object.__setattr__(self, f"{part}_images", inputs)
            object.__setattr__(self, f"{part}_labels", labels)
        same_form(
            self.train_images, self.test_images, "those for training",
            f"the test inputs of {self.name}",
        )  # fmt: skip

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input: (C, H, W) of an image, (d,) of a row of a table."""
        return tuple(self.train_images.shape[1:])

    @property
    def tokens(self) -> bool:
        """Whether networks get integers."""
        return _kind(self.train_images) in "ui"

    @property
    def statistics(self) -> tuple[str, ...]:
        """Settings by which each input or its form depends on all training samples."""
        found = [*self.inferred, *self.prepares.statistics]
        found += ["data.standardise"] if self.moments is not None else []
        return tuple(dict.fromkeys(found))

    @property
    def prepares(self) -> Preparation:
        """How raw samples become inputs."""
        if self.preparation is not None:
            return self.preparation
        return usual(self.shape, self.train_images.dtype, self.moments)

    def form(self) -> dict[str, Any]:
        """Return how raw samples become inputs and what the classes are, as JSON values."""
        return {
            "classes": self.classes,
            "class_names": list(self.class_names),
            "preprocess": self.prepares.describe(),
        }

    def check_classes(self, needed_by: str, *, least: int = 1) -> None:
        """Raise NoClassesError unless each sample has one of at least `least` classes."""
        if self.target != "classification" or self.classes < least:
            classes = "a class" if least == 1 else f"one of at least {least} classes"
            raise NoClassesError(
                f"{needed_by} needs data with {classes} per sample, got "
                f"{self.name} with target={self.target} and {self.classes} classes; use "
                "population=iid, own or by_column"
            )

    def check_images(self, needed_by: str) -> None:
        """Raise DataError unless the inputs are images (C, H, W)."""
        if len(self.shape) != 3:
            raise DataError(
                f"{needed_by} needs images of shape (channels, height, width), got inputs of "
                f"shape {self.shape} of {self.name}; use other data, or another "
                f"{needed_by.partition('=')[0]}"
            )

    def train(self, indices: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return training inputs (s, ...) and labels (s, ...) of some samples."""
        return self._take(self.train_images, self.train_labels, indices)

    def test(self, indices: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return test inputs (s, ...) and labels (s, ...) of some samples."""
        return self._take(self.test_images, self.test_labels, indices)

    def _take(self, images: np.ndarray, labels: np.ndarray, i: np.ndarray) -> tuple[Tensor, Tensor]:
        return as_inputs(images[i], self.moments), torch.from_numpy(labels[i])


def same_form(first: np.ndarray, other: np.ndarray, told: str, others: str) -> None:
    """Raise DataError unless inputs (N, ...) have the shape and kind of the first; told so."""
    if first.shape[1:] != other.shape[1:] or _kind(first) != _kind(other):
        raise DataError(
            f"{others} must be like {told}, {first.dtype} of shape {first.shape[1:]}, got "
            f"{other.dtype} of shape {other.shape[1:]}; use data of one kind"
        )


def _kind(inputs: np.ndarray) -> str:
    return "pixels" if inputs.dtype == np.uint8 else inputs.dtype.kind


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
    return _published("MNIST", root, download, standardise, _idx_fault)


def fashion_mnist(*, root: Text, download: bool, standardise: bool, seed: int) -> Dataset:
    """Load Fashion-MNIST from `root`/FashionMNIST/raw, or download it; raises DataError."""
    return _published("FashionMNIST", root, download, standardise, _idx_fault)


def cifar10(*, root: Text, download: bool, standardise: bool, seed: int) -> Dataset:
    """Load CIFAR-10 from `root`/cifar-10-batches-py, or download it; raises DataError.

    Images in folders, `root`/{train,test}/<class>, are read by `images.image_folder`.
    """
    return _published("CIFAR10", root, download, standardise, _cifar_fault, "cifar-10-batches-py")


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
    train, test = _torchvision(
        "EMNIST", root, download, partial(idx_fault, parts=(f"emnist-{split}-train",
                                                            f"emnist-{split}-test")),
        f"get gzip.zip from NIST's page of the EMNIST dataset and unpack emnist-{split}-*-ubyte.gz "
        "there, unzipped,", split=split,
    )  # fmt: skip
    first = int(split == "letters")  # the labels of letters start at 1
    arrays = (_upright(train.data), np.asarray(train.targets) - first,
              _upright(test.data), np.asarray(test.targets) - first)  # fmt: skip
    return _dataset(f"emnist {split}", arrays, len(train.classes) - first, standardise)


def _upright(images: Any) -> np.ndarray:
    return _channels_first(np.ascontiguousarray(np.asarray(images).swapaxes(1, 2)))


def _published(
    name: str, root: str, download: bool, standardise: bool, fault: Fault, place: str = "raw"
) -> Dataset:
    train, test = _torchvision(name, root, download, fault, "put its files there", place=place)
    arrays = (_channels_first(train.data), np.asarray(train.targets),
              _channels_first(test.data), np.asarray(test.targets))  # fmt: skip
    return _dataset(name.lower(), arrays, len(train.classes), standardise)


def _torchvision(
    name: str, root: str, download: bool, fault: Fault, remedy: str, *, place: str = "raw",
    **options: str,
) -> tuple[Any, Any]:  # fmt: skip
    """Return training and test data; `fault` says what is wrong with files that exist."""
    from torchvision import datasets

    folder = Path(root) / (f"{name}/raw" if place == "raw" else place)
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        train, test = (
            getattr(datasets, name)(root=root, train=part, download=download, **options)
            for part in (True, False)
        )
    except Exception as error:  # mirrors fail in different ways: no network, bad archive
        for made in missing:  # by a download that then failed
            with suppress(OSError):
                made.rmdir()
        if damaged := fault(folder):
            raise DataError(damaged) from error
        why = " ".join(str(error).split())
        raise DataError(
            f"{name} is not at {folder} and could not be downloaded; {remedy} or point data.root "
            f"at a folder that has them ({why})"
        ) from error
    return train, test


def _cifar_fault(folder: Path) -> str | None:
    from torchvision.datasets import CIFAR10

    return sum_fault(folder, [*CIFAR10.train_list, *CIFAR10.test_list])


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

    Computed from the counts of the 256 byte values: exact and without a float copy. The deviation
    of a channel with one value, such as the alpha of opaque images, is 1, as that of a column of a
    table: a small one would make any other value later larger than all that was trained on.
    """
    values = np.arange(256) / 255
    counts = np.stack([np.bincount(c.ravel(), minlength=256) for c in images.swapaxes(0, 1)])
    shares = counts / counts.sum(axis=1, keepdims=True)
    mean = shares @ values
    deviation = np.sqrt(shares @ values**2 - mean**2)
    deviation = np.where((counts > 0).sum(axis=1) > 1, np.maximum(deviation, 1e-6), 1.0)
    return mean.astype(np.float32), deviation.astype(np.float32)
