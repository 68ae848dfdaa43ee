"""The subspaces that a client's samples span, as reports: a few principal vectors of them."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fl_app.types import Vector, Vectors

SUBSPACE, CLASS_SUBSPACES = "subspace", "class_subspaces"
"""Names of the reports: principal vectors of all samples, and of the samples of each class."""
NOTHING = 1e-6
"""Singular values up to this share of the largest one are rounding."""


def subspaces(
    images: Tensor, labels: Tensor, asked: Mapping[str, int | None], *, classes: int
) -> dict[str, Vector]:
    """Return the reports among `asked` of `images` (s, ...) and `labels` (s,), each one vector.

    Its length tells how many principal vectors are wanted.
    """
    samples, told = images.flatten(1), dict[str, Vector]()
    if (length := asked.get(SUBSPACE)) is not None:
        told[SUBSPACE] = principal_vectors(samples, length // samples.shape[1]).flatten()
    if (length := asked.get(CLASS_SUBSPACES)) is not None:
        count = length // (classes * samples.shape[1])
        each = [principal_vectors(samples[labels == k], count) for k in range(classes)]
        told[CLASS_SUBSPACES] = np.concatenate(each).flatten()
    return told


@torch.no_grad()
def principal_vectors(samples: Tensor, count: int) -> Vectors:
    """Return the first `count` right singular vectors of `samples` (s, d) as rows (count, d).

    They are the left singular vectors of the paper, whose samples are columns. The rows beyond the
    rank of the samples are 0. Vahidian et al., AAAI 2023.
    """
    rows, size = samples.shape
    found: Vectors = np.zeros((count, size), np.float32)
    if not rows:
        return found
    wide = samples.cpu().double()
    # of the smaller of the two products, whose eigenvectors take the least time
    squares, vectors = torch.linalg.eigh(wide @ wide.T if rows < size else wide.T @ wide)
    lengths = squares.clamp(min=0).sqrt().flip(0)[:count]
    kept = int((lengths > NOTHING * lengths[0]).sum())
    chosen = vectors.flip(1)[:, :kept]
    if rows < size:
        chosen = wide.T @ chosen / lengths[:kept]
    found[:kept] = chosen.T.float().numpy()
    return found
