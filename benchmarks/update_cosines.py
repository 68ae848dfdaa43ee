"""Cosines and norms of the updates that CFL sees in each round, of loyal and malicious clients."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fl_app.graph.bipartition import bipartition, norm_of_mean
from fl_app.strategies.cfl import Cfl
from fl_app.types import Matrix

Look = dict[str, Any]


def look(shifted: Matrix, norms: np.ndarray, malicious: np.ndarray) -> Look:
    """Return what distinguishes the malicious clients of a cluster in one round.

    From `1 + cos` (m, m) with a diagonal of 0, the norms (m,) and who is malicious (m,) as bool.
    `loyal`, `malicious` and `across` are mean cosines of the pairs within and across, None without
    a pair; `closest` is the largest cosine across. `alpha_cross`, `parted` and `caught` belong to
    the bipartition: its largest cosine across, the size of the smaller part, and the malicious
    clients in it, of `attackers` in the cluster. Norms are means over clients, and that of the mean
    update of all.
    """
    cosine = np.asarray(shifted, np.float64) - 1.0
    pairs = ~np.eye(len(cosine), dtype=bool)
    both = malicious[:, None] & malicious, ~malicious[:, None] & ~malicious
    across = malicious[:, None] & ~malicious
    labels, weakest = bipartition(shifted)

    def mean(values: np.ndarray) -> float | None:
        return float(values.mean()) if values.size else None

    return {
        "loyal": mean(cosine[both[1] & pairs]),
        "malicious": mean(cosine[both[0] & pairs]),
        "across": mean(cosine[across]),
        "closest": float(cosine[across].max()) if across.any() else None,
        "alpha_cross": weakest - 1.0,
        "attackers": int(malicious.sum()),
        "parted": int((labels == 1).sum()),
        "caught": int((malicious & (labels == 1)).sum()),
        "loyal_norm": mean(norms[~malicious]),
        "malicious_norm": mean(norms[malicious]),
        "mean_norm": norm_of_mean(shifted, norms, np.arange(len(norms))),
    }


@contextmanager
def looking(malicious: Collection[int]) -> Iterator[list[Look]]:
    """Yield the looks at the first cluster of CFL in each round, before it is split."""
    looks: list[Look] = []
    split = Cfl._split

    def spy(self: Cfl, server_round: int, row: int) -> None:
        graph = self.state.graph
        among = self.fresh(server_round, row, graph, by_sums=False)
        ids = graph.vectors.ids_of(among)
        if row == 0 and len(ids) > 1:
            shifted = self.state.graph.matrix()[np.ix_(among, among)]
            bad = np.isin(ids, list(malicious))
            norms = self.state.graph.vectors.norms(among)
            looks.append({"round": server_round, **look(shifted, norms, bad)})
        split(self, server_round, row)

    Cfl._split = spy  # type: ignore[method-assign]
    try:
        yield looks
    finally:
        Cfl._split = split  # type: ignore[method-assign]
