"""The part of inner products (n, n) of clients' updates that shows communities.

`1 + cos` of two groups is 1.06 beside 1.015 if their updates are noisy, which modularity cannot
see. The positive part of the cosines of centred vectors shows them, but has communities even if
there are none: see `significant`.
"""

import numpy as np

from fl_app.graph.bipartition import bipartition
from fl_app.graph.communities import canonical
from fl_app.types import Labels, Matrix, Weights

BLOCK = 64
"""Rows computed at a time, so that they stay in the cache."""


def cosines(products: Matrix) -> Matrix:
    """Return the cosines (n, n) of vectors with these inner products; of a zero vector, 0."""
    scale = _inverse(np.diag(products))
    found: Matrix = products * scale[:, None]
    found *= scale
    return found


def centred(products: Matrix) -> Matrix:
    """Return the inner products (n, n) of the vectors less their mean."""
    means = products.mean(axis=0)
    found: Matrix = products - means[:, None]
    found -= means
    found += means.mean()
    return found


def centred_squares(products: Matrix) -> Weights:
    """Return the squared lengths (n,) of the vectors less their mean."""
    means = products.mean(axis=0)
    found: Weights = np.diag(products) - 2 * means + means.mean()
    return found


def centred_cosines(products: Matrix, *, inplace: bool = False) -> Matrix:
    """Return `cosines(centred(products))` (n, n), exactly symmetric if the products are."""
    if not len(products):
        return products
    means = products.mean(axis=0)
    less = means - means.mean() / 2
    scale = _inverse(centred_squares(products))
    found: Matrix = products if inplace else np.empty(products.shape)
    for start in range(0, len(products), BLOCK):
        some = slice(start, start + BLOCK)
        np.subtract(products[some], less[some, None] + less, out=found[some])
        found[some] *= scale[some, None] * scale
    return found


def contrast(cosine: Matrix) -> Matrix:
    """Return `max(C, 0)` of the cosines C of centred unit vectors (n, n), with diagonal 0.

    Vectors have unit length before they are centred; else a client with longer updates would
    differ from the others in the direction of their common drift. A client with more noise would,
    too, as its unit vector has less of the drift: `without_drift` removes this before.
    """
    return exceeding(centred_cosines(cosine), 0.0, inplace=True)


def exceeding(cosine: Matrix, above: float, *, inplace: bool = False) -> Matrix:
    """Return `max(C - above, 0)` of cosines C (n, n), with diagonal 0."""
    found: Matrix = cosine if inplace else np.empty(cosine.shape)
    np.subtract(cosine, above, out=found)
    np.maximum(found, 0.0, out=found)
    np.fill_diagonal(found, 0.0)
    return found


def _inverse(squares: Weights) -> Weights:
    """Return one by the roots (n,) of squares (n,); 0 for a square of 0 or below."""
    lengths = np.sqrt(np.clip(squares, 0.0, None))
    found: Weights = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
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
