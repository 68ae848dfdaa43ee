"""Splits that are stronger than noise and common drift, and none where there is nothing else."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from fl_app.graph.communities import louvain
from fl_app.graph.contrast import (
    centred,
    centred_cosines,
    contrast,
    cosines,
    exceeding,
    halves,
)
from fl_app.graph.gap import Positions, gap, gap_by_degrees
from fl_app.graph.significant import significant
from fl_app.graph.split_strength import (
    FALSE_SPLIT,
    MANY,
    SIGNIFICANT,
    Noise,
    Split,
    deviation,
    largest_eigenvalue,
    reach,
    squares_within,
)

PARTITION = partial(louvain, resolution=1.0, seed=0, backend="fast")
SPECTRA = {
    "few directions": np.ones(20),
    "many directions": np.ones(400),
    "falling": 1 / np.sqrt(np.arange(1, 401)),
    "nine strong ones": np.r_[np.full(9, 30.0), np.ones(400)],
}


def _noise_within(cosine: np.ndarray, labels: np.ndarray, *, unbiased: bool = False) -> float:
    groups = [np.flatnonzero(labels == label) for label in range(labels.max() + 1)]
    return deviation([squares_within(cosine, rows, unbiased=unbiased) for rows in groups])


def _updates(groups: int, spectrum: np.ndarray, seed: int, clients: int = 24) -> np.ndarray:
    """Return updates (n, d) of clients of equal groups, of unequal length, with a common drift."""
    draw, roots = np.random.default_rng(seed), np.sqrt(spectrum)
    noise, signal, drift = (
        draw.normal(size=(rows, len(spectrum))) * roots for rows in (clients, groups, 1)
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


@pytest.mark.parametrize("clients", [6, 12])
@pytest.mark.parametrize("seed", range(3))
def test_groups_of_few_clients_are_found_though_their_centred_cosines_are_negative(
    clients: int, seed: int
) -> None:
    # c sqrt(d) is 8: within a group the mean centred cosine is below 0
    draw, groups = np.random.default_rng(seed), np.arange(clients) % (clients // 3)
    means = draw.normal(size=(clients // 3, 10_000))
    updates = 0.08**0.5 * means[groups] + 0.92**0.5 * draw.normal(size=(clients, 10_000))
    cosine = cosines(updates @ updates.T)
    assert cosines(centred(cosine))[groups[:, None] == groups].sum() < clients  # diagonal 1
    found = significant(cosine, PARTITION, look=1, parameters=10_000)
    assert adjusted_rand_score(groups, found) == 1.0


def test_edges_are_what_exceeds_a_cosine() -> None:
    # six orthogonal unit vectors: all centred cosines are -1/5
    compared = centred_cosines(np.eye(6))
    assert exceeding(compared, -1 / 5) == pytest.approx(np.zeros((6, 6)))
    assert exceeding(compared, -3 / 5)[0, 1] == pytest.approx(2 / 5)
    # two with cosine 1/2 among six: products 1 - a, 1/2 - a, with row means a
    pair = np.eye(6)
    pair[0, 1] = pair[1, 0] = 0.5
    # row means 1/4, 1/6; total mean 7/36: length 1 - 1/2 + 7/36 = 25/36, product 1/2 - 1/2 + 7/36
    assert contrast(pair)[0, 1] == pytest.approx(7 / 25)
    assert exceeding(centred_cosines(pair), -1 / 5)[0, 1] == pytest.approx(7 / 25 + 1 / 5)


def test_halves_are_the_communities_that_are_least_alike() -> None:
    # communities 0 and 2 have a common direction, 1 has another
    direction = np.array([[3.0, 1.0, 0.0], [0.0, 0.0, 4.0], [3.0, -1.0, 0.0]])
    labels = np.array([0, 0, 1, 1, 2, 2])
    updates = direction[labels]
    assert halves(cosines(updates @ updates.T), labels).tolist() == [0, 0, 1, 1, 0, 0]
    assert halves(np.eye(6), np.zeros(6, int)).tolist() == [0] * 6


def _strength(cosine: np.ndarray, parts: list[int], noise: Noise) -> float:
    one, other = (np.flatnonzero(np.array(parts) == part) for part in (0, 1))
    return Split(cosine, one, other).strength(noise)


def test_strength_is_the_formula() -> None:
    # two pairs: cosines of the centred vectors 1 inside and -1 across
    cosine = np.kron(np.eye(2), np.ones((2, 2)))
    assert centred(cosine) == pytest.approx(np.kron([[0.5, -0.5], [-0.5, 0.5]], np.ones((2, 2))))
    # x = (1, 1, -1, -1) / 2 has x'Cx = 4, so x'(C - I)x = 3; the rest is -1, so noise decides,
    # relative to the mean square 1/2. C - I less x has the Frobenius norm sqrt(3): not clear
    assert _strength(cosine, [0, 0, 1, 1], Noise(0.4)) == pytest.approx(3 / (2 * 2 * 0.4 / 0.5))
    assert _strength(cosine, [0, 1, 0, 1], Noise(0.1)) < 0
    assert _strength(cosine, [0, 0, 1, 1], Noise(0.1)) == pytest.approx(3 / (2 * 2 * 0.1 / 0.5))


@pytest.mark.parametrize("seed", range(4))
def test_a_split_is_as_strong_as_by_all_eigenvalues_or_clear(seed: int) -> None:
    """The plain formula beside the one that avoids spectra, for splits from weak to clear."""
    updates = _updates(2, SPECTRA["many directions"], seed)
    updates[::2] *= seed / 2
    cosine, groups = cosines(updates @ updates.T), np.arange(24) % 2
    clear = centred_cosines(cosine) - np.eye(24)
    x = (2 * groups - 1) / 24**0.5
    across = np.eye(24) - np.outer(x, x)
    beside = np.linalg.eigvalsh(across @ clear @ across - 1.0)[-1]
    for size in (1e-9, 0.02, 0.2):
        noise = Noise(size)
        square = float(np.trace(centred(cosine))) / 24
        plain = float(x @ clear @ x) / max(beside, noise.edge(24, square))
        found = _strength(cosine, groups.tolist(), noise)
        assert found == pytest.approx(plain) or SIGNIFICANT <= found <= plain


def test_noise_is_that_of_unrelated_vectors() -> None:
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(60, 400))
    found = _noise_within(cosines(vectors @ vectors.T), np.arange(60) % 2)
    assert found == pytest.approx(1 / 20, rel=0.1)
    assert _noise_within(np.eye(2), np.array([0, 1])) == 0.0
    assert _noise_within(np.ones((6, 6)), np.arange(6) % 2) == 0.0


@pytest.mark.parametrize("clients", [1, 2])
def test_two_clients_are_never_told_apart(clients: int) -> None:
    assert significant(np.eye(clients), PARTITION).tolist() == [0] * clients


@pytest.mark.filterwarnings("error")
def test_nobody_has_no_contrast() -> None:
    assert contrast(np.zeros((0, 0))).shape == (0, 0)


def test_zero_vectors_have_no_direction() -> None:
    updates = _updates(2, SPECTRA["many directions"], seed=0)
    updates[3] = 0.0
    labels = significant(cosines(updates @ updates.T), PARTITION)
    others = np.arange(24) != 3
    assert adjusted_rand_score(np.arange(24)[others] % 2, labels[others]) == 1.0


def test_many_clients_that_are_all_alike_are_one_community() -> None:
    for cosine in (np.ones((400, 400)), np.zeros((400, 400))):
        assert significant(cosine, PARTITION).max() == 0


def test_reach_is_the_formula_and_its_chances_add_up() -> None:
    # sqrt(9) + sqrt(2 ln(1 * 2 / 0.05)) = 3 + sqrt(2 * 3.68888)
    assert reach(9, 1) == pytest.approx(3 + 2.7162, abs=1e-4)
    # sqrt(16) + sqrt(2 ln(3 * 4 / 0.05)) = 4 + sqrt(2 * 5.48064)
    assert reach(16, 3) == pytest.approx(4 + 3.3108, abs=1e-4)
    spent = sum(np.exp(-((reach(9, look) - 3) ** 2) / 2) for look in range(1, 2000))
    assert 0.99 * FALSE_SPLIT < spent < FALSE_SPLIT


def test_with_a_reach_noise_counts_more() -> None:
    # as above, s = 0.1 / (1/2) = 0.2: the edge (2 * 10 * 0.2 + (10 * 0.2)^2) / 2 = 4 is above 0.8
    cosine = np.kron(np.eye(2), np.ones((2, 2)))
    parts = [0, 0, 1, 1]
    assert _strength(cosine, parts, Noise(0.1, far=10.0)) == pytest.approx(3 / 4)
    # s is at least 1/2: (2 * 10 / 2 + (10 / 2)^2) / 2 = 17.5
    assert _strength(cosine, parts, Noise(0.1, far=10.0, least=0.5)) == pytest.approx(3 / 17.5)


def test_unbiased_noise_undoes_the_shrinking_by_the_mean() -> None:
    cosine = _cosine_of_noise(4, 50, seed=0)
    plain = _noise_within(cosine, np.zeros(4, int))
    # (1 - 1/4)^2 + 1/4^2 = 0.625
    found = _noise_within(cosine, np.zeros(4, int), unbiased=True)
    assert found == pytest.approx(plain / 0.625**0.5)


def _cosine_of_noise(clients: int, parameters: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(clients, parameters))
    return cosines(vectors @ vectors.T)


def test_no_noise_is_beyond_its_reach_more_often_than_allowed() -> None:
    """The bound of `reach` itself, with known noise: the largest eigenvalue of 12 x 6 noise."""
    beyond, runs = 0, 400
    for seed in range(runs):
        vectors = np.random.default_rng(seed).normal(size=(12, 6)) / 6**0.5
        largest = float(np.linalg.eigvalsh(vectors @ vectors.T)[-1])
        beyond += largest > (1 + reach(12, 1) / 6**0.5) ** 2
    assert beyond <= runs * FALSE_SPLIT / 2


def _first_split(seed: int, *, groups: int, parameters: int, repeated: bool) -> int | None:
    """Return the round of 14 after which 12 clients are first split; None: never."""
    draw, total = np.random.default_rng((seed, parameters)), np.zeros((12, parameters))
    signal = 0.3 * draw.normal(size=(groups, parameters))[np.arange(12) % groups]
    for look in range(1, 15):
        fresh = signal + draw.normal(size=total.shape)
        total += fresh - fresh.mean(axis=0)
        cosine, number = cosines(total @ total.T), look if repeated else None
        found = significant(cosine, PARTITION, look=number, parameters=parameters)
        if found.any():
            return look
    return None


def test_repeated_tests_of_clients_with_few_parameters_find_no_groups_in_noise() -> None:
    split = {
        repeated: sum(
            _first_split(seed, groups=1, parameters=6, repeated=repeated) is not None
            for seed in range(10)
        )
        for repeated in (False, True)
    }
    assert split[False] > 5
    assert split[True] == 0


def test_repeated_tests_still_find_groups() -> None:
    found = [_first_split(seed, groups=3, parameters=200, repeated=True) for seed in range(4)]
    assert None not in found


def test_few_pairs_chosen_as_alike_do_not_tell_the_noise() -> None:
    """Six clients in groups of three: a single test may split them, repeated ones do not."""
    cosine = [_cosine_of_noise(6, 6, seed) for seed in range(10)]
    assert any(significant(each, PARTITION).any() for each in cosine)
    assert not any(significant(each, PARTITION, look=1, parameters=6).any() for each in cosine)


@pytest.mark.parametrize("clients", [4, 6])
def test_one_test_of_few_clients_in_few_directions_finds_no_groups(clients: int) -> None:
    split = dict.fromkeys((None, 1), 0)
    for seed in range(40):
        cosine = _cosine_of_noise(clients, 8, seed)
        for look in split:
            split[look] += significant(cosine, PARTITION, look=look, parameters=8).any()
    assert split[None] > 40 * 4 * FALSE_SPLIT
    assert split[1] <= 40 * FALSE_SPLIT


def test_positions_and_gap_are_the_formulas() -> None:
    """Worked by hand: numbers 0, 2, 6, 8 on a line, in two communities; 100 is in a third one.

    The means beside 2 are 7 and, without itself, 0, so that its position is 2 (7 - 0) = 14. The
    mean positions are 7 and 41, those inside are 7, 7, 1, 1, 0, and 0 away from them.
    """
    line = np.array([0.0, 2.0, 6.0, 8.0, 100.0, 100.0])
    labels, signs = np.array([0, 0, 1, 1, 2, 2]), np.outer(line > 0, line > 0).astype(float)
    positions = Positions(signs, line)
    found = positions.between(labels, 1, 0)
    assert found.tolist() == [0.0, 14.0, 42.0, 40.0, 600.0, 600.0]
    inside = (49 + 49 + 1 + 1) / (6 - 3)
    assert gap(positions, labels, 1, 0) == pytest.approx((41 - 7) ** 2 / 4 / inside)
    assert gap(positions, labels, 0, 1) == gap(positions, labels, 1, 0)
    assert gap(positions, np.array([0, 1, 1, 1, 1, 1]), 0, 1) == float("inf")
    assert gap_by_degrees(23) == 6.0
    assert gap_by_degrees(3) == gap_by_degrees(4) == 44.0


def _line(clients: int, kind: str, seed: int) -> np.ndarray:
    """Return updates (n, 300) of clients that differ in one direction, with a little noise."""
    draw = np.random.default_rng((seed, clients))
    along = {
        "normal": draw.normal(size=clients),
        "uniform": draw.uniform(-1.7, 1.7, size=clients),
        "two": np.where(np.arange(clients) % 2, 1.0, -1.0) + 0.2 * draw.normal(size=clients),
    }[kind]
    found: np.ndarray = np.outer(along - along.mean(), draw.normal(size=300))
    return found + 0.1 * draw.normal(size=found.shape)


def _split(updates: np.ndarray, *, judged: bool) -> int:
    """Return the number of communities, with or without the evidence of their gap."""
    products = updates @ updates.T
    cosine = cosines(products)
    lengths = np.sqrt(np.diag(products)) if judged else None
    found = significant(cosine, PARTITION, look=1, parameters=300, lengths=lengths)
    return int(found.max()) + 1


@pytest.mark.parametrize("clients", [8, 12, 24])
@pytest.mark.parametrize("kind", ["normal", "uniform"])
def test_clients_that_differ_by_degrees_are_no_communities(kind: str, clients: int) -> None:
    split = {
        judged: sum(_split(_line(clients, kind, seed), judged=judged) > 1 for seed in range(20))
        for judged in (False, True)
    }
    assert split[False] > 15
    assert split[True] <= 2


@pytest.mark.parametrize("clients", [12, 24])
def test_groups_in_one_direction_are_found_though_clients_differ_by_degrees(clients: int) -> None:
    found = [_split(_line(clients, "two", seed), judged=True) for seed in range(20)]
    assert 1 not in found
    assert found.count(2) >= 18


def test_groups_are_found_beside_a_much_larger_difference_of_their_pairs() -> None:
    """Of 24 clients in four groups modularity alone sees two: the pairs differ ten times more."""
    draw, groups = np.random.default_rng(0), np.arange(24) % 4
    pairs, within = draw.normal(size=(2, 500)), 0.3 * draw.normal(size=(4, 500))
    updates = pairs[groups % 2] + within[groups] + 0.3 * draw.normal(size=(24, 500))
    cosine = cosines(updates @ updates.T)
    assert PARTITION(contrast(cosine)).max() == 1
    found = significant(cosine, PARTITION, look=1, parameters=500)
    assert adjusted_rand_score(groups, found) == 1.0


@given(st.integers(1, 9), st.integers(1, 5), st.integers(0, 1000), st.sampled_from([1, 40]))
@settings(max_examples=60, deadline=None)
def test_any_few_clients_have_an_answer(clients: int, width: int, seed: int, look: int) -> None:
    draw = np.random.default_rng(seed)
    updates = draw.integers(-1, 2, size=(clients, width)) * draw.choice([1e-12, 1.0, 1e12])
    products = updates @ updates.T
    lengths, cosine = np.sqrt(np.diag(products)), cosines(products)
    found = significant(cosine, PARTITION, look=look, parameters=width, lengths=lengths)
    assert np.array_equal(np.unique(found), np.arange(found.max() + 1))
    assert len(found) == clients


def test_the_largest_eigenvalue_of_many_rows_is_that_of_all() -> None:
    vectors = np.random.default_rng(0).normal(size=(MANY, 300)) / 300**0.5
    matrix = vectors @ vectors.T - 1.0
    expected = float(np.linalg.eigvalsh(matrix)[-1])
    assert largest_eigenvalue(matrix) == pytest.approx(expected, rel=1e-5)
    assert largest_eigenvalue(matrix) == largest_eigenvalue(matrix)
    assert largest_eigenvalue(matrix[:50, :50]) == np.linalg.eigvalsh(matrix[:50, :50])[-1]


def test_each_split_is_measured_once_and_no_spectrum_beside_a_clear_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured, spectra = list[tuple[int, ...]](), list[int]()

    class Counted(Split):
        def __init__(self, cosine: np.ndarray, one: np.ndarray, other: np.ndarray) -> None:
            measured.append((*one.tolist(), -1, *other.tolist()))
            super().__init__(cosine, one, other)

        def _eigenvalue(self) -> float:
            spectra.append(len(self._rows))
            return super()._eigenvalue()

    monkeypatch.setattr("fl_app.graph.significant.Split", Counted)
    clear = (
        _updates(3, SPECTRA["few directions"], seed=0) * 0.1 + 10 * np.eye(20)[np.arange(24) % 3]
    )
    cosine = cosines(clear @ clear.T)
    assert significant(cosine, lambda s: np.arange(len(s)) % 3).tolist() == [0, 1, 2] * 8
    assert (len(measured), spectra) == (3, [])
    # six communities in noise are joined: 15 splits, then those with 4, 3, 2, 1 joined ones
    assert significant(_cosine_of_noise(24, 200, 0), lambda s: np.arange(len(s)) % 6).max() == 0
    assert len(measured) == len(set(measured)) == 3 + 15 + 4 + 3 + 2 + 1
    assert spectra


@pytest.mark.parametrize("seed", [23, 27])
def test_the_largest_eigenvalue_is_found_from_a_start_nearly_orthogonal_to_it(seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(MANY, 300)) / 300**0.5
    values, vectors = np.linalg.eigh(rows @ rows.T - np.eye(MANY))
    start = np.cos(np.arange(MANY)) / np.linalg.norm(np.cos(np.arange(MANY)))
    first = vectors[:, -1]
    turned = first - start * (first @ start)
    turned = turned / np.linalg.norm(turned) + 3e-5 * start
    across = first - turned / np.linalg.norm(turned)
    across /= np.linalg.norm(across)
    mirrored = vectors - 2 * np.outer(across, across @ vectors)
    found = largest_eigenvalue((mirrored * values) @ mirrored.T)
    assert found == pytest.approx(values[-1], rel=1e-5)
