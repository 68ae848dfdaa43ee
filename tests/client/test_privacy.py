"""Clipping and noise by hand and by property; what they cost; what a client sends under them."""

import secrets
import warnings
from dataclasses import replace
from functools import partial
from math import inf
from statistics import NormalDist

import numpy as np
import pytest
import torch
from flwr.common import FitIns, Parameters
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fl_app import client_wiring, wiring
from fl_app.client import accountant, local_dp, private_training
from fl_app.client.accountant import Release, whole_update
from fl_app.client.class_losses import LOSSES
from fl_app.client.draws import Draws
from fl_app.client.loss_trajectory import TRAJECTORY
from fl_app.client.subspaces import SUBSPACE
from fl_app.client.training_plan import TrainingPlan
from fl_app.client_app import FederatedClient
from fl_app.compatibility import problems
from fl_app.config import Config, ConfigError, load
from fl_app.learner_reports import HELD_OUT, OFFERED, PREFIX
from fl_app.params import to_bytes
from fl_app.strategies.sampling import CohortSampler
from fl_app.wiring import made

guard = partial(made, "privacy=local_dp")

UPDATES = arrays(np.float32, st.integers(1, 40), elements=st.floats(-100, 100, width=32))
SMALL = ["population.clients=4", "population.train_samples=40", "population.test_samples=20",
         "client.epochs=2", "population=iid", "strategy=fedavg", "rounds=5"]  # fmt: skip


def _config(*overrides: str) -> Config:
    return load([*SMALL, *overrides], also=problems)


def _update(config: Config, client_id: int = 0, server_round: int = 1, **task: float) -> np.ndarray:
    """Return what a client sends minus what it received."""
    _, start = wiring.initial_model(config)
    client = client_wiring.client(config, client_id)
    return client.fit(start, server_round=server_round, task=task).model - start


def test_clipping_and_the_next_bound_by_hand() -> None:
    update = np.array([3.0, -4.0], np.float32)
    assert local_dp.clip(update, bound=2.5).tolist() == [1.5, -2.0]
    assert local_dp.clip(update, bound=5.0).tolist() == [3.0, -4.0]
    for lost in (np.nan, np.inf):  # what is not finite would show through any noise
        assert local_dp.clip(np.array([1, lost], np.float32), bound=5.0).tolist() == [0.0, 0.0]
    assert local_dp.next_bound(2.0, 0.9, quantile=0.5, rate=0.2) == pytest.approx(1.846233)
    assert local_dp.next_bound(2.0, 40.0, quantile=0.5, rate=0.2) == pytest.approx(1.809675)
    assert local_dp.noise_norm(10_000, noise_multiplier=0.5) == 50.0
    with pytest.raises(ValueError, match="the clip bound must be positive, got 0"):
        local_dp.clip(update, bound=0)


@given(UPDATES, st.floats(1e-3, 1e3))
def test_a_clipped_update_is_within_the_bound_and_keeps_its_direction(
    update: np.ndarray, bound: float
) -> None:
    clipped = local_dp.clip(update, bound=bound)
    length, whole = np.linalg.norm(clipped.astype(float)), np.linalg.norm(update.astype(float))
    assert length <= bound * (1 + 1e-5)
    np.testing.assert_allclose(length, min(bound, whole), rtol=1e-4, atol=1e-30)
    along = float(clipped.astype(float) @ update.astype(float))
    np.testing.assert_allclose(along, length * whole, rtol=1e-3, atol=1e-20)
    assert clipped.dtype == np.float32


@given(st.integers(0, 2**31), st.floats(0.01, 100))
def test_noise_has_its_deviation_whatever_the_update(seed: int, deviation: float) -> None:
    def noisy(update: np.ndarray) -> np.ndarray:
        draw = np.random.default_rng(seed)
        return local_dp.add_noise(update, deviation=deviation, generator=draw)

    update = np.full(4000, 3.0, np.float32)
    np.testing.assert_allclose((noisy(update) - update).std(), deviation, rtol=0.1)
    np.testing.assert_allclose(noisy(update) - 3, noisy(np.zeros(4000, np.float32)), atol=1e-4)


