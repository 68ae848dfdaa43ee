"""Samples that a client holds out to compare two models."""

import numpy as np
import pytest
import torch

from fl_app import client_wiring
from fl_app.client.held_out import losses, split
from fl_app.config import load
from fl_app.learner_reports import HELD_OUT, HELD_OUT_PARTS, LARGEST, request
from fl_app.strategies.fallback import LOSSES
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


def test_losses_are_those_of_each_model_on_each_part_and_finite() -> None:
    parts = [torch.tensor([0, 1]), torch.tensor([], dtype=torch.long)]
    models = [np.array([2.0], np.float32), np.array([np.nan], np.float32)]
    found = losses(models, parts, lambda model, part: float(model[0]) * len(part))
    np.testing.assert_array_equal(found, np.array([4.0, 0.0, LARGEST, 0.0], np.float32))


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
