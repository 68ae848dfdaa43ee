"""The scores of k-means over clients of unequal sizes."""

import numpy as np
import pytest
from sklearn.metrics import v_measure_score

from fl_app.kmeans.scores import Scored, pooled
from fl_app.strategies.centroid_strategy import score_cap


def scored(sizes: list[int]) -> list[Scored]:
    """Return clients whose points of 4 classes are in the right cluster in 7 of 10 cases."""
    random = np.random.default_rng(0)
    found = []
    for client, size in enumerate(sizes):
        labels = random.integers(4, size=size)
        clusters = np.where(random.random(size) < 0.7, labels, random.integers(4, size=size))
        table = np.zeros((4, 4), int)
        np.add.at(table, (clusters, labels), 1)
        found.append(Scored(client, table, float(client), size))
    return found


@pytest.mark.parametrize("cap", [3.0, np.inf])
def test_agreement_weighs_the_points_of_capped_clients_in_fractions(cap: float) -> None:
    clients = scored([20] * 10 + [400] * 9)
    clusters, labels = np.indices((4, 4)).reshape(2, -1)
    weights = np.concatenate([
        each.table.ravel() * min(1.0, cap * 20 / each.points) for each in clients
    ])  # fmt: skip
    whole = [np.tile(side, len(clients)) for side in (labels, clusters)]
    counts = np.rint(weights * 20).astype(int)  # a capped point weighs 3 / 20
    expected = v_measure_score(*(np.repeat(side, counts) for side in whole))
    found, _ = pooled(clients, cap=cap, far=100.0)
    assert found["v_measure"] == pytest.approx(expected, abs=1e-12)
    reverse, _ = pooled(clients[::-1], cap=cap, far=100.0)
    assert reverse == found


def test_points_are_capped_in_scores_where_they_are_in_centroids() -> None:
    assert score_cap("capped", 3.0) == 3.0
    assert score_cap("dynamic", 3.0) == score_cap("my.function", 3.0) == np.inf
