"""Attacks on data before training and on updates after it, as functions on arrays.

An `Attack` of fl_app.client.attacks applies them.
"""

from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from fl_app.types import Vector, Vectors


def minus_grad(update: Vector) -> Vector:
    """Return the negative (d,) of the true update (d,)."""
    return -update


def gaussian(update: Vector, *, sigma: float, generator: np.random.Generator) -> Vector:
    """Return noise N(0, sigma^2) for each entry (d,) instead of the update (d,).

    Sattler et al., ICASSP 2020, section 4 (Byzantine clients).
    """
    noise: Vector = generator.standard_normal(update.shape, np.float32) * np.float32(sigma)
    return noise


def scaled(update: Vector, *, factor: float) -> Vector:
    """Return `factor` times the update (d,)."""
    grown: Vector = update * np.float32(factor)
    return grown


def zero(update: Vector) -> Vector:
    """Return an update of zeros (d,): a client that contributes nothing."""
    return np.zeros_like(update)


def random(update: Vector, *, generator: np.random.Generator) -> Vector:
    """Return a random direction (d,) with the update's norm, so that the norm reveals nothing."""
    noise = generator.standard_normal(update.shape, np.float32)
    return scaled(noise, factor=float(np.linalg.norm(update) / np.linalg.norm(noise)))


def alie(updates: Vectors, *, clients: int, malicious: int, z: float | None) -> Vector:
    """Return `mean - z * deviation` (d,) of the colluders' honest updates (m, d).

    "A little is enough": the result is close enough to the mean to look honest. `z` None means
    the largest value with which m = `malicious` clients and some honest clients farther away are a
    majority of n = `clients`: the normal quantile of (n - m - s) / (n - m) with
    s = floor(n / 2 + 1) - m, but at least 0. Baruch et al., NeurIPS 2019, eq. 3 and algorithm 3.
    """
    if z is None:
        helpers = clients // 2 + 1 - malicious
        share = (clients - malicious - helpers) / (clients - malicious)
        z = NormalDist().inv_cdf(min(max(share, 0.5), 1 - 1e-6))
    crafted: Vector = updates.mean(axis=0) - np.float32(z) * updates.std(axis=0)
    return crafted


def ipm(updates: Vectors, *, epsilon: float) -> Vector:
    """Return `-epsilon` times the mean (d,) of the colluders' honest updates (m, d).

    The inner product of the aggregate with the true mean becomes negative. A small epsilon is hard
    to distinguish from honest updates; a value above 1 dominates them. Xie et al., UAI 2020,
    section 4.
    """
    mean: Vector = updates.mean(axis=0)
    return scaled(mean, factor=-epsilon)


def full_knowledge(updates: Vectors, *, clients: int, malicious: int, factor: float) -> Vector:
    """Return the update (d,) that makes the cohort's plain mean `-factor` times the loyal mean.

    With the mean g of the loyal updates (m, d), each of the `malicious` among `clients` sends
    `-(factor * clients + clients - malicious) / malicious * g`. A client that knows all other
    updates determines the result of any linear rule: Blanchard et al., NeurIPS 2017, lemma 1. It
    is used as the full-knowledge attack of FLIC (Espinoza Castellon et al., IJCNN 2022, eq. 3). We
    could not check that text; its formula may differ.
    """
    honest = clients - malicious
    crafted: Vector = updates.mean(axis=0)
    return scaled(crafted, factor=-(factor * clients + honest) / malicious)


def label_flip(labels: Tensor, *, target: int) -> Tensor:
    """Return labels (s,) that are all `target`. Sattler et al., ICASSP 2020, section 4."""
    return torch.full_like(labels, target)


def pairwise_flip(labels: Tensor, *, source: int, target: int) -> Tensor:
    """Return labels (s,) in which `source` is replaced with `target`."""
    return torch.where(labels == source, target, labels)


def noisy(images: Tensor, *, low: float, high: float, generator: torch.Generator) -> Tensor:
    """Return images (s, C, H, W) with uniform noise in [low, high] added to every pixel.

    Sattler et al., ICASSP 2020, section 4, with [-10, 10].
    """
    noise = torch.rand(images.shape, generator=generator)
    return images + (low + (high - low) * noise).to(images.device)


def trigger(images: Tensor, *, size: int, value: float) -> Tensor:
    """Return images (s, C, H, W) with a square of `size` x `size` pixels of `value`.

    The backdoor's mark, in the lower right corner. Gu et al., 2017, arXiv:1708.06733, section 4.
    """
    marked = images.clone()
    marked[..., -size:, -size:] = value
    return marked


def backdoor(
    images: Tensor,
    labels: Tensor,
    *,
    target: int,
    share: float,
    size: int,
    value: float,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Return images (s, C, H, W) and labels (s,), a `share` marked and labelled `target`.

    It is drawn, at least one image, since the samples may be in the order of their classes. The
    rest is unchanged, so that the model keeps its accuracy on images without the mark.
    """
    count = max(1, round(share * len(labels)))
    drawn = torch.randperm(len(labels), generator=generator)[:count].to(labels.device)
    poisoned, called = images.clone(), labels.clone()
    poisoned[drawn] = trigger(images[drawn], size=size, value=value)
    called[drawn] = target
    return poisoned, called
