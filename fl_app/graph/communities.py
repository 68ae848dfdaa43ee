"""Communities of a similarity graph: (n, n) in, labels (n,) out."""

import ctypes
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from scipy import sparse

from fl_app.types import Backend, Labels, Matrix

Linkage = Literal["average", "complete", "single"]
Graph = TypeVar("Graph", Matrix, sparse.csr_matrix)
COPY = 1e-6
"""Clients nearer than this share of the median distance are equal up to float32 rounding."""
BLOCK = 64
"""Rows and columns read at a time, so that they stay in the cache."""
STRONGEST = 0.9
"""Damping of the second attempt of affinity propagation, after a lower one did not converge."""


@dataclass(frozen=True, kw_only=True)
class CommunityDetection:
    """Settings of community detection; see `louvain`, and `detection.ByModularity`."""

    backend: Backend
    resolution: float
    sparse_above: int
    neighbours: int
    seed: int

    @property
    def quick(self) -> Backend:
        """The backend for more than `sparse_above` clients."""
        return "leiden" if self.backend == "leiden" else "fast"


def louvain(
    similarity: Matrix,
    *,
    resolution: float,
    seed: int,
    backend: Backend,
) -> Labels:
    """Return the community of each client, 0 for the largest, ties by the smallest member.

    `similarity` (n, n) is symmetric and non-negative; its diagonal is ignored. `resolution` is
    the gamma of modularity: a higher value gives more and smaller communities. (python-louvain
    0.16 documents the inverse. Its moves use gamma, but its stopping test does not, so with gamma
    other than 1.0 it may stop one pass early.) Without any edge every client is a community by
    itself. `fast` is scikit-network's Louvain, `leiden` its Leiden. Raises ValueError for any
    other matrix.
    Blondel et al., J. Stat. Mech. 2008; Traag et al., Sci. Rep. 2019; gamma: Reichardt and
    Bornholdt, Phys. Rev. E 2006.
    """
    _check(similarity, resolution)
    if backend == "python-louvain":
        edges = _edges(similarity, np.arange(len(similarity)))
        return canonical(_python_louvain(edges, resolution, seed))
    # shuffled here, which is faster with a dense matrix
    order = np.random.RandomState(seed % 2**32).permutation(len(similarity))
    labels = np.empty(len(similarity), int)
    labels[order] = _optimised(_edges(similarity, order), resolution, seed, backend)
    return canonical(labels)


def agglomerative(distance: Matrix, *, threshold: float, linkage: Linkage) -> Labels:
    """Return communities (n,), merged while two of them are nearer than `threshold`.

    `distance` (n, n) is symmetric; `linkage` defines the distance of two communities: the mean,
    largest or smallest distance of their members. Numbered as by `louvain`. Raises ValueError
    for a negative threshold. Briggs et al., IJCNN 2020, section III.
    """
    from scipy.cluster import hierarchy

    if threshold < 0:
        raise ValueError(f"threshold must be at least 0, got {threshold}; it is a distance")
    n = len(distance)
    if n == 1:
        return np.zeros(1, int)
    pairs = np.concatenate([distance[row, row + 1 :] for row in range(n - 1)])
    merges = hierarchy.linkage(pairs.astype(np.float64, copy=False), linkage)
    # communities at exactly the threshold are not merged
    below = np.nextafter(threshold, -np.inf)
    return canonical(hierarchy.fcluster(merges, below, "distance").astype(int))


def density(distance: Matrix, *, radius: float) -> Labels:
    """Return communities (n,) by DBSCAN: clients with another one within `radius` are dense.

    `distance` (n, n) is symmetric. A client without a neighbour is a community by itself, so that
    every client has a model. Numbered as by `louvain`. Ester et al., KDD 1996.
    """
    labels = np.full(len(distance), -1)
    for first in range(len(distance)):
        if labels[first] >= 0:
            continue
        labels[first] = labels.max() + 1
        waiting = [first]
        while waiting:
            near = (distance[waiting.pop()] <= radius) & (labels < 0)
            labels[near] = labels[first]
            waiting += np.flatnonzero(near).tolist()
    return canonical(labels)


class NotConvergedWarning(UserWarning):
    """Affinity propagation did not converge within its iterations."""