def test_whether_an_update_fits_is_told_under_noise() -> None:
    update, draw = np.ones(4, np.float32), np.random.default_rng(0)
    for bound, fits in ((1.9, 0.0), (2.0, 1.0)):
        assert local_dp.within(update, bound=bound, deviation=0, draw=draw) == fits


def test_one_gaussian_costs_about_what_is_separable_in_closed_form() -> None:
    # Balle and Wang, ICML 2018: deviation 0.49989 of the sensitivity for (10, 1e-5), which is
    # twice the bound; Renyi accounting may ask for up to 7 % more, never for less
    noise = accountant.update_noise(10.0, 1e-5, rounds=1)
    assert 2 * 0.49989 <= noise <= 2 * 0.49989 * 1.07
    many = accountant.update_noise(10.0, 1e-5, rounds=60)
    assert 2 * 0.49989 * 60**0.5 <= many <= 2 * 0.49989 * 60**0.5 * 1.07


@pytest.mark.parametrize("adaptive", [False, True])
def test_noise_and_epsilon_are_each_others_inverse(adaptive: bool) -> None:
    noise = accountant.update_noise(3.0, 1e-5, rounds=20, adaptive=adaptive)
    spent = accountant.spent([whole_update(noise, adaptive=adaptive)] * 20, 1e-5)
    assert spent == pytest.approx(3.0, rel=1e-3)
    assert spent <= 3.0


@pytest.mark.parametrize("epsilon", [0.01, 0.05, 0.2, 2.0])
def test_small_budgets_of_samples_have_a_noise_too(epsilon: float) -> None:
    noise = accountant.sample_noise(epsilon, 1e-5, 0.1, 100)
    release = accountant.Release(noise_multiplier=noise, rate=0.1, steps=100)
    spent = accountant.spent([release], 1e-5)
    assert 0.8 * epsilon < spent <= epsilon
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as of orders that end too early
        accountant.spent([release, release], 1e-5)


def test_a_budget_below_what_any_noise_shows_is_refused() -> None:
    least = accountant.least_sample_epsilon(1e-5)
    assert 0.001 < least < 0.002
    with pytest.raises(ValueError, match=r"must be within reach of DP-SGD with 4 .* got 0.001; "):
        accountant.sample_noise(0.001, 1e-5, 1.0, 4)


def test_epsilon_grows_with_rounds_falls_with_noise_and_forgets_no_order() -> None:
    some = [whole_update(4.0)] * 3 + [whole_update(8.0)]
    assert accountant.spent(some, 1e-5) == accountant.spent(some[::-1], 1e-5)
    assert accountant.spent([], 1e-5) == 0.0
    assert accountant.spent(some[:3], 1e-5) < accountant.spent(some, 1e-5)
    assert accountant.spent([whole_update(8.0)] * 4, 1e-5) < accountant.spent(some, 1e-5)
    assert accountant.spent([whole_update(0.0)], 1e-5) == inf
    assert accountant.update_noise(inf, 1e-5, rounds=9) == 0.0
    assert accountant.spent([whole_update(4.0, adaptive=True)], 1e-5) > accountant.spent(
        [whole_update(4.0)], 1e-5
    )


def test_a_budget_lasts_for_the_rounds_that_a_client_may_be_sampled_in() -> None:
    assert accountant.rounds_of_one(60, 1.0) == 60
    assert 0.1 * 200 < accountant.rounds_of_one(200, 0.1) < 45
    assert accountant.rounds_of_one(1, 0.5) == 1


