"""Batch normalisation that stays with each client (FedBN)."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import RecordDict

sys.path.insert(0, str(Path(__file__).parent))  # where user_networks is
import user_networks as user

from fl_app import client_wiring, wiring
from fl_app.client.normalisation import local_names
from fl_app.client_app import ContextMemory
from fl_app.compatibility import problems
from fl_app.config import ConfigError, load
from fl_app.one_run import run
from fl_app.records.models import read_models

NORM = ("2.weight", "2.bias", "2.running_mean", "2.running_var", "2.num_batches_tracked")
SMALL = ["population.clients=4", "population.groups=1", "population.train_samples=40",
         "population.test_samples=20", "strategy=fedavg", "strategy.participation=1", "rounds=2",
         "client.epochs=1", "network=mcmahan_cnn", "network._target_=user_networks.batch_norm",
         "client.batch_norm=local"]  # fmt: skip
QUIET = ["records.figures=false", "records.report=false", "tracking=none"]


def test_all_of_batch_normalisation_stays() -> None:
    module = user.batch_norm((1, 8, 8), 3)
    assert local_names(module, "average") == ()
    assert local_names(module, "local") == NORM


def test_only_the_rest_travels_and_is_compared() -> None:
    layout, start = wiring.initial_model(load(SMALL))
    assert not set(NORM) & set(layout.names)
    assert {"1.weight", "1.bias", "5.weight", "5.bias"} <= set(layout.names)
    averaged, whole = wiring.initial_model(load([*SMALL, "client.batch_norm=average"]))
    assert set(averaged.names) - set(layout.names) == set(NORM[:4])
    assert len(whole) - len(start) == 4 * user.HIDDEN


def test_each_client_goes_on_with_its_own_values() -> None:
    config = load(SMALL)
    _, start = wiring.initial_model(config)
    states = [RecordDict(), RecordDict()]
    memories = [ContextMemory(state) for state in states]
    clients = [client_wiring.client(config, c, memory=m) for c, m in enumerate(memories)]
    assert memories[0].read(9) == {}
    first = clients[0].fit(start, server_round=1).model.copy()
    after = memories[0].read(9)
    assert set(after) == set(NORM)
    assert after["2.num_batches_tracked"] == 4
    clients[1].fit(start, server_round=1)  # on the same network object
    assert not np.array_equal(memories[1].read(9)["2.running_mean"], after["2.running_mean"])
    trained = clients[0].score(first, train_data=False, server_round=1)
    np.testing.assert_array_equal(clients[0].learner.flat.local_state()["2.weight"],
                                  after["2.weight"])  # fmt: skip
    other = clients[1].score(first, train_data=False, server_round=1)
    assert trained.loss != other.loss
    clients[0].fit(first, server_round=2)
    assert memories[0].read(9)["2.num_batches_tracked"] == 8


def test_the_first_round_trains_as_with_averaged_statistics() -> None:
    models = {}
    for sharing in ("local", "average"):
        config = load([*SMALL, f"client.batch_norm={sharing}"])
        layout, start = wiring.initial_model(config)
        model = client_wiring.client(config, 0).fit(start, server_round=1).model
        models[sharing] = {name: model[part] for name, part in layout.parts.items()}
    for name, part in models["local"].items():
        np.testing.assert_array_equal(part, models["average"][name])


def test_a_run_saves_batch_normalisation_as_the_constructor_made_it(tmp_path: Path) -> None:
    run([*SMALL, *QUIET], tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["status"], summary["clients"]["failed"]) == ("completed", 0)
    (state,) = read_models(tmp_path)
    module = user.batch_norm((1, 8, 8), 10)
    module.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()}, strict=True)
    assert state["2.running_var"].tolist() == [1.0] * user.HIDDEN


def test_local_dp_hides_what_travels(tmp_path: Path) -> None:
    config = load([*SMALL, "privacy=local_dp", "rounds=5"], also=problems)
    layout, _ = wiring.initial_model(config)
    entries = client_wiring.client(config, 0).entries
    assert entries is not None
    (whole,) = entries.slices  # the constant buffer `3.offsets` is not among them
    assert whole == layout.direction


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["network._target_=user_networks.dropout"], "must be average for a network without"),
        (["records.central_test=true"], "central_test must be false"),
        (["graph.benign=root"], "graph.benign must be largest"),
        (["client.batch_norm=never"], "client.batch_norm must be 'average' or 'local'"),
    ],
)
def test_what_does_not_go_with_it_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load([*SMALL, *overrides], also=problems)
