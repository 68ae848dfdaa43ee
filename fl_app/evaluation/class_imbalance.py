"""Whether communities put clients together whose classes are equally imbalanced.

Licciardi, Leo, Fani, Caputo and Ciccone, ICML 2025, "Interaction-aware Gaussian weighting for
clustered federated learning": the Wasserstein adjusted score.
"""

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist

from fl_app.graph.validity import silhouette
from fl_app.types import Labels, Matrix

ClassCounts = Float[np.ndarray, "n c"]
"""The number of samples of each of c classes, for n clients; or their shares."""
MOST = 2000
"""Up to this number of clients the score takes little time, so that each round can have it."""


def imbalance_distance(counts: ClassCounts) -> Matrix:
    """Return `sqrt(1/c sum_i (x_(i) - y_(i))^2)` (n, n) in [0, 1], for class counts (n, c).

    x_(i) are a client's shares of the classes in ascending order. It is the 2-Wasserstein distance
    of the shares of two clients, each taken as c equally likely values. Which classes are
    frequent has no effect. Raises ValueError for negative counts, and for a client without samples.
    """
    totals = counts.sum(axis=1, keepdims=True)
    if (counts < 0).any() or (totals <= 0).any():
        raise ValueError(
            f"counts must be at least 0 with a positive sum for each client, got {counts.min()} "
            f"and a sum of {totals.min()}; remove clients without samples"
        )
    shares = np.sort(counts / totals, axis=1)
    found: Matrix = cdist(shares, shares) / np.sqrt(counts.shape[1])
    return found


def wasserstein_silhouette(counts: ClassCounts, labels: Labels) -> float | None:
    """Return the mean silhouette in [-1, 1] of labels (n,) on the distances of class counts (n, c).

    None where `silhouette` has none; 0 if all are equally imbalanced.
    """
    return silhouette(imbalance_distance(counts), labels)