@pytest.mark.parametrize(
    ("participation", "clients", "share"),
    [(0.1, 4, 0.25), (0.4, 12, 5 / 12), (0.01, 3, 1 / 3), (0.4, 20, 0.4), (0.07, 100, 0.07),
     (0.4, 11, 0.4), (1.0, 19, 1.0)],
)  # fmt: skip
def test_a_budget_lasts_for_cohorts_as_they_are_drawn(
    participation: float, clients: int, share: float
) -> None:
    """Of 4 clients 0.1 is one, so that each trains in 25 of 100 rounds. 0.1 of 100 would be 10."""
    config = load([
        "privacy=local_dp", "strategy=fedavg", f"strategy.participation={participation}",
        f"population.clients={clients}", "rounds=100", "tracking=none",
    ])  # fmt: skip
    plan = wiring.plan_of(config, 10)
    assert plan.participation == share
    for seed in range(5):
        sampler = CohortSampler(seed, participation)
        drawn = [sampler.draw(now, range(clients), "all") for now in range(1, 101)]
        counts = np.bincount(np.concatenate(drawn), minlength=clients)
        assert (counts > plan.rounds_of_one).mean() <= 0.01


def test_private_training_is_reckoned_by_sampled_steps() -> None:
    noise = accountant.sample_noise(10.0, 1e-5, 0.1, 200)
    once = accountant.spent([Release(noise, 0.1, 20)] * 10, 1e-5)
    assert 9.5 < once <= 10.0
    assert accountant.spent([Release(noise, 0.05, 20)] * 10, 1e-5) < once


def _plan(rounds: int = 5) -> TrainingPlan:
    return TrainingPlan(rounds=rounds, participation=1.0, samples=40, batch_size=10, epochs=2)


def test_the_budget_is_for_the_run_or_for_each_round() -> None:
    whole = guard(epsilon=10.0).release(_plan())
    each = guard(epsilon=10.0, budget="round").release(_plan())
    assert whole.noise_multiplier == accountant.update_noise(10.0, 1e-5, rounds=5)
    assert each.noise_multiplier == accountant.update_noise(10.0, 1e-5, rounds=1)
    assert guard(epsilon=10.0, budget="round").limit == inf
    assert guard(epsilon=2.0, noise_multiplier=3.0).release(_plan()).noise_multiplier == 3.0


def test_a_client_sends_its_update_clipped_with_noise_of_its_own() -> None:
    clip = _config("privacy=local_dp", "privacy.epsilon=inf", "privacy.clip=0.1")
    np.testing.assert_allclose(np.linalg.norm(_update(clip)), 0.1, rtol=1e-3)
    config = _config("privacy=local_dp", "privacy.noise_multiplier=2", "privacy.clip=0.1")
    noise = _update(config) - _update(clip)
    np.testing.assert_allclose(noise.std(), 0.2, rtol=0.05)
    np.testing.assert_array_equal(_update(config), _update(config))
    other = _update(config, 1) - _update(clip, 1)
    assert abs(np.corrcoef(noise, other)[0, 1]) < 0.1
    later = _update(config, 0, 2) - _update(clip, 0, 2)
    assert abs(np.corrcoef(noise, later)[0, 1]) < 0.1


@pytest.mark.parametrize("kind", ["local_dp", "sample_dp"])
def test_noise_from_the_system_needs_more_than_the_seed_of_a_generator(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "randbits", lambda bits: 1)  # as if the server had tried them all
    config = _config(f"privacy={kind}", "privacy.randomness=system")
    assert not np.array_equal(_update(config), _update(config))


def test_an_adaptive_client_takes_the_bound_of_the_round() -> None:
    options = ("privacy=local_dp", "privacy.epsilon=inf", "privacy.quantile=0.5")
    config = _config(*options)
    assert np.linalg.norm(_update(config, clip_bound=0.03)) == pytest.approx(0.03, rel=1e-3)
    guard = wiring.privacy(config)
    said = guard.protect(
        np.ones(4, np.float32), _plan(), {"clip_bound": 3.0}, Draws(0, 1, 0, keyed=True)
    )[1]
    assert said == {"fitting": 1.0}