def affinity_propagation(
    distance: Matrix,
    *,
    damping: float,
    preference: float | None,
    seed: int,
) -> Labels:
    """Return communities (n,) around exemplars, on the similarity `-distance` (n, n).

    `preference` is the suitability of every client as an exemplar, None the median
    similarity of different clients; a lower value gives fewer communities. Among equal clients
    (nearer than COPY) only the first can be an exemplar, because three equally suited clients
    would block each other and join another community. If all distances are equal, all clients are
    one community. If the messages do not converge, a damping of STRONGEST is tried if it is
    higher. If they still do not converge, a NotConvergedWarning is issued and all clients are one
    community. Numbered as by `louvain`. Frey and Dueck, Science 2007.
    """
    from sklearn.cluster import AffinityPropagation
    from sklearn.exceptions import ConvergenceWarning

    apart = distance[~np.eye(len(distance), dtype=bool)]
    if len(distance) < 2 or np.ptp(apart) == 0:
        return np.zeros(len(distance), int)
    median = float(np.median(apart))
    level = -median if preference is None else preference
    copies = np.tril(distance <= COPY * median, -1).any(axis=1)
    suited = np.where(copies, min(level, -float(apart.sum())), level)
    tried = (damping, STRONGEST) if damping < STRONGEST else (damping,)
    for strength in tried:
        method = AffinityPropagation(
            affinity="precomputed", damping=strength, preference=suited,
            random_state=seed % 2**32, max_iter=500,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            labels = method.fit(-distance).labels_
        if method.n_iter_ < method.max_iter and (labels >= 0).all():
            return canonical(labels.astype(int))
    warnings.warn(
        f"affinity propagation of {len(distance)} clients did not converge with damping "
        f"{' and '.join(map(str, tried))}; all clients are one community",
        NotConvergedWarning,
        stacklevel=2,
    )
    return np.zeros(len(distance), int)


def sparse_communities(
    graph: sparse.csr_matrix, *, resolution: float, seed: int, backend: Backend
) -> Labels:
    """Return the communities (n,) of a sparse symmetric graph (n, n), numbered as by `louvain`."""
    options = {"shuffle_nodes": True, "random_state": seed % 2**32}
    return canonical(_optimised(graph, resolution, seed, backend, **options))


def apart(graph: Graph, counted: np.ndarray, find: Callable[[Graph], Labels]) -> Labels:
    """Return the communities (n,) that `find` returns of a graph (n, n), of some clients apart.

    These are not `counted` (n,) and have no edge to one that is. Modularity compares each edge with
    the sum of all, so that edges of liars among themselves would merge the communities of others.
    """
    others = counted.copy()
    others[~counted] = np.asarray(graph[~counted][:, counted].sum(axis=1)).ravel() > 0
    if others.all() or not others.any():
        return find(graph)
    labels = np.empty(len(counted), int)
    labels[others] = find(graph[others][:, others])
    labels[~others] = labels[others].max() + 1 + find(graph[~others][:, ~others])
    return canonical(labels)


def _optimised(
    graph: sparse.csr_matrix, resolution: float, seed: int, backend: Backend, **options: Any
) -> Labels:
    """Return communities (n,) by scikit-network; without an edge every client is one."""
    from sknetwork.clustering import Leiden, Louvain

    if not graph.nnz:
        return np.arange(graph.shape[0])
    if backend == "leiden":  # its refinement draws with rand() of C, whatever its random_state
        ctypes.CDLL(None).srand(ctypes.c_uint(seed))
    method = (Leiden if backend == "leiden" else Louvain)(
        resolution, modularity="newman", return_probs=False, return_aggregate=False, **options
    )
    return np.asarray(method.fit_predict(graph), int)


def canonical(labels: Labels) -> Labels:
    """Renumber labels (n,): 0 is the largest community, ties by the smallest member."""
    found, first, sizes = np.unique(labels, return_index=True, return_counts=True)
    order = np.lexsort((first, -sizes))
    names = {int(found[old]): new for new, old in enumerate(order)}
    return np.array([names[int(label)] for label in labels], int)


def _edges(similarity: Matrix, order: Labels) -> sparse.csr_matrix:
    """Return the entries (n, n) off the diagonal that are not 0, of the clients in this order."""
    n, ends = len(similarity), [0]
    columns, weights = list[np.ndarray](), list[np.ndarray]()
    for start in range(0, n, BLOCK):
        rows = similarity[order[start : start + BLOCK]][:, order]
        rows[np.arange(len(rows)), np.arange(start, start + len(rows))] = 0.0
        edge = rows != 0
        columns.append(np.nonzero(edge)[1].astype(np.int32))
        weights.append(rows[edge].astype(np.float64, copy=False))
        ends += (ends[-1] + edge.sum(axis=1).cumsum()).tolist()
    return sparse.csr_matrix((np.concatenate(weights), np.concatenate(columns), ends), (n, n))


def _python_louvain(edges: sparse.csr_matrix, resolution: float, seed: int) -> Labels:
    import community as python_louvain
    import networkx as nx

    half = sparse.triu(edges).tocsr().tocoo()
    if not half.nnz:
        return np.arange(edges.shape[0])
    graph: Any = nx.Graph()
    graph.add_nodes_from(range(edges.shape[0]))
    found = zip(half.row.tolist(), half.col.tolist(), half.data.tolist(), strict=True)
    graph.add_weighted_edges_from(found)
    partition = python_louvain.best_partition(
        graph, resolution=resolution, random_state=seed % 2**32
    )
    return np.array([partition[node] for node in range(edges.shape[0])], int)


def _check(similarity: Matrix, resolution: float) -> None:
    if resolution <= 0:
        raise ValueError(
            f"resolution must be positive, got {resolution}; use 1.0 for standard modularity"
        )
    if similarity.ndim != 2 or similarity.shape[0] != similarity.shape[1] or not len(similarity):
        raise ValueError(
            f"similarity must be square and not empty, got shape {similarity.shape}; use (n, n)"
        )
    if not _is_symmetric(similarity):
        raise ValueError("similarity must be symmetric; average both directions")
    if not (similarity >= 0).all():
        raise ValueError(
            f"similarity must be non-negative, got {similarity.min()}; shift it, as 1 + cos does"
        )


def _is_symmetric(similarity: Matrix) -> bool:
    """Whether a matrix (n, n) is symmetric up to rounding, compared by tiles in the cache."""
    starts = range(0, len(similarity), BLOCK)
    tiles = [slice(start, start + BLOCK) for start in starts]
    return all(
        np.array_equal(similarity[one, other], similarity[other, one].T)
        or np.allclose(similarity[one, other], similarity[other, one].T)
        for place, one in enumerate(tiles)
        for other in tiles[place:]
    )
