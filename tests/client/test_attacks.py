"""What attacks do, by hand and by property; who is malicious, and when."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fl_app.client import poisoning
from fl_app.client.attacks import Attack
from fl_app.composition import choices
from fl_app.wiring import made

UPDATE = np.array([3.0, -4.0], np.float32)
HONEST = np.array([[1.0, 2.0], [3.0, 2.0]], np.float32)
ATTACKS = [made(f"attack={name}") for name in choices("attack")]
FORGERS = [
    each
    for each in ATTACKS
    if type(each).forge is not Attack.forge and type(each).poison is Attack.poison
]
"""Attacks on updates alone."""


def _draw() -> np.random.Generator:
    return np.random.default_rng(0)


def test_attacks_on_updates_by_hand() -> None:
    assert poisoning.minus_grad(UPDATE).tolist() == [-3.0, 4.0]
    assert poisoning.scaled(UPDATE, factor=-2.0).tolist() == [-6.0, 8.0]
    assert poisoning.zero(UPDATE).tolist() == [0.0, 0.0]
    assert poisoning.ipm(HONEST, epsilon=0.5).tolist() == [-1.0, -1.0]
    assert poisoning.alie(HONEST, clients=10, malicious=2, z=1.5).tolist() == [0.5, 2.0]


def test_full_knowledge_turns_the_mean_around() -> None:
    """Three loyal of mean (2, 2) and one malicious: the mean of the four is -(2, 2)."""
    loyal = np.array([[1, 1], [2, 2], [3, 3]], np.float32)
    forged = poisoning.full_knowledge(loyal, clients=4, malicious=1, factor=1.0)
    assert forged.tolist() == [-14.0, -14.0]
    assert np.vstack([loyal, forged]).mean(axis=0).tolist() == [-2.0, -2.0]


def test_a_little_is_as_much_as_still_hides() -> None:
    # 50 clients, 24 malicious: 2 helpers, (50 - 24 - 2) / 26 = 0.923 of the normal law below
    crafted = poisoning.alie(HONEST, clients=50, malicious=24, z=None)
    np.testing.assert_allclose((2.0 - crafted[0]) / 1.0, 1.4260768722, rtol=1e-5)
    majority = poisoning.alie(HONEST, clients=10, malicious=6, z=None)
    assert np.isfinite(majority).all()


@given(st.integers(0, 2**31), st.floats(0.01, 10))
def test_noise_has_its_deviation_and_random_the_length(seed: int, sigma: float) -> None:
    update = np.random.default_rng(seed).normal(size=4000).astype(np.float32)
    noise = poisoning.gaussian(update, sigma=sigma, generator=np.random.default_rng(seed))
    assert noise.dtype == np.float32
    np.testing.assert_allclose(noise.std(), sigma, rtol=0.1)
    sent = poisoning.random(update, generator=np.random.default_rng(seed))
    np.testing.assert_allclose(np.linalg.norm(sent), np.linalg.norm(update), rtol=1e-4)


def test_attacks_on_data_by_hand() -> None:
    labels = torch.tensor([0, 1, 2, 1])
    assert poisoning.label_flip(labels, target=3).tolist() == [3, 3, 3, 3]
    assert poisoning.pairwise_flip(labels, source=1, target=0).tolist() == [0, 0, 2, 0]
    images = torch.zeros(4, 1, 3, 3)
    noisy = poisoning.noisy(images, low=-10, high=10, generator=torch.Generator().manual_seed(0))
    assert noisy.abs().max() <= 10
    assert noisy.std() > 4
    assert not images.any()
    assert labels.tolist() == [0, 1, 2, 1]


@pytest.mark.parametrize(("share", "count"), [(0.5, 20), (0.01, 1), (1.0, 40)])
def test_a_backdoor_marks_images_of_all_classes_whatever_their_order(
    share: float, count: int
) -> None:
    images, labels = torch.zeros(40, 1, 3, 3), torch.arange(4).repeat_interleave(10)
    draw = torch.Generator().manual_seed(0)
    marked, called = poisoning.backdoor(
        images, labels, target=4, share=share, size=2, value=7.0, generator=draw
    )
    chosen = marked.flatten(1).any(dim=1)
    assert int(chosen.sum()) == count
    assert torch.equal(called, torch.where(chosen, 4, labels))
    assert marked[chosen][0, 0].tolist() == [[0, 0, 0], [0, 7, 7], [0, 7, 7]]
    assert len(labels[chosen].unique()) == min(count, 4)
    assert not images.any()
    assert labels.max() == 3


def test_the_malicious_are_drawn_by_the_seed_or_named() -> None:
    drawn = made("attack=minus_grad", share=0.3)
    assert len(drawn.malicious(100, seed=0)) == 30
    assert drawn.malicious(100, seed=0) == drawn.malicious(100, seed=0)
    assert drawn.malicious(100, seed=0) != drawn.malicious(100, seed=1)
    assert made("attack=minus_grad", clients=[4, 2]).malicious(5, seed=0) == {2, 4}
    assert made("attack=none").malicious(5, seed=0) == frozenset()


def test_an_attack_starts_and_stops() -> None:
    attack = made("attack=zero", start=3, stop=5)
    assert [attack.active(r) for r in range(1, 8)] == [False] * 2 + [True] * 3 + [False] * 2
    assert made("attack=zero").active(10**6)


def test_clients_and_labels_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match=r"attack.clients must be below .*=5, got \[5, 9\]"):
        made("attack=zero", clients=[1, 5, 9]).check(clients=5, classes=10)
    with pytest.raises(ValueError, match=r"attack\.source must be below the 10 classes, got 10"):
        made("attack=label_flip", source=10).check(clients=5, classes=10)
    with pytest.raises(ValueError, match="needs at least one loyal client, but all 5"):
        made("attack=full_knowledge", share=1.0).check(clients=5, classes=10)


@pytest.mark.parametrize("option", ["attack=alie", "attack=full_knowledge"])
def test_colluders_assume_a_loyal_client_in_a_round(option: str) -> None:
    made(option, cohort=5, attackers=4).check(clients=10, classes=10)
    with pytest.raises(ValueError, match=r"attackers must be below attack.cohort=5 .* got 5: "):
        made(option, cohort=5, attackers=5).check(clients=10, classes=10)


@pytest.mark.parametrize("attack", FORGERS, ids=lambda attack: type(attack).__name__)
def test_every_forger_sends_a_finite_update_of_the_same_form(attack: Attack) -> None:
    forged = attack.forge(UPDATE, _draw(), lambda: HONEST)
    assert forged.shape == UPDATE.shape
    assert forged.dtype == np.float32
    assert np.isfinite(forged).all()
    assert not np.array_equal(forged, UPDATE)


def test_forgers_leave_the_true_update_alone() -> None:
    for attack, _ in itertools.product(FORGERS, range(2)):
        attack.forge(UPDATE, _draw(), lambda: HONEST)
    assert UPDATE.tolist() == [3.0, -4.0]
