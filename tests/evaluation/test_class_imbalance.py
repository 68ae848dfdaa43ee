"""The Wasserstein adjusted silhouette: by hand, and what it does not see."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import wasserstein_distance

from fl_app import server_wiring, wiring
from fl_app.config import load
from fl_app.evaluation.class_imbalance import imbalance_distance, wasserstein_silhouette
from fl_app.one_run import run

COUNTS = np.array([[4.0, 0.0], [0.0, 8.0], [3.0, 3.0], [9.0, 9.0]])
"""Two clients with one class each, and two with both."""


def test_distances_by_hand() -> None:
    # shares (0, 1), (0, 1), (1/2, 1/2), (1/2, 1/2) in ascending order
    expected = np.zeros((4, 4))
    expected[:2, 2:] = expected[2:, :2] = 0.5
    np.testing.assert_allclose(imbalance_distance(COUNTS), expected)


def test_the_score_by_hand() -> None:
    assert wasserstein_silhouette(COUNTS, np.array([0, 0, 1, 1])) == 1.0
    # inside a mixed community the distance is 1/2, to the other one 1/4 on average
    assert wasserstein_silhouette(COUNTS, np.array([0, 1, 0, 1])) == pytest.approx(-0.5)
    assert wasserstein_silhouette(COUNTS, np.zeros(4, int)) is None
    assert wasserstein_silhouette(np.ones((4, 3)), np.array([0, 0, 1, 1])) == 0.0


@given(
    arrays(float, st.tuples(st.integers(2, 5), st.integers(1, 6)), elements=st.integers(1, 20)),
    st.integers(0, 2**16),
)
def test_it_is_a_distance_that_no_renaming_of_classes_changes(counts: np.ndarray, key: int) -> None:
    found = imbalance_distance(counts)
    draw = np.random.default_rng(key)
    renamed = np.stack([draw.permutation(row) for row in counts])
    np.testing.assert_allclose(imbalance_distance(renamed), found, atol=1e-12)
    np.testing.assert_allclose(imbalance_distance(3 * counts), found, atol=1e-12)
    assert ((found >= 0) & (found <= 1)).all()
    shares = counts / counts.sum(axis=1, keepdims=True)
    # the 1-Wasserstein distance is never above it
    assert wasserstein_distance(shares[0], shares[1]) <= found[0, 1] + 1e-12


def test_a_client_without_samples_is_an_error() -> None:
    with pytest.raises(ValueError, match="remove clients without samples"):
        imbalance_distance(np.array([[1.0, 2.0], [0.0, 0.0]]))


def test_a_simulation_records_it_in_each_round(tmp_path: Path) -> None:
    given = [
        "strategy=ifca", "strategy.participation=1.0", "population=dirichlet",
        "population.clients=6", "population.groups=3", "network=mlp", "client.epochs=1",
        "rounds=2", "records.figures=false", "records.report=false", "tracking=none",
    ]  # fmt: skip
    run(given, tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    last = json.loads((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()[-1])
    people = wiring.shared_population(load(given))
    counts = people.class_counts()
    assert counts.sum(axis=1).tolist() == [people.samples(client) for client in range(6)]
    labels = np.array([summary["communities"]["assignment"][str(client)] for client in range(6)])
    found = wasserstein_silhouette(counts.astype(float), labels)
    assert last["communities"]["wasserstein_silhouette"] == found


def test_only_a_simulation_knows_the_classes_of_all_clients() -> None:
    assert server_wiring.class_counts(load(["engine=deployment"])) is None
    assert server_wiring.class_counts(load(["population=own"])) is None
    assert server_wiring.class_counts(load([])) is not None
