"""The part of inner products (n, n) of clients' updates that shows communities.

`1 + cos` of two groups is 1.06 beside 1.015 if their updates are noisy, which modularity cannot
see. The positive part of the cosines of centred vectors shows them, but has communities even if
there are none: see `significant`.
"""

import numpy as np

from fl_app.graph.bipartition import bipartition
from fl_app.graph.communities import canonical
from fl_app.types import Labels, Matrix


def cosines(products: Matrix) -> Matrix:
    """Return the cosines (n, n) of vectors with these inner products; of a zero vector, 0."""
    lengths = np.sqrt(np.clip(np.diag(products), 0.0, None))
    scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    found: Matrix = products * scale[:, None] * scale
    return found


def centred(products: Matrix) -> Matrix:
    """Return the inner products (n, n) of the vectors less their mean."""
    means = products.mean(axis=0)
    found: Matrix = products - means[:, None] - means + means.mean()
    return found


def contrast(cosine: Matrix, *, above: float = 0.0) -> Matrix:
    """Return `max(C - above, 0)` of the cosines C of centred unit vectors (n, n), with diagonal 0.

    Vectors have unit length before they are centred; else a client with longer updates would
    differ from the others in the direction of their common drift.
    """
    positive = np.clip(cosines(centred(cosine)) - above, 0.0, None)
    np.fill_diagonal(positive, 0.0)
    found: Matrix = (positive + positive.T) / 2
    return found


def halves(cosine: Matrix, labels: Labels) -> Labels:
    """Return the two parts (n,) of clients in k communities (n,) that are least alike.

    They are the bipartition of the communities by the mean cosine of their centred vectors, of
    clients with these cosines (n, n). One community is one part. Numbered as by `canonical`.
    """
    k = int(labels.max()) + 1
    if k < 2:
        return np.zeros(len(labels), int)
    inside = np.eye(k)[labels]
    shares = inside / inside.sum(axis=0)
    between = shares.T @ cosines(centred(cosine)) @ shares
    return canonical(bipartition(between)[0][labels])
