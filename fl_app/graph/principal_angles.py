"""Angles between the subspaces that clients' samples span, as a measure of a client graph."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float

from fl_app.graph.vectors import ClientVectors
from fl_app.types import Labels, Vector

Angle = Literal["smallest", "mean"]
Bases = Float[np.ndarray, "parts p inputs"]
NOTHING = 1e-3
"""A direction that is shorter than this share of the longest one is no direction of a subspace."""
APART = 90.0
"""Degrees between a subspace and nothing."""


def principal_angles(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the angles (p,) in degrees between the spans of orthonormal rows (p, d), ascending.

    `cos(theta_l) = sigma_l(U V^T)`, in [0, 90]; a row of zeros has 90 degrees to everything.
    Bjorck and Golub, Mathematics of Computation 1973, theorem 1.
    """
    cosines = np.linalg.svd(one @ other.T, compute_uv=False)
    angles: np.ndarray = np.degrees(np.arccos(np.clip(cosines, 0.0, 1.0)))
    return angles


def orthonormal(bases: Bases) -> Bases:
    """Return orthonormal rows of the same spans, for each part; rows of zeros for what is missing.

    Whatever a client sends becomes a basis, so that no length that it claims has an effect.
    """
    _, lengths, directions = np.linalg.svd(bases.astype(np.float64), full_matrices=False)
    kept = (lengths > NOTHING * lengths[:, :1]) & (lengths > 0)
    found = np.zeros(bases.shape)
    found[:, : directions.shape[1]] = directions * kept[:, :, None]
    return found


@dataclass(frozen=True)
class PrincipalAngles:
    """The angle in degrees between clients' subspaces, as `orthonormal` gives them.

    A vector holds `parts` bases of `count` vectors, (parts * count * inputs,): one of all samples,
    or one per class. `angle` is the smallest principal angle or the mean of all. With several
    parts, the distance is the mean over those that at least one of two clients has; it is 90 for
    one that the other lacks.
    """

    parts: int
    count: int
    angle: Angle
    of_distance: ClassVar[bool] = True

    def flat(self, told: np.ndarray) -> Vector:
        """Return a client's vector from the vector that it sent."""
        bases = orthonormal(told.reshape(self.parts, self.count, -1))
        vector: Vector = bases.astype(np.float32).flatten()
        return vector

    def rows(self, vectors: ClientVectors, rows: Labels) -> np.ndarray:
        """Return distances in [0, 90]."""
        some = vectors.read(rows).reshape(len(rows), self.parts, self.count, -1)
        those = vectors.read(np.arange(len(vectors))).reshape(len(vectors), *some.shape[1:])
        total, counted = np.zeros((2, len(rows), len(vectors)))
        for part in range(self.parts):
            ours, theirs = some[:, part], those[:, part]
            has = [np.asarray(each.any(axis=(1, 2))) for each in (ours, theirs)]
            either = np.logical_or.outer(*has)
            total += np.where(either, self._angles(ours, theirs), 0.0)
            counted += either
        found: np.ndarray = np.divide(
            total, counted, out=np.full(total.shape, APART), where=counted > 0
        )
        return found

    def _angles(self, some: np.ndarray, those: np.ndarray) -> np.ndarray:
        """Return the angle (m, n) between each of m and n bases (p, inputs)."""
        flat = [torch.from_numpy(each).double().flatten(0, 1) for each in (some, those)]
        products = (flat[0] @ flat[1].T).numpy().reshape(len(some), self.count, len(those), -1)
        cosines = np.linalg.svd(products.transpose(0, 2, 1, 3), compute_uv=False)
        angles = np.degrees(np.arccos(np.clip(cosines, 0.0, 1.0)))
        chosen: np.ndarray = angles[..., 0] if self.angle == "smallest" else angles.mean(axis=2)
        return chosen
