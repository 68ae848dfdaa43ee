"""Angles between the subspaces that clients' samples span, as a measure of a client graph."""

from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float

from fl_app.graph.vectors import ClientVectors
from fl_app.types import Labels, Vector

Angle = Literal["smallest", "mean"]
Bases = Float[np.ndarray, "parts p inputs"]
Small = Float[np.ndarray, "p p k"]
FEW = 4
"""Rows of matrices for which rotations of all at once are faster than LAPACK."""
SWEEPS = 12
"""Jacobi's rotations converge quadratically, in about four sweeps."""
ROUNDING = 1e-15
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


def singular_values(matrices: Small) -> np.ndarray:
    """Return the singular values (p, k), in any order, of k matrices (p, p).

    Up to FEW rows, they are the roots of the eigenvalues of `M M^T`, by Jacobi's rotations of all
    matrices at once, which LAPACK would take one by one. Those near 1 are exact up to rounding.
    """
    p = len(matrices)
    if p > FEW:
        found: np.ndarray = np.linalg.svd(matrices.transpose(2, 0, 1), compute_uv=False).T
        return found
    gram = np.einsum("ilk,jlk->ijk", matrices, matrices)
    pairs = list(combinations(range(p), 2))
    for _ in range(SWEEPS):
        for pair in pairs:
            _rotate(gram, *pair)
        if all(np.abs(gram[pair]).max() < ROUNDING for pair in pairs):
            break
    squares = np.clip(np.einsum("iik->ik", gram), 0.0, None)
    return np.asarray(np.sqrt(squares))


def _rotate(gram: Small, one: int, other: int) -> None:
    """Rotate k symmetric matrices (p, p) so that the entry of two rows is 0.

    Golub and Van Loan, Matrix Computations, 4th edition, algorithm 8.5.1.
    """
    entry, apart = gram[one, other].copy(), gram[other, other] - gram[one, one]
    both = apart + np.copysign(np.sqrt(apart**2 + 4 * entry**2), apart)
    tangent = np.divide(2 * entry, both, out=np.zeros_like(both), where=both != 0)
    cosine = 1 / np.sqrt(1 + tangent**2)
    sine = tangent * cosine
    gram[one, one] -= tangent * entry
    gram[other, other] += tangent * entry
    gram[one, other] = gram[other, one] = 0.0
    for row in set(range(len(gram))) - {one, other}:
        first, second = gram[row, one].copy(), gram[row, other].copy()
        gram[row, one] = gram[one, row] = cosine * first - sine * second
        gram[row, other] = gram[other, row] = sine * first + cosine * second


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
        m, n = len(some), len(those)
        rows = torch.from_numpy(some).double().flatten(0, 1)
        columns = torch.from_numpy(those).double().transpose(0, 1).flatten(0, 1)
        found = np.empty((m, n))
        products = (rows @ columns.T).numpy().reshape(m, self.count, self.count, n)
        for row, product in enumerate(products):
            cosines = singular_values(product)
            if self.angle == "smallest":
                cosines = cosines.max(axis=0, keepdims=True)
            found[row] = np.degrees(np.arccos(np.clip(cosines, 0.0, 1.0))).mean(axis=0)
        return found
