"""A user's own network from the first round to the saved model: what travels and what stays."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "client"))  # where user_networks is
from fl_app import client_wiring, server_wiring, wiring
from fl_app.client.training import evaluate
from fl_app.config import Config, load
from fl_app.one_run import run
from fl_app.records.models import read_models

SMALL = [
    "population.clients=6", "population.groups=2", "population.train_samples=60",
    "population.test_samples=30", "strategy=fedavg", "rounds=3", "client.epochs=5",
    "client.learning_rate=0.2", "records.figures=false", "tracking=none", "network=mcmahan_cnn",
]  # fmt: skip


def _run(folder: Path, network: str, *overrides: str) -> tuple[Config, dict[str, Any]]:
    given = [*SMALL, f"network._target_=user_networks.{network}", *overrides]
    run(given, folder)
    return load(given), json.loads((folder / "summary.json").read_text())


def _fresh(config: Config, state: dict[str, np.ndarray]) -> nn.Module:
    """Return the network as its constructor makes it, with a saved state loaded strictly."""
    data = wiring.shared_population(config).dataset
    module: nn.Module = config.network.resolve()(data.shape, data.classes)
    module.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()}, strict=True)
    return module


def _accuracies(config: Config, folder: Path, summary: dict[str, Any]) -> list[float]:
    """Return what each client scores on its test data with the saved model of its community."""
    models = [_fresh(config, state) for state in read_models(folder)]
    people = wiring.shared_population(config)
    scores = []
    rows = summary["communities"]["assignment"] or {}
    for client in range(people.clients):
        row, data = rows.get(str(client), 0), people.client(client)
        score = evaluate(models[row], data.test_images, data.test_labels, precision="fp32")
        scores.append(score.accuracy)
    return scores


@pytest.mark.parametrize("strategy", ["fedavg", "communities"])
@pytest.mark.parametrize("network", ["Everything", "frozen_backbone", "batch_norm"])
def test_a_saved_model_loads_strictly_and_scores_what_was_recorded(
    network: str, strategy: str, tmp_path: Path
) -> None:
    config, summary = _run(tmp_path, network, f"strategy={strategy}")
    assert summary["status"] == "completed"
    assert summary["clients"]["failed"] == summary["clients"]["rejected"] == 0
    found = _accuracies(config, tmp_path, summary)
    assert np.mean(found) == pytest.approx(summary["accuracy"]["mean"], abs=1e-12)
    assert summary["accuracy"]["mean"] > 0.15  # of ten classes


def test_what_no_client_trains_is_what_the_constructor_made(tmp_path: Path) -> None:
    config, _ = _run(tmp_path, "Everything")
    made = wiring.network(config, wiring.shared_population(config).dataset)
    client = client_wiring.client(config, 0).learner.flat
    for state in read_models(tmp_path):
        assert state.keys() == made.state_dict().keys()
        for name in ("position_ids", "even", "masked", "frozen.weight", "frozen.bias"):
            np.testing.assert_array_equal(state[name], made.state_dict()[name].numpy())
            assert torch.equal(client.module.state_dict()[name], made.state_dict()[name])
        np.testing.assert_array_equal(state["tied.weight"], state["again.weight"])
        assert (state["first.weight"] != made.first.weight.detach().numpy()).any()


def test_frozen_weights_stay_and_only_the_head_travels(tmp_path: Path) -> None:
    config, _ = _run(tmp_path, "frozen_backbone", "client.weight_decay=0.1", "client.proximal=0.1")
    layout, start = wiring.initial_model(config)
    assert layout.names == ("1.weight", "1.bias")
    assert len(start) == 32 * 10 + 10
    rounds = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    assert rounds[0]["bytes"]["up"] < 6 * (4 * len(start) + 1000)
    made = wiring.network(config, wiring.shared_population(config).dataset).state_dict()
    for state in read_models(tmp_path):
        for name in made.keys() - set(layout.names):
            np.testing.assert_array_equal(state[name], made[name].numpy())
        assert (state["1.weight"] != made["1.weight"].numpy()).all()


def test_a_fused_cohort_trains_a_frozen_network_as_single_clients_do(tmp_path: Path) -> None:
    options = ("client.momentum=0.5", "client.proximal=0.1", "client.weight_decay=0.01")
    found = {}
    for kind in ("single", "fused"):
        _run(tmp_path / kind, "frozen_backbone", *options, f"client.cohort={kind}")
        found[kind] = read_models(tmp_path / kind)
    for single, fused in zip(found["single"], found["fused"], strict=True):
        for name in single:
            np.testing.assert_allclose(single[name], fused[name], atol=1e-4)


def test_models_of_all_threads_share_what_does_not_travel(tmp_path: Path) -> None:
    one, two = (tmp_path / name for name in ("one", "two"))
    _run(one, "Everything", "engine.workers=1")
    _run(two, "Everything", "engine.workers=3")
    for ours, theirs in zip(read_models(one), read_models(two), strict=True):
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])


def test_the_central_test_scores_the_network_that_was_trained(tmp_path: Path) -> None:
    config, _ = _run(tmp_path, "Everything", "records.central_test=true")
    last = json.loads((tmp_path / "rounds.jsonl").read_text().splitlines()[-1])
    central = server_wiring.central_test(config)
    assert central is not None
    module = _fresh(config, read_models(tmp_path)[0])
    score = evaluate(module, central.images, central.labels, precision="fp32")
    assert score.accuracy == pytest.approx(last["central"]["global"], abs=1e-12)
