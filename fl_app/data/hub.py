"""Image data sets from the hub of flwr-datasets by name, such as FEMNIST."""

from typing import Any

import numpy as np

from fl_app.data.datasets import DataError, Dataset, Share, moments
from fl_app.rng import generator
from fl_app.types import Count, Text


def hub(
    *,
    name: Text,
    split: Text,
    image: Text,
    label: Text,
    samples: Count | None,
    test_share: Share,
    standardise: bool,
    seed: int,
) -> Dataset:
    """Load `name` with flwr-datasets, by default its whole training split.

    `image` and `label` are the names of its columns. `samples` of it are drawn with the seed, and
    `test_share` of these are the test data. FEMNIST (Caldas et al., 2018) has 62 classes of 28x28
    images. Raises DataError without the package, the network or the columns.
    """
    try:
        from flwr_datasets import FederatedDataset
    except ImportError as error:
        raise DataError(
            f"data from the hub need the package flwr-datasets ({error}); install fl-app[hub]"
        ) from error
    try:
        loaded = FederatedDataset(dataset=name, partitioners={}).load_split(split)
    except Exception as error:  # the hub fails in different ways: no network, unknown name
        raise DataError(
            f"{name} could not be loaded from the hub; check data.name and data.split, or "
            f"download it once with a network and set HF_HOME to that cache ({error})"
        ) from error
    if not {image, label} <= set(loaded.column_names):
        raise DataError(
            f"data.image={image} and data.label={label} must be columns of {name}, which has "
            f"{', '.join(loaded.column_names)}; use two of them"
        )
    order = generator(seed, purpose="hub split").permutation(len(loaded))[:samples]
    chosen = loaded.select(order)
    images, labels = _pixels(chosen, image), np.asarray(chosen[label], int)
    cut = round(len(images) * test_share)
    known = getattr(loaded.features.get(label), "num_classes", None)
    classes = known or int(labels.max()) + 1
    found = moments(images[cut:]) if standardise else None
    train, test = (images[cut:], labels[cut:]), (images[:cut], labels[:cut])
    return Dataset(name, classes, *train, *test, found)


def _pixels(rows: Any, image: str) -> np.ndarray:
    """Return all images, given as pictures or as arrays, as bytes (N, C, H, W)."""
    images = [np.asarray(row[image]) for row in rows]
    shapes = {each.shape for each in images}
    if len(shapes) > 1:
        raise DataError(f"images must have the same size, got {sorted(shapes)[:4]}; use other data")
    stacked = np.stack(images).astype(np.uint8)
    return stacked[:, None] if stacked.ndim == 3 else stacked.transpose(0, 3, 1, 2)
