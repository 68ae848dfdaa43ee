"""Synthetic points."""

import numpy as np
from pydantic import PositiveFloat

from fl_app.data.datasets import Dataset
from fl_app.rng import generator
from fl_app.types import Count, NonNegativeInt, Seed

MOST_COORDINATES = 2**28
"""Limit for the drawn points: 2 GiB in double precision."""
TEST_SHARE = 0.2
"""Number of additional test samples, as a share of the training samples."""


def blobs(
    *,
    centres: Count,
    samples: Count,
    outliers: NonNegativeInt,
    deviation: PositiveFloat,
    dimensions: Count,
    draw: Seed | None,
    seed: int,
) -> Dataset:
    """Draw Gaussian blobs around uniform centres in [-1, 1]^d, and uniform outliers there.

    The class of a point is its centre; outliers are one more class, the last. `draw` is a seed of
    the points, for sweeps in which all seeds share the same points; None: the run's seed. Holzer
    et al., 2023, experiments: five centres in the plane, deviation 0.2, 10,000 points and 100
    outliers.
    """
    coordinates = (centres + samples + outliers) * dimensions
    if coordinates > MOST_COORDINATES:
        raise ValueError(
            "(data.centres + data.samples + data.outliers) * data.dimensions must be at most "
            f"{MOST_COORDINATES:,}, got {coordinates:,}; draw fewer points"
        )
    source = generator(seed if draw is None else draw, purpose="blobs")
    middle = source.uniform(-1, 1, (centres, dimensions))

    def points(count: int, beside: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(count) % centres
        near = middle[labels] + source.normal(0, deviation, (count, dimensions))
        far = source.uniform(-1, 1, (beside, dimensions))
        order = source.permutation(count + beside)
        every = np.concatenate([near, far]).astype(np.float32)[order]
        classes = np.concatenate([labels, np.full(beside, centres)])[order]
        return every, classes

    train = points(samples, outliers)
    test = points(max(1, round(samples * TEST_SHARE)), round(outliers * TEST_SHARE))
    return Dataset("blobs", centres + (outliers > 0), *train, *test)
