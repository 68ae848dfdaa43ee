"""Communities of clients from few noisy numbers of each: (n, q) in, labels (n,) out."""

from math import sqrt

import numpy as np

from fl_app.graph.communities import canonical
from fl_app.graph.contrast import contrast, cosines
from fl_app.graph.gap import Positions
from fl_app.graph.significant import Evidence, Partition, significant
from fl_app.graph.split_strength import FEWEST
from fl_app.types import Labels, Matrix, Means, Sketches

MARGIN = 1.0
"""Above the mean of the largest singular value of noise; less than 2 % of its draws exceed it."""
TOLD_APART = 2.0
"""Half the distance of two communities in standard deviations of the noise, which alone would put
1 - Phi(2) = 2.3 % of their clients on the wrong side."""


def above_noise(sketches: Sketches, *, deviation: float) -> Matrix:
    """Return the inner products (n, n) of centred sketches (n, q), without what may be noise.

    Only those singular values s of the centred sketches remain that Gaussian noise of this standard
    deviation on every entry would hardly have: `s > deviation (sqrt(n - 1) + sqrt(q) + MARGIN)`.
    The first two terms bound the mean of the largest singular value of such noise, and
    `exp(-t^2 / 2)` the probability that it is larger by t: Davidson and Szarek, 2001, "Local
    operator theory, random matrices and Banach spaces". Zero if no singular value remains.
    """
    rows = sketches.astype(np.float64)
    left, values, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    n, q = sketches.shape
    edge = deviation * (np.sqrt(max(n - 1, 0)) + np.sqrt(q) + MARGIN)
    kept = np.where(values > edge, values, 0.0)
    found: Matrix = (left * kept**2) @ left.T
    return found


def sketch_similarity(sketches: Sketches, *, deviation: float) -> Matrix:
    """Return the positive part of the cosines (n, n) of `above_noise`, with diagonal 0."""
    return contrast(cosines(above_noise(sketches, deviation=deviation)))


def sketch_communities(sketches: Sketches, *, deviation: float, partition: Partition) -> Labels:
    """Return the communities (n,) of clients with sketches (n, q) with this noise.

    `partition` finds them in the directions above the noise (`above_noise`), of which only the
    significant splits are made (`significant`): the noise that is known is not all, since clients
    of one group also differ. Communities that the noise would hide are not split (`told_apart`): a
    direction that is above the noise by chance puts every client clearly on one of its sides. All
    clients are one community if no direction is above the noise.
    """
    products = above_noise(sketches, deviation=deviation)
    if len(sketches) < FEWEST or np.trace(products) <= np.finfo(np.float32).eps * len(sketches):
        return np.zeros(len(sketches), int)
    return significant(
        cosines(products), partition, evidence=told_apart(sketches, deviation=deviation)
    )


def told_apart(sketches: Sketches, *, deviation: float) -> Evidence:
    """Return the evidence that noise of this standard deviation hardly hides two communities.

    With the squared distance D of their means, estimated by `positions`, a and b clients, and q
    numbers of a sketch, noise moves a client between them by the standard deviation
    `deviation sqrt(D + deviation^2 q (1/a + 1/b))`. D / 2 must be TOLD_APART times that. One
    client alone is not judged.
    """
    rows = sketches.astype(np.float64)
    positions = Positions(rows @ rows.T, np.ones(len(rows)))

    def is_told_apart(labels: Labels, one: int, other: int) -> bool:
        first, second = labels == one, labels == other
        counts = np.array([first.sum(), second.sum()])
        if counts.min() < 2:
            return True
        found = positions.between(labels, one, other)
        apart = max(float(found[first].mean() - found[second].mean()), 0.0)
        moved = apart + deviation**2 * rows.shape[1] * float((1 / counts).sum())
        return apart / 2 >= TOLD_APART * deviation * sqrt(moved)

    return is_told_apart


def without_small(sketches: Sketches, labels: Labels, *, smallest: int) -> Labels:
    """Return communities (n,) of `smallest` or more clients each, numbered as by `canonical`.

    While the smallest community is smaller than that, it is joined with the one whose mean sketch
    is nearest to its own; of equal ones with the first. One community may have fewer.
    """
    labels = canonical(labels)
    while labels.max(initial=0) > 0:
        small = int(labels.max())
        if int((labels == small).sum()) >= smallest:
            break
        means = mean_sketches(sketches, labels)
        labels = canonical(
            np.where(labels == small, nearest_mean(means[:small], means[small]), labels)
        )
    return labels


def mean_sketches(sketches: Sketches, labels: Labels) -> Means:
    """Return the mean sketches (k, q) of k communities (n,)."""
    inside = np.eye(int(labels.max()) + 1)[labels]
    found: Means = (inside / inside.sum(axis=0)).T @ sketches
    return found


def nearest_mean(means: Means, sketch: np.ndarray) -> int:
    """Return the row of `means` (k, q) that is nearest to a sketch (q,), the first of equals."""
    return int(np.linalg.norm(means - sketch, axis=1).argmin())