@pytest.mark.parametrize("deviation", [0.05, 1.0, 5.0])
@pytest.mark.parametrize("fits", [0.0, 1.0])
def test_a_noisy_report_counts_on_average_as_what_it_reports(deviation: float, fits: float) -> None:
    steps = NormalDist(fits, deviation)
    reports = [steps.inv_cdf((place + 0.5) / 20_000) for place in range(20_000)]
    told = np.array([local_dp.share_within(each, deviation=deviation) for each in reports])
    assert told.mean() == pytest.approx(fits, abs=1e-3)
    assert told.std() < 1.06 * deviation
    for lie in (1e30, -1e30):
        assert abs(local_dp.share_within(lie, deviation=deviation) - 0.5) < 0.5 + 1.5 * deviation


def test_a_report_without_noise_counts_as_it_is() -> None:
    told = [local_dp.share_within(each, deviation=0.0) for each in (0.0, 1.0, -1e30, 1e30)]
    assert told == [0.0, 1.0, 0.0, 1.0]


def test_a_malicious_client_keeps_no_rules_while_it_attacks() -> None:
    options = ("attack=scaled", "attack.clients=[1]", "attack.factor=50", "attack.stop=1")
    private = ("privacy=local_dp", "privacy.epsilon=inf", "privacy.clip=0.1")
    config = _config(*options, *private)
    assert np.linalg.norm(_update(config, 1)) > 1
    assert np.linalg.norm(_update(config, 1, 2)) == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize("kind", ["local_dp", "sample_dp", "none"])
def test_a_private_client_tells_no_report_but_that_of_a_trial(
    kind: str,
) -> None:
    config = _config(f"privacy={kind}")
    _, start = wiring.initial_model(config)
    model = Parameters([to_bytes(start)] * 2, "numpy.ndarray")
    lengths = {LOSSES: 10, HELD_OUT: 8, OFFERED: 2, TRAJECTORY: 4, SUBSPACE: 64}
    task = {f"{PREFIX}{name}": length for name, length in lengths.items()}
    client = FederatedClient(client_wiring.client(config, 0))
    sent = client.fit(FitIns(model, {"round": 1, **task})).metrics
    told = {name for name in sent if name.startswith(PREFIX)}
    assert told == (task.keys() if kind == "none" else {f"{PREFIX}{HELD_OUT}"})


def test_private_training_bounds_each_sample_and_is_repeatable() -> None:
    plain = ["client.learning_rate=0.5", "client.epochs=1", "client.batch_size=40"]
    config = _config(*plain, "privacy=sample_dp", "privacy.epsilon=inf", "privacy.clip=0.01")
    update = _update(config)
    # one step of all 40 samples, each gradient at most 0.01 long: their mean is no longer
    assert 0 < np.linalg.norm(update) <= 0.5 * 0.01 * (1 + 1e-4)
    with_noise = [*plain, "privacy=sample_dp", "privacy.noise_multiplier=3", "privacy.clip=0.01"]
    noisy = _config(*with_noise)
    for each in (noisy, _config(*with_noise, "privacy.randomness=system")):
        noise = _update(each) - update
        np.testing.assert_allclose(noise.std(), 0.5 * 3 * 0.01 / 40, rtol=0.05)
    np.testing.assert_array_equal(_update(noisy), _update(noisy))


def test_several_steps_sum_the_same_gradients_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["client.epochs=2", "client.batch_size=10", "client.learning_rate=0.5"]
    config = _config(*options, "privacy=sample_dp", "privacy.epsilon=inf", "privacy.clip=0.01")
    found = []
    for at_once in (True, False):
        monkeypatch.setattr(private_training, "is_separable", lambda module, told=at_once: told)
        found.append(_update(config))
    assert np.linalg.norm(found[0]) > 0
    np.testing.assert_allclose(*found, atol=1e-6)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_sample_that_overflows_shows_in_no_update(
    at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_training, "is_separable", lambda module: at_once)
    plain = ["client.learning_rate=0.5", "client.epochs=1", "client.batch_size=40"]
    config = _config(*plain, "privacy=sample_dp", "privacy.epsilon=inf", "privacy.clip=0.01")
    _, start = wiring.initial_model(config)
    client = client_wiring.client(config, 0)
    data = client.load(1)
    images, others = data.train_images.clone(), data.train_images.clone()
    images[3] = inf
    before = replace(data, train_images=others[:3], train_labels=data.train_labels[:3])
    after = replace(data, train_images=others[4:], train_labels=data.train_labels[4:])
    moved = [
        replace(client, load=lambda _, given=given: given).fit(start, server_round=1).model - start
        for given in (replace(data, train_images=images), before, after)
    ]
    # means of 40, 3 and 36 gradients; that of the whole has one without a gradient
    np.testing.assert_allclose(40 * moved[0], 3 * moved[1] + 36 * moved[2], atol=1e-5)


