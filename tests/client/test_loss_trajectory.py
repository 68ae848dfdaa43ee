"""The report of how a client's loss ran: by hand, and equal in a fused cohort."""

import numpy as np
import pytest
import torch

from fl_app import client_wiring, wiring
from fl_app.client.learner import TrainingJob
from fl_app.client.loss_trajectory import trajectory
from fl_app.config import load

SMALL = (
    "population=quantity_skew", "population.clients=3", "population.train_samples=30",
    "population.test_samples=5", "network=mlp", "client.epochs=2", "client.batch_size=8",
)  # fmt: skip
TASK = {"report.loss_trajectory": 4}


def test_parts_by_hand() -> None:
    losses = [torch.tensor(float(each)) for each in (5, 4, 3, 2, 1)]
    np.testing.assert_allclose(trajectory(losses, 2), [4.5, 2.0])
    np.testing.assert_allclose(trajectory(losses, 5), [5, 4, 3, 2, 1])
    # fewer iterations than parts: one iteration is in several parts
    np.testing.assert_allclose(trajectory(losses[:2], 4), [5, 5, 4, 4])
    np.testing.assert_array_equal(trajectory([], 3), np.zeros(3, np.float32))


@pytest.mark.parametrize("client", range(3))
def test_a_client_tells_it_if_it_is_asked_and_trains_the_same(client: int) -> None:
    config = load(list(SMALL))
    local, (_, start) = client_wiring.client(config, client), wiring.initial_model(config)
    plain = local.fit(start, server_round=1)
    model = plain.model.copy()
    assert plain.reports == {}
    asked = local.fit(start, server_round=1, task=TASK)
    np.testing.assert_array_equal(asked.model, model)
    told = asked.reports["loss_trajectory"]
    assert told.shape == (4,)
    assert (told > 0).all()
    # the last two of four parts are the second of two epochs, up to unequal batches
    assert told[2:].mean() == pytest.approx(asked.loss, rel=0.2)


def test_a_fused_cohort_tells_the_same() -> None:
    config = load([*SMALL, "client.device=cpu"])
    learner, people = client_wiring.client(config, 0).learner, wiring.shared_population(config)
    (_, start), told = wiring.initial_model(config), []

    def jobs() -> list[TrainingJob]:
        each = [people.client(client) for client in range(3)]
        return [
            TrainingJob(
                start, data.train_images, data.train_labels, torch.Generator().manual_seed(7), TASK
            )
            for data in each
        ]

    for done in ([learner._single(job) for job in jobs()], learner._cohort(jobs())):
        told.append([each.reports["loss_trajectory"] for each in done])
    np.testing.assert_allclose(told[1], told[0], rtol=1e-4)
