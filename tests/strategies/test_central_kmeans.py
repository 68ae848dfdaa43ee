"""Central k-means: scikit-learn on all points, in one round that asks nobody."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fl_app.params import Layout, from_bytes
from fl_app.strategies.central_kmeans import CentralKMeans
from fl_app.testing.toy import context, roster
from fl_app.wiring import made

LAYOUT = Layout(("centroids", "counts"), ((2, 1), (2,)), 1)
POINTS = np.array([[0.0], [2.0], [10.0], [14.0]])


def _strategy(**changes: object) -> CentralKMeans:
    given = {"layout": LAYOUT, "initial": np.zeros(4, np.float32), "union": lambda: POINTS}
    return made("strategy=central_kmeans", context(**(given | changes)))


def test_the_centroids_are_the_means_of_the_two_clusters() -> None:
    strategy, known = _strategy(), roster(3)
    assert strategy.configure_fit(1, strategy.initialize_parameters(known), known) == []
    assert not strategy.outcome(0).finished
    parameters, metrics = strategy.aggregate_fit(1, [], [])
    model = from_bytes(parameters.tensors[0])
    assert sorted(model[:2].tolist()) == [1.0, 12.0]
    assert model[2:].tolist() == [0.0, 0.0], "counts that weigh nothing"
    # squared distances 1, 1, 4, 4 of four points
    assert metrics == {"train_loss": 2.5}
    np.testing.assert_array_equal(strategy.state.communities.models[0], model)


def test_it_is_over_after_its_round_and_asks_nobody() -> None:
    strategy, known = _strategy(), roster(3)
    strategy.configure_fit(1, strategy.initialize_parameters(known), known)
    strategy.aggregate_fit(1, [], [])
    outcome = strategy.outcome(1)
    assert outcome.finished
    assert list(outcome.cohort) == []
    assert outcome.view is None


def test_the_same_seed_gives_the_same_centroids() -> None:
    points = np.random.default_rng(0).normal(size=(60, 1))
    found = []
    for seed in (3, 3, 4):
        strategy = _strategy(seed=seed, union=lambda: points)
        strategy.configure_fit(1, strategy.initialize_parameters(roster(1)), roster(1))
        parameters, _ = strategy.aggregate_fit(1, [], [])
        found.append(parameters.tensors[0])
    assert found[0] == found[1]


def test_without_all_points_in_one_place_it_is_refused() -> None:
    with pytest.raises(ValueError, match="needs all points on the server; run a simulation"):
        _strategy(union=None)