def test_private_training_without_bound_and_noise_is_plain_sgd() -> None:
    options = ["client.batch_size=40", "client.epochs=1", "client.momentum=0.9"]
    options += ["client.proximal=0.1", "client.weight_decay=0.01"]
    private = ("privacy=sample_dp", "privacy.epsilon=inf", "privacy.clip=1e6")
    plain = _update(_config(*options))
    np.testing.assert_allclose(_update(_config(*options, *private)), plain, atol=1e-6)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["privacy=sample_dp", "data=image_folder", "network=mobilenet"], "batch normalisation"),
        (["privacy=sample_dp", "client.cohort=fused"], "client.cohort must not be fused"),
        (["privacy=sample_dp", "client.precision=bf16"], "client.precision must be fp32"),
        (["privacy=sample_dp", "privacy.epsilon=0.001"], r"privacy.epsilon must be above 0.0014 "),
        (["privacy=local_dp", "privacy.epsilon=null"], "got null for both"),
        (["privacy=local_dp", "privacy.noise_multiplier=0.5"], "costs epsilon .* in one round"),
        (["privacy=local_dp_round", "privacy.noise_multiplier=0.5"],
         "in one round, but privacy.epsilon=10 is less"),
        (["privacy=sample_dp_round", "privacy.noise_multiplier=0.3"],
         "in one round of a client with 40 samples, but privacy.epsilon=10 is less"),
        (["privacy=sample_dp", "privacy.noise_multiplier=0.01"], "costs epsilon .* in one round"),
        (["privacy=sample_dp_round", "privacy.noise_multiplier=1", "population=own",
          "engine=deployment", "data.standardise=false", "privacy.randomness=system"],
         "privacy.noise_multiplier must be null with privacy.budget=round and population=own"),
        (["privacy=local_dp", "privacy.delta=2"], "privacy.delta must be less than 1, got 2"),
        (["privacy=local_dp", "engine=deployment"], "privacy.randomness must be system"),
        (["privacy=sample_dp", "strategy=kmeans", "network=centroids", "network.k=3"],
         "privacy must be none with this network"),
    ],
)  # fmt: skip
def test_privacy_that_cannot_be_is_a_configuration_error(
    overrides: list[str], message: str
) -> None:
    if "data=image_folder" in overrides:
        overrides = [each for each in overrides if not each.startswith("data=")]
    with pytest.raises(ConfigError, match=message):
        _config(*overrides, "records.evaluate_every=0")


@pytest.mark.parametrize("known", [True, False])
def test_a_step_that_draws_no_sample_adds_its_noise(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Release] = []

    def empty(samples: int, release: Release, source: object) -> list[torch.Tensor]:
        drawn.append(release)
        return [torch.empty(0, dtype=torch.int64)] * release.steps

    monkeypatch.setattr(private_training, "_batches", empty)
    monkeypatch.setattr(private_training, "is_separable", lambda module: known)
    update = _update(_config("privacy=sample_dp", "privacy.clip=2", "network=mlp"))
    (release,) = drawn
    step = 0.05 * release.noise_multiplier * 2 / 10  # 10 samples are expected
    assert update.std() == pytest.approx(step * release.steps**0.5, rel=0.05)
    assert abs(update.mean()) < 0.1 * update.std()
