"""Updates without the drift that all have in common, also where some have more noise."""

import numpy as np
import pytest

from fl_app.graph.common_drift import Updates, drift_shares, without_drift

WIDE = 2000


def _cohort(updates: np.ndarray) -> Updates:
    models = (1 - updates).astype(np.float32)
    start = np.ones((1, updates.shape[1]), np.float32)
    return Updates(start, np.zeros(len(updates), int), models)


def _drifted(noise: np.ndarray, seed: int, steps: np.ndarray | float = 1.0) -> np.ndarray:
    """Return updates (n, d) of one drift, `steps` long, with independent noise (n,)."""
    draw, drift = np.random.default_rng(seed), np.random.default_rng(99).normal(size=WIDE)
    found: np.ndarray = np.outer(steps * np.ones(len(noise)), drift)
    return found + noise[:, None] * draw.normal(size=found.shape)


def test_shares_are_those_of_the_drift_in_updates_of_one_length() -> None:
    noise = np.array([1.0] * 6 + [3.0] * 6)
    shares, weights = drift_shares(_cohort(_drifted(noise, 0)))
    # unit updates have the shares 1 / sqrt(2) and 1 / sqrt(10) of the drift
    expected = 1 / np.sqrt(1 + noise**2)
    assert shares == pytest.approx(expected / expected.mean(), abs=0.05)
    assert weights @ shares == pytest.approx(1.0)
    # the variance of the unit noise is 1/2 and 9/10
    ratio = (expected[0] / 0.5) / (expected[-1] / 0.9)
    assert weights[0] / weights[-1] == pytest.approx(ratio, rel=0.1)


def test_shares_of_unequal_drifts_in_equal_noise_are_below_one_for_the_short_updates() -> None:
    steps = np.array([1.0] * 6 + [0.3] * 6)
    shares, _ = drift_shares(_cohort(_drifted(np.ones(12), 0, steps)))
    expected = steps / np.sqrt(steps**2 + 1)
    assert shares == pytest.approx(expected / expected.mean(), abs=0.1)


@pytest.mark.parametrize("steps", [1.0, np.array([1.0] * 6 + [5.0] * 6)])
def test_updates_of_one_direction_lose_only_their_mean(steps: np.ndarray | float) -> None:
    cohort = _cohort(_drifted(np.zeros(12), 0, steps))
    assert drift_shares(cohort)[0] == pytest.approx(np.ones(12), abs=1e-3)
    found = np.stack(list(without_drift(cohort, equally=True)))
    assert np.abs(found).max() < 1e-4


def test_groups_of_equal_lengths_lose_only_their_mean() -> None:
    """Nine and three clients: their products with the mean differ, but their lengths do not."""
    groups = np.eye(2, 50)[[0] * 9 + [1] * 3]
    cohort = _cohort(groups)
    assert drift_shares(cohort)[0].tolist() == [1.0] * 12
    found = np.stack(list(without_drift(cohort, equally=False)))
    np.testing.assert_allclose(found, groups - groups.mean(axis=0), atol=1e-6)


def test_noise_alone_has_no_shares() -> None:
    draw = np.random.default_rng(0)
    noise = np.repeat([1.0, 3.0], 6)[:, None] * draw.normal(size=(12, WIDE))
    cohort = _cohort(noise)
    found = np.stack(list(without_drift(cohort, equally=True)))
    unit = noise / np.linalg.norm(noise, axis=1)[:, None]
    assert np.linalg.norm(found - (unit - unit.mean(axis=0)), axis=1).max() < 0.2


@pytest.mark.parametrize("clients", [3, 4])
def test_what_is_left_of_few_or_still_clients_is_finite_and_has_no_mean(clients: int) -> None:
    updates = _drifted(np.arange(1.0, clients + 1), 0)
    for still in (0, 1, clients - 1, clients):
        updates[:still] = 0.0
        found = np.stack(list(without_drift(_cohort(updates), equally=False)))
        assert np.isfinite(found).all()
        if still == 0:
            assert np.abs(found.mean(axis=0)).max() < 1e-4


def test_what_is_left_of_the_drift_does_not_add_up_over_the_rounds() -> None:
    """Twelve clients alike but for their noise, 16 rounds: no part along the drift remains."""
    noise, drift = np.repeat([1.0, 3.0], 6), np.random.default_rng(99).normal(size=WIDE)
    total = np.zeros((12, WIDE))
    for seed in range(16):
        total += np.stack(list(without_drift(_cohort(_drifted(noise, seed)), equally=True)))
    along = total @ (drift / np.linalg.norm(drift))
    apart = abs(along[:6].mean() - along[6:].mean())
    # with the mean alone it is 16 (1 / sqrt(2) - 1 / sqrt(10)) = 6.3
    assert apart < 0.3
