"""Communities of a similarity graph: (n, n) in, labels (n,) out."""

from typing import Any, Literal

import community as python_louvain
import networkx as nx
import numpy as np
from scipy import sparse

from fl_app.types import Labels, Matrix


def louvain(
    similarity: Matrix,
    *,
    resolution: float = 1.0,
    seed: int = 0,
    backend: Literal["python-louvain", "fast"] = "python-louvain",
) -> Labels:
    """Return the community of each client, 0 for the largest, ties by the smallest member.

    `similarity` (n, n) is symmetric and non-negative; its diagonal does not count.
    `resolution` is the gamma of modularity: higher gives more and smaller communities
    (python-louvain 0.16 documents the inverse; its moves follow gamma, only its test for
    another pass does not, so away from 1.0 it may stop a pass early). Without any edge
    every client stands alone. Raises ValueError for a matrix that is no such graph.
    Blondel et al., J. Stat. Mech. 2008; gamma: Reichardt and Bornholdt, Phys. Rev. E 2006.
    """
    _check(similarity, resolution)
    weights = np.array(similarity, np.float64)
    np.fill_diagonal(weights, 0.0)
    if not weights.any():
        return np.arange(len(weights))
    find = _fast if backend == "fast" else _python_louvain
    return canonical(find(weights, resolution, seed))


def canonical(labels: Labels) -> Labels:
    """Renumber labels (n,): 0 is the largest community, ties by the smallest member."""
    found, first, sizes = np.unique(labels, return_index=True, return_counts=True)
    order = np.lexsort((first, -sizes))
    names = {int(found[old]): new for new, old in enumerate(order)}
    return np.array([names[int(label)] for label in labels], int)


def _python_louvain(weights: np.ndarray, resolution: float, seed: int) -> Labels:
    rows, columns = np.nonzero(np.triu(weights))
    graph: Any = nx.Graph()
    graph.add_nodes_from(range(len(weights)))
    edges = zip(rows.tolist(), columns.tolist(), weights[rows, columns].tolist(), strict=True)
    graph.add_weighted_edges_from(edges)
    partition = python_louvain.best_partition(
        graph, resolution=resolution, random_state=seed % 2**32
    )
    return np.array([partition[node] for node in range(len(weights))], int)


def _fast(weights: np.ndarray, resolution: float, seed: int) -> Labels:
    from sknetwork.clustering import Louvain

    method = Louvain(resolution, modularity="newman", shuffle_nodes=True, random_state=seed % 2**32)
    return np.asarray(method.fit_predict(sparse.csr_matrix(weights)), int)


def _check(similarity: Matrix, resolution: float) -> None:
    if resolution <= 0:
        raise ValueError(
            f"resolution must be positive, got {resolution}; use 1.0 for standard modularity"
        )
    if similarity.ndim != 2 or similarity.shape[0] != similarity.shape[1] or not len(similarity):
        raise ValueError(f"similarity must be square and not empty, got {similarity.shape}")
    if not np.allclose(similarity, similarity.T):
        raise ValueError("similarity must be symmetric; average both directions")
    if not (similarity >= 0).all():
        raise ValueError(
            f"similarity must be non-negative, got {similarity.min()}; shift it, as 1 + cos does"
        )
