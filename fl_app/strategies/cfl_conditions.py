"""The conditions under which CFL splits a cluster.

Sattler et al., ICASSP 2020, algorithm 1; those on norms are of Sattler et al., IEEE TNNLS 2021,
equations 17 and 18.
"""

from dataclasses import dataclass

import numpy as np

from fl_app.graph.bipartition import bipartition, mean_similarities, norm_of_mean
from fl_app.graph.client_graph import ClientGraph
from fl_app.types import Labels


@dataclass(frozen=True, kw_only=True)
class SplitConditions:
    """The settings of these conditions; None: there is no such condition."""

    alpha_threshold: float
    alpha_decay: float
    mean_below: float | None
    norm_above: float | None
    gap_above: float | None

    def is_cross(self, alpha_cross: float, server_round: int) -> bool:
        """Whether alpha_cross is below the threshold of a round."""
        return alpha_cross < self.alpha_threshold * self.alpha_decay ** (server_round - 1)

    def is_unsettled(self, graph: ClientGraph, among: Labels) -> bool:
        """Whether the mean update of a cluster is short while some of its updates are long."""
        norms = graph.vectors.norms(among)
        if self.norm_above is not None and norms.max() <= self.norm_above:
            return False
        if self.mean_below is None:
            return True
        return norm_of_mean(graph.matrix(), norms, among) < self.mean_below

    def is_apart(self, graph: ClientGraph, among: Labels, labels: Labels) -> bool:
        """Whether the mean similarity within the parts exceeds that across by `gap_above`."""
        if self.gap_above is None:
            return True
        inside, across = mean_similarities(graph.matrix(), labels, among)
        return inside - across > self.gap_above


def parts_of(graph: ClientGraph, among: Labels, *, by_sums: bool) -> tuple[Labels, float]:
    """Return the two parts (m,) of a cluster, and alpha_cross; it is 1 if there is one part.

    `by_sums`: they are those that the graph's detection finds in cumulated updates.
    """
    if not by_sums:
        labels, shifted = bipartition(graph.matrix(), among)
        return labels, shifted - 1.0
    labels = graph.labels(among)
    across = graph.values(among)[np.ix_(labels == 0, labels == 1)]
    return labels, float(across.max(initial=-1.0)) if labels.any() else 1.0
