"""The data: noisy stripes at four angles. Replace them by your own data."""

import numpy as np
from pydantic import PositiveInt

from fl_app.data.datasets import Dataset
from fl_app.rng import generator


def stripes(*, samples: PositiveInt, size: PositiveInt, seed: int) -> Dataset:
    """Return images of `size` pixels square; the class is the angle of the stripes."""
    draw = generator(seed, purpose="stripes")
    labels = draw.integers(4, size=samples)
    down, across = np.mgrid[:size, :size]
    angles = np.array([down, across, down + across, down - across]) * 2.0
    clean = 127 + 100 * np.sin(angles[labels] + draw.uniform(0, 6, (samples, 1, 1)))
    images = np.clip(clean + draw.normal(0, 20, clean.shape), 0, 255).astype(np.uint8)[:, None]
    cut = samples // 5
    return Dataset("stripes", 4, images[cut:], labels[cut:], images[:cut], labels[:cut])
