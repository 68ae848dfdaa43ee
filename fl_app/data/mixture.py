"""Populations whose clients differ in two ways."""

from dataclasses import replace

import numpy as np
from torch import Tensor

from fl_app.data.datasets import Dataset
from fl_app.data.population import Concentration, Population, dirichlet
from fl_app.data.shift import rotate
from fl_app.rng import generator
from fl_app.types import Count


def dirichlet_rotation(
    dataset: Dataset,
    *,
    seed: int,
    clients: Count,
    alpha: Concentration,
    groups: Count,
    train_samples: Count | None,
    test_samples: Count | None,
) -> Population:
    """Return clients with different label distributions and random rotations.

    Rotations are drawn from the `groups` multiples of 360 / groups degrees, all equally often.
    They are the planted groups; a method should ignore the label skew. A large number of groups
    approximates arbitrary angles. Labels follow Dirichlet(alpha) as in `population.dirichlet`.
    Augello et al., PerCom Workshops 2023, section IV.
    """
    dataset.check_images("population=dirichlet_rotation")
    skewed = dirichlet(
        dataset, seed=seed, clients=clients, alpha=alpha, groups=None,
        train_samples=train_samples, test_samples=test_samples,
    )  # fmt: skip
    drawn = generator(seed, purpose="rotations").permutation(np.arange(clients) % groups)

    def turn(images: Tensor, labels: Tensor, group: int) -> tuple[Tensor, Tensor]:
        return rotate(images, 360 * group / groups), labels

    return replace(skewed, groups=drawn, transform=turn)
