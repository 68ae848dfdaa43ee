"""What the layers of a network draw has a key of its own for each client and round."""

import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # where user_networks is
import user_networks as user

from fl_app import client_wiring, wiring
from fl_app.client.draws import keyed_layers
from fl_app.config import load
from fl_app.one_run import run
from fl_app.params import FlatModule
from fl_app.records.models import read_models
from fl_app.rng import global_seeds

SMALL = ["population.clients=5", "population.groups=1", "population.train_samples=40",
         "population.test_samples=20", "strategy=fedavg", "strategy.participation=1", "rounds=2",
         "client.epochs=2", "network=mcmahan_cnn"]  # fmt: skip
QUIET = ["records.figures=false", "records.report=false", "tracking=none"]
DRAWING = ("dropout", "unplanned", "layer_drop")


def _models(folder: Path, network: str, *overrides: str) -> dict[str, np.ndarray]:
    run([*SMALL, *QUIET, f"network._target_=user_networks.{network}", *overrides], folder)
    return read_models(folder)[0]


@pytest.mark.parametrize("network", DRAWING)
def test_a_run_repeats_itself_however_its_clients_share_the_work(
    network: str, tmp_path: Path
) -> None:
    ways = ["engine.workers=1"], ["engine.workers=3"], ["client.cohort=single"]
    if network != "dropout":  # which is refused by name in a fused cohort
        ways += (["client.cohort=fused", "client.cohort_size=3"],)
    found = [_models(tmp_path / str(n), network, *way) for n, way in enumerate(ways)]
    for other in found[1:]:
        for name, tensor in found[0].items():
            np.testing.assert_array_equal(tensor, other[name])


def test_a_cohort_that_draws_says_that_it_trains_one_by_one(tmp_path: Path) -> None:
    _models(tmp_path, "unplanned", "client.cohort=fused")
    assert "clients train one by one" in (tmp_path / "run.log").read_text()


def test_clients_and_rounds_draw_apart() -> None:
    config = load([*SMALL, "network._target_=user_networks.dropout"])
    _, start = wiring.initial_model(config)
    client = client_wiring.client(config, 0)
    masks = {}
    for server_round in (1, 1, 2):
        seen = []
        handle = client.learner.flat.module[3].register_forward_hook(
            lambda _, __, output, seen=seen: seen.append(output.detach() == 0)
        )
        client.fit(start, server_round=server_round)
        handle.remove()
        masks.setdefault(server_round, []).append(torch.cat(seen))
    assert torch.equal(*masks[1])
    assert not torch.equal(masks[1][0], masks[2][0])


def test_a_network_that_does_not_draw_needs_no_turn() -> None:
    config = load([*SMALL, "network._target_=user_networks.unused"])
    _, start = wiring.initial_model(config)
    client = client_wiring.client(config, 0)
    assert client.learner.flat.draws is None
    client.score(start, train_data=False, server_round=1)
    assert client.learner.flat.draws is None
    client.fit(start, server_round=1)
    assert client.learner.flat.draws is False


@pytest.mark.parametrize("cohort", ["single", "fused"])
def test_a_training_without_an_epoch_does_not_show_whether_a_network_draws(cohort: str) -> None:
    network = "unplanned" if cohort == "fused" else "dropout"
    words = [*SMALL, f"network._target_=user_networks.{network}", f"client.cohort={cohort}"]
    config = load([*words, "client.epochs={low: 0, high: 0, share: 1}"])
    _, start = wiring.initial_model(config)
    client = client_wiring.client(config, 0)
    client.fit(start, server_round=1)
    assert client.learner.flat.draws is None


def test_the_global_generators_are_as_they_were() -> None:
    flat = FlatModule(user.dropout((1, 2, 2), 2))
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    with keyed_layers(flat, 3):
        torch.rand(2), np.random.rand(), random.random()
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (np.random.get_state()[1].tolist(), random.getstate())
    assert flat.draws is True


@pytest.mark.parametrize("use", [torch.rand, np.random.rand, random.randbytes])
def test_a_use_of_any_global_generator_is_seen_and_repeated(use) -> None:
    drawn = []
    for _ in range(2):
        with global_seeds(1) as states:
            assert not states.moved()
            drawn.append(use(1))
            assert states.moved()
    assert drawn[0] == drawn[1]
