"""Losses on training data under a privacy: clipped, with noise, and booked with the updates."""

from functools import partial
from math import inf, sqrt

import numpy as np
import pytest
import torch
from flwr.common import FitIns, Parameters
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fl_app import client_wiring
from fl_app.client import accountant, private_losses
from fl_app.client.accountant import Release, whole_update
from fl_app.client.private_losses import SHARED, TOLD, mean_of_clipped
from fl_app.client.training_plan import TrainingPlan
from fl_app.client_app import FederatedClient
from fl_app.compatibility import problems
from fl_app.config import ConfigError, load
from fl_app.learner_reports import HELD_OUT, PREFIX, request
from fl_app.params import to_bytes
from fl_app.strategies.trial import LOSSES as TRIAL
from fl_app.wiring import initial_model, made

local_dp = partial(made, "privacy=local_dp")
sample_dp = partial(made, "privacy=sample_dp")
SMALL = ["population=iid", "population.clients=4", "population.train_samples=40",
         "population.test_samples=20", "client.epochs=1", "rounds=5"]  # fmt: skip
LOSSES = arrays(np.float32, st.integers(1, 30), elements=st.floats(width=32))


def _plan(rounds: int = 5, *, losses: bool = True, batch: int = 10) -> TrainingPlan:
    return TrainingPlan(rounds, 1.0, 40, batch, 1, losses=losses)


def test_losses_are_clipped_before_their_mean_by_hand() -> None:
    losses = np.array([1.0, 9.0, -2.0, np.nan, np.inf])
    assert mean_of_clipped(losses, bound=4.0) == (1 + 4 + 0 + 4 + 4) / 5


@given(LOSSES, st.floats(width=32), st.data())
def test_one_sample_changes_the_mean_by_at_most_the_bound_over_the_samples(
    losses: np.ndarray, other: float, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(losses) - 1))
    changed = losses.copy()
    changed[place] = other
    before, after = (mean_of_clipped(each, bound=4.0) for each in (losses, changed))
    assert abs(before - after) <= 4.0 / len(losses) * (1 + 1e-9)


def test_noise_is_that_of_the_sensitivity_by_hand() -> None:
    for guard, sensitivity in ((sample_dp(), 4.0 / 40), (local_dp(), 4.0)):
        noise = guard.loss_release(_plan()).noise_multiplier
        for models in (1, 3):
            found = guard.loss_deviation(_plan(), models, 40)
            assert found == pytest.approx(noise * sqrt(models) * sensitivity)
    draw = np.random.default_rng(0)
    noisy = private_losses.with_noise(np.full(4000, 2.0), deviation=0.3, draw=draw)
    assert (noisy - 2.0).std() == pytest.approx(0.3, rel=0.05)
    assert len(np.unique(noisy)) > 3990


def test_noise_on_the_losses_of_a_trial_is_that_of_the_sensitivity_by_hand() -> None:
    # eight losses, of two models on four parts: a sample is in one part, a client in all
    for guard, changes in ((sample_dp(), sqrt(2) * 4.0 / 5), (local_dp(), sqrt(8) * 4.0)):
        noise = guard.loss_release(_plan()).noise_multiplier
        assert guard.part_deviation(_plan(), 5) == pytest.approx(noise * changes)
        assert guard.trial_deviation(_plan(), 20) == pytest.approx(noise * changes / 2)
    parts = [torch.arange(2), torch.arange(0), torch.arange(4), torch.arange(1)]
    draw, ones = np.random.default_rng(0), np.random.default_rng(0).standard_normal(8)
    told = private_losses.on_parts(np.ones(8, np.float32), parts, lambda n: 1 / n, draw)
    expected = 1 + ones * np.tile([0.5, 0, 0.25, 1], 2)
    np.testing.assert_allclose(told, expected, rtol=1e-6)


@pytest.mark.parametrize("kind", ["sample_dp", "local_dp"])
def test_the_losses_of_a_trial_are_clipped_and_the_only_answer_of_their_message(kind: str) -> None:
    words = [*SMALL, "strategy=fedavg", f"privacy={kind}", "privacy.loss_bound=0.5"]
    _, start = initial_model(config := load([*words, "privacy.epsilon=inf"]))
    models = Parameters([to_bytes(start), to_bytes(1e30 * start)], "")
    task = {"round": 1, SHARED: True, TOLD: True, **request({HELD_OUT: TRIAL})}
    assert private_losses.answers({**task, TOLD: False}, 1)
    sent = FederatedClient(client_wiring.client(config, 0)).fit(FitIns(models, task)).metrics
    assert "loss" not in sent
    assert sent["choice"] == 0
    losses = np.frombuffer(sent[f"{PREFIX}{HELD_OUT}"], "<f4")
    assert losses.tolist() == [0.5] * 8  # ln 10 and more, clipped


