"""Attacks: what a malicious client does to its data before training, or to its update after.

Functions on arrays, used alone or through an `Attack` of fl_app.client.attacks.
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
    """Return noise N(0, sigma^2) of each entry (d,) instead of the update (d,).

    Sattler et al., ICASSP 2020, section 4 (Byzantine clients).
    """
    noise: Vector = generator.standard_normal(update.shape, np.float32) * np.float32(sigma)
    return noise


def scaled(update: Vector, *, factor: float) -> Vector:
    """Return `factor` times the update (d,)."""
    grown: Vector = update * np.float32(factor)
    return grown


def zero(update: Vector) -> Vector:
    """Return no update at all (d,): a client that only takes."""
    return np.zeros_like(update)


def random(update: Vector, *, generator: np.random.Generator) -> Vector:
    """Return a random direction (d,) of the update's own length: no norm gives it away."""
    noise = generator.standard_normal(update.shape, np.float32)
    return scaled(noise, factor=float(np.linalg.norm(update) / np.linalg.norm(noise)))


def alie(updates: Vectors, *, clients: int, malicious: int, z: float | None) -> Vector:
    """Return `mean - z * deviation` (d,) of the colluders' honest updates (m, d).

    A little is enough: near enough to the mean to pass for honest. `z` None takes the
    largest that still leaves a majority behind, for `malicious` of `clients` in the round:
    the normal quantile of (n - m - s) / (n - m), s = floor(n / 2 + 1) - m; 0 where the
    colluders need no such help. Baruch et al., NeurIPS 2019, eq. 3 and algorithm 3.
    """
    if z is None:
        helpers = clients // 2 + 1 - malicious
        share = (clients - malicious - helpers) / (clients - malicious)
        z = NormalDist().inv_cdf(min(max(share, 0.5), 1 - 1e-6))
    crafted: Vector = updates.mean(axis=0) - np.float32(z) * updates.std(axis=0)
    return crafted


def ipm(updates: Vectors, *, epsilon: float) -> Vector:
    """Return `-epsilon` times the mean (d,) of the colluders' honest updates (m, d).

    The inner product with the true mean turns negative: a small epsilon hides among honest
    updates, one above 1 overpowers them. Xie et al., UAI 2020, section 4.
    """
    mean: Vector = updates.mean(axis=0)
    return scaled(mean, factor=-epsilon)


def full_knowledge(updates: Vectors, *, clients: int, malicious: int, factor: float) -> Vector:
    """Return the update (d,) that turns the cohort's plain mean into `-factor` times the loyal.

    With g the mean of the loyal updates (m, d), of `clients` in the round `malicious` send
    `-(factor * clients + clients - malicious) / malicious * g`. Whoever knows the others can
    lead a linear rule anywhere: Blanchard et al., NeurIPS 2017, lemma 1. It stands for the
    full-knowledge attack of FLIC (Espinoza Castellon et al., IJCNN 2022, eq. 3), whose
    text we could not check: that formula may differ.
    """
    honest = clients - malicious
    crafted: Vector = updates.mean(axis=0)
    return scaled(crafted, factor=-(factor * clients + honest) / malicious)


def label_flip(labels: Tensor, *, target: int) -> Tensor:
    """Return labels (s,) that are all `target`. Sattler et al., ICASSP 2020, section 4."""
    return torch.full_like(labels, target)


def pairwise_flip(labels: Tensor, *, source: int, target: int) -> Tensor:
    """Return labels (s,) in which `source` has become `target`."""
    return torch.where(labels == source, target, labels)


def noisy(images: Tensor, *, low: float, high: float, generator: torch.Generator) -> Tensor:
    """Return images (s, C, H, W) with uniform noise in [low, high] added to every pixel.

    Sattler et al., ICASSP 2020, section 4, with [-10, 10].
    """
    noise = torch.rand(images.shape, generator=generator)
    return images + (low + (high - low) * noise).to(images.device)


def trigger(images: Tensor, *, size: int, value: float) -> Tensor:
    """Return images (s, C, H, W) with a square of `size` pixels of `value` in the far corner.

    The backdoor's mark. Gu et al., 2017, arXiv:1708.06733, section 4.
    """
    marked = images.clone()
    marked[..., -size:, -size:] = value
    return marked


def backdoor(
    images: Tensor, labels: Tensor, *, target: int, share: float, size: int, value: float
) -> tuple[Tensor, Tensor]:
    """Return images (s, C, H, W) and labels (s,), the first `share` marked and called `target`.

    The rest stays honest, so that the model keeps its accuracy where the mark is absent.
    """
    count = round(share * len(labels))
    poisoned, called = images.clone(), labels.clone()
    poisoned[:count] = trigger(images[:count], size=size, value=value)
    called[:count] = target
    return poisoned, called
