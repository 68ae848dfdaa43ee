"""Measures of the communities of one round, with and without the planted groups."""

from typing import Any

import numpy as np

from fl_app.evaluation.agreement import adjusted_rand, majority_purity, pure_share, v_measure
from fl_app.graph.validity import modularity, silhouette
from fl_app.types import Labels, Matrix


def describe(
    labels: Labels,
    *,
    groups: Labels | None,
    total_groups: int | None,
    similarity: Matrix | None,
    distance: Matrix | None = None,
) -> dict[str, Any]:
    """Return count, sizes and all measures of agreement and validity, None if not applicable.

    `labels` (n,); `groups` (n,) are the planted groups if known, out of `total_groups`.
    Modularity uses `similarity` (n, n). The silhouette uses `distance` (n, n), by default
    `2 - similarity` with a zero diagonal. `right` means that the labels equal the planted groups
    and that all `total_groups` occur.
    """
    count = len(np.unique(labels))
    found: dict[str, Any] = {"count": count, "sizes": np.bincount(labels).tolist()}
    measures = {
        "ari": adjusted_rand,
        "pure_share": pure_share,
        "majority_purity": majority_purity,
        "v_measure": v_measure,
    }
    known = groups is not None and len(labels) > 0
    for name, measure in measures.items():
        found[name] = measure(labels, groups) if known and groups is not None else None
    found["right"] = bool(found["ari"] == 1.0 and count == total_groups) if known else None
    found["silhouette"] = found["modularity"] = None
    if similarity is not None and len(labels):
        found["modularity"] = modularity(similarity, labels)
        if distance is None:
            distance = 2.0 - similarity
            np.fill_diagonal(distance, 0.0)
    if distance is not None and len(labels):
        found["silhouette"] = silhouette(distance, labels)
    return found | {"nodes": len(labels)}