@pytest.mark.parametrize("epsilon", [1.0, 10.0])
@pytest.mark.parametrize(
    "guard",
    [local_dp, partial(local_dp, quantile=0.5), sample_dp, partial(sample_dp, loss_share=0.5)],
)
def test_updates_and_losses_together_cost_the_budget_of_the_run(
    guard: partial, epsilon: float
) -> None:
    whole, plan = guard(epsilon=epsilon), _plan()
    updates, told = whole.release(plan), whole.loss_release(plan)
    once = accountant.spent([updates] * 5 + [told] * 6, 1e-5)  # the last one as a newcomer
    assert 0.98 * epsilon <= once <= epsilon * (1 + 1e-6)
    assert updates.noise_multiplier > whole.release(_plan(losses=False)).noise_multiplier


@pytest.mark.parametrize("guard", [local_dp, sample_dp])
def test_a_budget_for_each_round_has_one_answer_in_it(guard: partial) -> None:
    each, plan = guard(budget="round", epsilon=2.0), _plan()
    spent = accountant.spent([each.release(plan), each.loss_release(plan)], 1e-5)
    assert 1.96 <= spent <= 2.0 * (1 + 1e-6)


@pytest.mark.parametrize("guard", [local_dp, sample_dp])
def test_without_losses_updates_have_the_whole_budget(guard: partial) -> None:
    plan = _plan(losses=False)
    shares = [guard(loss_share=share).release(plan).noise_multiplier for share in (0.1, 0.9)]
    assert shares[0] == shares[1]
    alone = guard(epsilon=10.0).loss_release(plan)
    assert accountant.spent([alone], 1e-5) < 10.0 / 2


def test_a_given_noise_gives_losses_their_share_of_what_it_costs() -> None:
    plan = _plan()
    guard = local_dp(noise_multiplier=4.0, epsilon=None)
    cost = accountant.spent([whole_update(4.0)] * 5, 1e-5)
    expected = accountant.loss_noise(cost, 1e-5, share=0.1, answers=6)
    assert guard.loss_release(plan).noise_multiplier == expected
    free = local_dp(epsilon=inf)
    assert free.loss_release(plan).noise_multiplier == 0.0
    assert accountant.spent([Release(0.0, losses=True)], 1e-5) == inf


@pytest.mark.parametrize("kind", ["sample_dp", "local_dp"])
def test_the_choice_and_the_told_loss_come_from_the_same_noisy_losses(kind: str) -> None:
    config = load([*SMALL, "strategy=fedavg", f"privacy={kind}", "privacy.epsilon=1"])
    _, start = initial_model(config)
    local = client_wiring.client(config, 0)
    client, models = FederatedClient(local), [start, -start, 2 * start]
    task = {"round": 1, SHARED: True, TOLD: True}
    given = Parameters([to_bytes(each) for each in models], "")
    told = client.fit(FitIns(given, dict(task))).metrics
    again = local.noisy_losses(models, server_round=1, task=task, purpose="losses of a training")
    assert told["choice"] == int(again.argmin())
    assert told["loss"] == float(again.min())
    noises = [
        local.noisy_losses([start] * 3, server_round=now, task=task, purpose="losses")
        for now in (1, 2)
    ]
    assert len(np.unique(noises)) == 6  # its own noise for each model and round
    assert "loss" not in client.fit(FitIns(given, {"round": 1, SHARED: True})).metrics


def test_system_noise_of_losses_cannot_be_foreseen() -> None:
    config = load([*SMALL, "strategy=fedavg", "privacy=sample_dp", "privacy.randomness=system"])
    _, start = initial_model(config)
    local = client_wiring.client(config, 0)
    asked = partial(local.noisy_losses, [start], server_round=1, task={}, purpose="losses")
    assert asked() != asked()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["strategy=ifca", "privacy=local_dp"], "choices would be drawn by lot; give privacy=samp"),
        (["strategy=ifca", "privacy=sample_dp", "privacy.epsilon=0.1"], "give a larger privacy.ep"),
        (["strategy=flic", "strategy.cluster_round=auto", "privacy=local_dp"], "drawn by lot"),
        (
            ["strategy=flic", "strategy.fallback=true", "privacy=local_dp"],
            "verdicts would be .* lot",
        ),
    ],
)
def test_losses_that_noise_would_hide_are_a_configuration_error(
    words: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load([*SMALL, *words], also=problems)


def test_losses_of_use_are_none() -> None:
    load([*SMALL, "strategy=ifca", "privacy=sample_dp", "privacy.epsilon=30"], also=problems)
    load([*SMALL, "strategy=flic", "strategy.cluster_round=2", "privacy=local_dp"], also=problems)
    trial = ["strategy=flic", "strategy.fallback=true", "privacy=sample_dp", "privacy.epsilon=30"]
    load(
        [*SMALL, *trial, "strategy.cluster_round=2", "population.train_samples=300"], also=problems
    )
