"""Moments of a network's latent features of a client's samples, as reports."""

from collections.abc import Mapping
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from fl_app.client.training import SCORED, Precision, autocast
from fl_app.rng import generator
from fl_app.types import Vector, Vectors

LATENTS, CLASS_LATENTS = "latent_moments", "class_latent_moments"
"""Names of the reports: moments of all samples, and of the samples of each class."""
MOMENTS = 2
"""A mean and a standard deviation of each direction."""
FEWEST = 2
"""Samples of a class without which it has no moments."""
MISSING = -1.0
"""The moments of such a class; no standard deviation is negative."""


def latent_layer(module: nn.Module) -> nn.Linear | None:
    """Return the dense layer whose inputs are the latent features, None if there is none.

    The first one: in a CNN its inputs are the flattened features of the convolutions.
    """
    return next((each for each in module.modules() if isinstance(each, nn.Linear)), None)


@torch.no_grad()
def latent_moments(
    module: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    asked: Mapping[str, int | None],
    *,
    classes: int,
    precision: Precision,
) -> dict[str, Vector]:
    """Return the reports among `asked` of `inputs` (s, ...) and `labels` (s,), each one vector.

    Latent features are projected to p directions, as many as the length of a report gives. LATENTS
    has the means (p,) and the standard deviations (p,) of all samples; CLASS_LATENTS has the means
    of each class (classes * p,), and then the standard deviations. Raises ValueError for a network
    without a dense layer.
    """
    parts = {LATENTS: 1, CLASS_LATENTS: classes}
    wanted = {
        name: int(asked[name] or 0) // (MOMENTS * count)
        for name, count in parts.items()
        if name in asked
    }
    if not wanted:
        return {}
    found = _latents(module, inputs, precision)
    told = dict[str, Vector]()
    for name, directions in wanted.items():
        seen = found @ torch.from_numpy(projection(found.shape[1], directions)).T
        rows = [seen] if name == LATENTS else [seen[labels.cpu() == k] for k in range(classes)]
        told[name] = np.stack([_moments(each) for each in rows]).transpose(1, 0, 2).flatten()
    return told


@cache
def projection(features: int, directions: int) -> Vectors:
    """Return orthonormal rows (directions, features), the same for every client and every run.

    Rows beyond the number of features are 0.
    """
    draw = generator(0, purpose="directions of latent features")
    most = min(features, directions)
    rows: Vectors = np.zeros((directions, features), np.float32)
    rows[:most] = np.linalg.qr(draw.normal(size=(features, most)))[0].T
    return rows


def _latents(module: nn.Module, inputs: Tensor, precision: Precision) -> Tensor:
    """Return the latent features (s, features) on the CPU; of a sequence, their mean."""
    layer = latent_layer(module)
    if layer is None:
        raise ValueError(
            "latent features need a network with a dense layer (torch.nn.Linear), got none; use "
            "another network or another strategy"
        )
    kept: list[Tensor] = []
    width = layer.in_features

    def keep(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        seen = given[0].detach().float()
        kept.append(seen.reshape(len(seen), -1, width).mean(1).cpu())

    module.eval()
    handle = layer.register_forward_pre_hook(keep)
    try:
        for part in torch.split(inputs, SCORED):
            with autocast(part.device, precision):
                module(part)
    finally:
        handle.remove()
    return torch.cat(kept)


def _moments(seen: Tensor) -> Vectors:
    """Return means and standard deviations (MOMENTS, p) of projected features (s, p)."""
    if len(seen) < FEWEST:
        return np.full((MOMENTS, seen.shape[1]), MISSING, np.float32)
    moments: Vectors = torch.stack([seen.mean(0), seen.std(0, correction=0)]).numpy()
    return moments
