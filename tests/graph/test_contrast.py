"""Splits that are stronger than noise and common drift, and none where there is nothing else."""

from functools import partial

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from fl_app.graph.communities import louvain
from fl_app.graph.contrast import (
    centred,
    contrast,
    cosines,
    halves,
    noise_within,
    significant,
    strength,
)

PARTITION = partial(louvain, resolution=1.0, seed=0, backend="fast")
SPECTRA = {
    "few directions": np.ones(20),
    "many directions": np.ones(400),
    "falling": 1 / np.sqrt(np.arange(1, 401)),
    "nine strong ones": np.r_[np.full(9, 30.0), np.ones(400)],
}


def _updates(groups: int, spectrum: np.ndarray, seed: int, clients: int = 24) -> np.ndarray:
    """Return updates (n, d) of clients of equal groups, of unequal length, with a common drift."""
    draw, deviation = np.random.default_rng(seed), np.sqrt(spectrum)
    noise, signal, drift = (
        draw.normal(size=(rows, len(spectrum))) * deviation for rows in (clients, groups, 1)
    )
    if groups > 1:
        noise = noise + 1.5 * signal[np.arange(clients) % groups]
    lengths = draw.uniform(0.7, 1.4, size=(clients, 1))
    found: np.ndarray = (noise + 2 * drift) * lengths
    return found


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("seed", range(3))
def test_clients_of_one_distribution_are_one_community(spectrum: str, seed: int) -> None:
    updates = _updates(1, SPECTRA[spectrum], seed)
    cosine = cosines(updates @ updates.T)
    assert PARTITION(contrast(cosine)).max() > 0  # modularity alone finds communities
    assert significant(cosine, PARTITION).max() == 0


@pytest.mark.parametrize("groups", [2, 3, 4])
@pytest.mark.parametrize("spectrum", ["many directions", "falling"])
def test_planted_groups_are_found(spectrum: str, groups: int) -> None:
    updates = _updates(groups, SPECTRA[spectrum], seed=groups)
    labels = significant(cosines(updates @ updates.T), PARTITION)
    assert adjusted_rand_score(np.arange(24) % groups, labels) == 1.0


def test_noise_averages_out_of_cumulated_updates() -> None:
    draw = np.random.default_rng(0)
    groups = np.arange(12) % 3
    signal = draw.normal(size=(3, 10_000))[groups]
    rounds = [signal + 12 * draw.normal(size=signal.shape) for _ in range(40)]
    scores = [
        adjusted_rand_score(groups, significant(cosines(each @ each.T), PARTITION))
        for each in (rounds[-1], sum(rounds))
    ]
    assert scores == [0.0, 1.0]


def test_halves_are_the_communities_that_are_least_alike() -> None:
    # communities 0 and 2 have a common direction, 1 has another
    direction = np.array([[3.0, 1.0, 0.0], [0.0, 0.0, 4.0], [3.0, -1.0, 0.0]])
    labels = np.array([0, 0, 1, 1, 2, 2])
    updates = direction[labels]
    assert halves(cosines(updates @ updates.T), labels).tolist() == [0, 0, 1, 1, 0, 0]
    assert halves(np.eye(6), np.zeros(6, int)).tolist() == [0] * 6


def test_strength_is_the_formula() -> None:
    # two pairs: cosines of the centred vectors 1 inside and -1 across
    cosine = np.kron(np.eye(2), np.ones((2, 2)))
    parts = np.array([0, 0, 1, 1])
    assert centred(cosine) == pytest.approx(np.kron([[0.5, -0.5], [-0.5, 0.5]], np.ones((2, 2))))
    # x = (1, 1, -1, -1) / 2 has x'Cx = 4, so x'(C - I)x = 3; the rest is -1, so noise decides,
    # relative to the mean square 1/2
    assert strength(cosine, parts, noise=0.1) == pytest.approx(3 / (2 * 2 * 0.1 / 0.5))
    assert strength(cosine, np.array([0, 1, 0, 1]), noise=0.1) < 0


def test_noise_is_that_of_unrelated_vectors() -> None:
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(60, 400))
    found = noise_within(cosines(vectors @ vectors.T), np.arange(60) % 2)
    assert found == pytest.approx(1 / 20, rel=0.1)
    assert noise_within(np.eye(2), np.array([0, 1])) == 0.0
    assert noise_within(np.ones((6, 6)), np.arange(6) % 2) == 0.0


@pytest.mark.parametrize("clients", [1, 2])
def test_two_clients_are_never_told_apart(clients: int) -> None:
    assert significant(np.eye(clients), PARTITION).tolist() == [0] * clients


def test_zero_vectors_have_no_direction() -> None:
    updates = _updates(2, SPECTRA["many directions"], seed=0)
    updates[3] = 0.0
    labels = significant(cosines(updates @ updates.T), PARTITION)
    others = np.arange(24) != 3
    assert adjusted_rand_score(np.arange(24)[others] % 2, labels[others]) == 1.0


def test_many_clients_that_are_all_alike_are_one_community() -> None:
    for cosine in (np.ones((400, 400)), np.zeros((400, 400))):
        assert significant(cosine, PARTITION).max() == 0
