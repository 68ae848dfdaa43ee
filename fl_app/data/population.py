"""Populations of clients with planted groups: client i belongs to group i % groups."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from fl_app.data import partition
from fl_app.data.clients import ClientData, Population, Transform
from fl_app.data.datasets import Dataset
from fl_app.data.shift import rotate, swap, with_noise
from fl_app.rng import generator
from fl_app.types import Count, Labels, NonNegativeInt, Participation

__all__ = ["ClientData", "Population", "Transform", "dirichlet", "iid", "label_swap",
           "majority_class", "noise", "own", "quantity_skew", "rotation"]  # fmt: skip

Draw = Literal["disjoint", "replacement"]
"""Whether clients share no samples, or each client draws with replacement."""

Concentration = Annotated[float, Field(ge=1e-6, le=1e6)]
"""Concentration of a Dirichlet distribution; beyond this range it equals its limit."""


def iid(
    dataset: Dataset,
    *,
    seed: int,
    clients: Count,
    train_samples: Count | None,
    test_samples: Count | None,
    draw: Draw,
) -> Population:
    """Return clients that all draw from the same distribution: one group."""
    return _shuffled(dataset, seed, clients, train_samples, test_samples, draw, 1, None)


def own(dataset: Dataset, *, seed: int, clients: Count) -> Population:
    """Return clients that each have all samples of their own data root.

    There are no planted groups; all are -1. Raises ValueError if other nodes could find another
    form in their own rows.
    """
    if dataset.inferred and clients > 1:
        raise ValueError(
            f"{', '.join(dataset.inferred)} must be the same on all nodes of population=own, but "
            f"would be found in the rows of each; list classes and categories, and scale numbers "
            "before (data.standardise=false)"
        )
    train, test = np.arange(len(dataset.train_labels)), np.arange(len(dataset.test_labels))
    return Population(dataset, [train] * clients, [test] * clients, np.full(clients, -1))


def label_swap(
    dataset: Dataset,
    *,
    seed: int,
    clients: Count,
    groups: Count,
    train_samples: Count | None,
    test_samples: Count | None,
    draw: Draw,
) -> Population:
    """Return groups that disagree on two labels: group g swaps 2g and 2g + 1.

    Espinoza Castellon et al., IJCNN 2022, section 4.1 (concept shift on labels).
    """
    dataset.check_classes("population=label_swap", least=2)
    if 2 * groups > dataset.classes:
        raise ValueError(
            f"population.groups must be at most half of the {dataset.classes} classes, got "
            f"{groups}: each group swaps two different labels; lower it, or give another "
            "population, such as iid"
        )
    return _shuffled(dataset, seed, clients, train_samples, test_samples, draw, groups, swap)


def rotation(
    dataset: Dataset,
    *,
    seed: int,
    clients: Count,
    groups: Count,
    train_samples: Count | None,
    test_samples: Count | None,
    draw: Draw,
) -> Population:
    """Return groups with rotated images: group g by g * 360 / groups degrees.

    Multiples of 90 degrees are exact; other angles interpolate and fill the corners with the
    background. Espinoza Castellon et al., IJCNN 2022, section 4.1 (concept shift on features).
    """

    dataset.check_images("population=rotation")

    def turn(images: Tensor, labels: Tensor, group: int) -> tuple[Tensor, Tensor]:
        return rotate(images, 360 * group / groups), labels

    return _shuffled(dataset, seed, clients, train_samples, test_samples, draw, groups, turn)


def noise(
    dataset: Dataset,
    *,
    seed: int,
    clients: Count,
    train_samples: Count | None,
    test_samples: Count | None,
    every: Annotated[int, Field(ge=2, le=10_000_000)],
    deviation: Annotated[float, Field(gt=0, le=1000)],
    draw: Draw,
) -> Population:
    """Return clients of which the last of each `every` has images with Gaussian noise: group 1.

    `deviation` is that of the noise in the unit of the pixels. The others have clean images: group
    0. Unlike rotations, such groups differ in how difficult their images are. Licciardi et al.,
    ICML 2025, separate clients with noisy images from others.
    """

    dataset.check_images("population=noise")

    def add(images: Tensor, labels: Tensor, group: int) -> tuple[Tensor, Tensor]:
        return with_noise(images, deviation, seed) if group else images, labels

    found = _shuffled(dataset, seed, clients, train_samples, test_samples, draw, 1, add)
    return replace(found, groups=(np.arange(clients) % every == every - 1).astype(int))


def dirichlet(
    dataset: Dataset,
    *,
    seed: int,
    clients: Count,
    alpha: Concentration,
    groups: Count | None,
    train_samples: Count | None,
    test_samples: Count | None,
) -> Population:
    """Return label skew: each group draws one class distribution from Dirichlet(alpha).

    `groups` None gives every client its own distribution. A client's test data follow the same
    distribution as its training data. Hsu et al., 2019, arXiv:1909.06335.
    """
    dataset.check_classes("a Dirichlet distribution of labels")
    for labels, samples in (
        (dataset.train_labels, train_samples),
        (dataset.test_labels, test_samples),
    ):
        partition.samples_each(len(labels), clients, samples)  # before any is drawn
    count = min(groups or clients, clients)
    chances = generator(seed, purpose="class distributions")
    distributions = chances.dirichlet(np.full(dataset.classes, alpha), count)
    member = np.arange(clients) % count
    parts = [
        partition.by_distribution(
            labels, distributions[member], generator(seed, purpose=purpose), samples=samples
        )
        for labels, samples, purpose in (
            (dataset.train_labels, train_samples, "train split"),
            (dataset.test_labels, test_samples, "test split"),
        )
    ]
    return Population(dataset, parts[0], parts[1], member, seed=seed)


def majority_class(
    dataset: Dataset,
    *,
    seed: int,
    clients: Count,
    share: Participation,
    superclasses: list[list[NonNegativeInt]] | None,
    train_samples: Count | None,
    test_samples: Count | None,
) -> Population:
    """Return clients with `share` of their samples from one class: client k from k mod classes.

    The rest is spread evenly over the other classes, in both training and test data.
    `superclasses` are the planted groups as lists of classes; by default each class is a group.
    Bettinelli et al., IEEE Big Data 2024, section IV (where `share` is m_k).
    """
    dataset.check_classes("population=majority_class", least=2)
    own = np.arange(clients) % dataset.classes
    member = {c: g for g, classes in enumerate(superclasses or []) for c in classes}
    if superclasses is not None and sorted(member) != list(range(dataset.classes)):
        raise ValueError(
            f"population.superclasses must name each of the {dataset.classes} classes, got "
            f"{superclasses}; give lists that contain 0..{dataset.classes - 1}"
        )

    def parts(labels: np.ndarray, samples: int | None, purpose: str) -> list[np.ndarray]:
        each = partition.samples_each(len(labels), clients, samples)
        available = np.bincount(labels, minlength=dataset.classes)
        counts = _majority(own, dataset.classes, share, each)
        while samples is None and (counts.sum(axis=0) > available).any():
            each -= 1
            counts = _majority(own, dataset.classes, share, each)
        return partition.by_counts(labels, counts, generator(seed, purpose=purpose))

    train = parts(dataset.train_labels, train_samples, "train split")
    test = parts(dataset.test_labels, test_samples, "test split")
    groups = np.array([member.get(c, c) for c in own.tolist()])
    return Population(dataset, train, test, groups, seed=seed)


def _majority(own: Labels, classes: int, share: float, each: int) -> np.ndarray:
    """Return the samples of each client and class (n, c), with `share` from its own class."""
    most = round(share * each)
    base, left = divmod(each - most, classes - 1)
    # starts at the client's own class; the next classes get the remainder
    row = np.array([most] + [base + 1] * left + [base] * (classes - 1 - left))
    return np.stack([np.roll(row, mine) for mine in own.tolist()])


def quantity_skew(
    dataset: Dataset,
    *,
    seed: int,
    clients: Count,
    alpha: Concentration,
    train_samples: Count | None,
    test_samples: Count | None,
) -> Population:
    """Return one group of clients with unequal amounts of training data.

    Shares are drawn from Dirichlet(alpha) over the clients; each has at least one sample.
    `train_samples` is the mean per client. Li et al., ICDE 2022, section IV-C.
    """
    labels = dataset.train_labels
    total = clients * partition.samples_each(len(labels), clients, train_samples)
    shares = generator(seed, purpose="client sizes").dirichlet(np.full(clients, alpha))
    sizes = 1 + np.floor(shares * (total - clients)).astype(int)
    train = partition.by_size(labels, sizes.tolist(), generator(seed, purpose="train split"))
    draw = generator(seed, purpose="test split")
    test = partition.iid(dataset.test_labels, clients, draw, samples=test_samples)
    return Population(dataset, train, test, np.zeros(clients, int))


def _shuffled(
    dataset: Dataset,
    seed: int,
    clients: int,
    train_samples: int | None,
    test_samples: int | None,
    draw: Draw,
    groups: int,
    transform: Transform | None,
) -> Population:
    def parts(labels: np.ndarray, samples: int | None, purpose: str) -> Sequence[np.ndarray]:
        if draw == "disjoint":
            shuffled = generator(seed, purpose=purpose)
            return partition.iid(labels, clients, shuffled, samples=samples)
        return partition.WithReplacement(len(labels), clients, samples, seed=seed, purpose=purpose)

    train = parts(dataset.train_labels, train_samples, "train split")
    test = parts(dataset.test_labels, test_samples, "test split")
    return Population(dataset, train, test, np.arange(clients) % groups, transform)
