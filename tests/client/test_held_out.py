"""Samples that a client holds out to compare two models."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fl_app import client_wiring
from fl_app.client.held_out import losses, penalised, rest, split
from fl_app.client.learner import TrainingJob, TrainingResult
from fl_app.config import load
from fl_app.learner_reports import (
    HELD_OUT,
    HELD_OUT_PARTS,
    HOLDS_OUT,
    LARGEST,
    WRONG_ADDS,
    request,
)
from fl_app.strategies.trial import LOSSES
from fl_app.wiring import initial_model


@pytest.mark.parametrize("samples", [1, 2, 3, 20, 101])
def test_a_fifth_is_held_out_and_never_trained_on(samples: int) -> None:
    kept, parts = split(samples, seed=0, client=3)
    out = torch.cat(list(parts))
    assert len(parts) == HELD_OUT_PARTS
    assert sorted([*kept.tolist(), *out.tolist()]) == list(range(samples))
    assert len(out) == {1: 0, 2: 1, 3: 1, 20: 4, 101: 20}[samples]
    again, _ = split(samples, seed=0, client=3)
    assert torch.equal(kept, again)


@pytest.mark.parametrize("samples", [1, 2, 3, 20, 101])
def test_some_of_the_rest_come_twice_in_place_of_those_held_out(samples: int) -> None:
    kept, numbers = split(samples, seed=0, client=3)[0].tolist(), torch.arange(samples)
    found = []
    for number in (1, 2):
        draw = torch.Generator().manual_seed(number)
        images, labels = rest(numbers.float(), numbers, seed=0, client=3, again=draw)
        found.append(sorted(labels.tolist()))
        assert images.tolist() == labels.tolist()
        assert len(labels) == samples
        assert set(labels.tolist()) == set(kept)
        assert labels.bincount().max() <= 2
    assert samples < 20 or found[0] != found[1], "others in each round"


@pytest.mark.parametrize(
    ("privacy", "batch", "trained"), [("none", 4, 20), ("none", 10, 16), ("sample_dp", 4, 16)]
)
def test_a_trial_has_the_steps_of_all_samples_but_no_private_sample_twice(
    privacy: str, batch: int, trained: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["population.clients=2", "population.train_samples=20", f"privacy={privacy}"]
    config = load([*words, f"client.batch_size={batch}"])
    client, (_, start) = client_wiring.client(config, 0), initial_model(config)
    jobs: list[TrainingJob] = []

    def train(job: TrainingJob) -> TrainingResult:
        jobs.append(job)
        return TrainingResult(job.start, 0.0, 0.0)

    monkeypatch.setattr(client.learner, "train", train)
    client.fit(start, server_round=1, task={HOLDS_OUT: True})
    assert [len(job.labels) for job in jobs] == [trained]


def test_losses_are_those_of_each_model_on_each_part_and_finite() -> None:
    parts = [torch.tensor([0, 1]), torch.tensor([], dtype=torch.long)]
    models = [np.array([2.0], np.float32), np.array([np.nan], np.float32)]
    found = losses(models, parts, lambda model, part: float(model[0]) * len(part))
    np.testing.assert_array_equal(found, np.array([4.0, 0.0, LARGEST, 0.0], np.float32))


def test_a_wrong_answer_adds_ten_to_a_loss() -> None:
    assert penalised(0.5, None) == 0.5
    assert penalised(0.5, 1.0) == 0.5
    assert penalised(0.5, 0.8) == pytest.approx(2.5)
    sure, right = penalised(0.4, 0.7), penalised(0.7, 0.75)
    assert right < sure, "a lower loss does not outweigh wrong answers"


def test_a_client_compares_two_models_and_trains_on_the_rest() -> None:
    config = load(["population.clients=2", "population.train_samples=20", "client.epochs=1"])
    client, (_, start) = client_wiring.client(config, 0), initial_model(config)
    task = request({HELD_OUT: LOSSES})
    whole = client.fit(start, server_round=1).model.copy()
    first = client.fit(start, server_round=1, task=task, other=whole)
    assert (first.model != whole).any()
    told = np.asarray(first.reports[HELD_OUT]).reshape(2, HELD_OUT_PARTS)
    assert (told[0] != told[1]).all()
    same = client.fit(start, server_round=1, task=task, other=start).reports[HELD_OUT]
    np.testing.assert_array_equal(np.split(np.asarray(same), 2)[0], told[0])
    np.testing.assert_array_equal(*np.split(np.asarray(same), 2))


@pytest.mark.parametrize(("privacy", "adds"), [("none", True), ("sample_dp", False)])
def test_wrong_answers_add_if_the_server_says_so_and_no_privacy_is(
    privacy: str, adds: bool
) -> None:
    config = load(["population.clients=2", "population.train_samples=40", f"privacy={privacy}"])
    client, (_, start) = client_wiring.client(config, 0), initial_model(config)
    ask = request({HELD_OUT: LOSSES})
    tasks: tuple[dict[str, float], ...] = (ask, {**ask, WRONG_ADDS: True})
    before, after = (
        np.asarray(client.fit(start, server_round=1, task=task, other=start).reports[HELD_OUT])
        for task in tasks
    )
    wrong = (after - before).round(4)  # two samples a part
    assert set(wrong.tolist()) <= {0.0, 5.0, 10.0}
    assert (wrong.max() > 0) == adds


def test_what_is_held_out_before_a_trial_moves_no_model_and_no_choice() -> None:
    config = load(["population.clients=2", "population.train_samples=20", "client.epochs=1"])
    client, (_, start) = client_wiring.client(config, 0), initial_model(config)
    data = client.load(1)
    labels = data.train_labels.clone()
    for part in split(len(labels), seed=client.seed, client=0)[1]:
        labels[part] = (labels[part] + 1) % 10
    changed = replace(client, load=lambda _: replace(data, train_labels=labels))
    other = client.fit(start, server_round=1).model.copy()
    found = []
    for task in ({HOLDS_OUT: True}, {}):
        models = [each.fit(start, server_round=1, task=task).model.copy()
                  for each in (client, changed)]  # fmt: skip
        offered = [each.offered_losses([start, other], server_round=1, task=task)
                   for each in (client, changed)]  # fmt: skip
        found.append((np.array_equal(*models), np.array_equal(*offered)))
    assert found == [(True, True), (False, False)]
    trial = client.fit(start, server_round=1, task=request({HELD_OUT: LOSSES}), other=other)
    held = client.fit(start, server_round=1, task={HOLDS_OUT: True})
    assert not held.reports
    np.testing.assert_array_equal(held.model, trial.model)
