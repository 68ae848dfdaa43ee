"""Networks that start from saved weights, with frozen parts."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).parent))  # where user_networks is
from fl_app import client_wiring, wiring
from fl_app.client.pretrained import read_weights
from fl_app.compatibility import problems
from fl_app.config import Config, ConfigError, load
from fl_app.one_run import run
from fl_app.records.models import read_models

SMALL = ["population.clients=3", "population.groups=1", "population.train_samples=30",
         "population.test_samples=10", "strategy=fedavg", "rounds=2",
         "client.epochs=2"]  # fmt: skip
NORM = ["network=mcmahan_cnn", "network._target_=user_networks.batch_norm"]
QUIET = ["records.figures=false", "records.report=false", "tracking=none"]


def _state(*overrides: str) -> dict[str, torch.Tensor]:
    config = load([*SMALL, "seed=9", *overrides])
    return wiring.network(config, wiring.shared_population(config).dataset).state_dict()


def _network(*overrides: str) -> torch.nn.Module:
    config = load([*SMALL, *overrides], also=problems)
    return wiring.network(config, wiring.shared_population(config).dataset)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors", "wrapped.pth"])
def test_weights_are_loaded_and_a_new_head_stays(suffix: str, tmp_path: Path) -> None:
    saved = _state()
    head = next(name for name in reversed(saved) if name.endswith("weight"))
    saved[head] = torch.zeros(3, saved[head].shape[1])  # of another number of classes
    file = tmp_path / f"saved{suffix}"
    if suffix == ".safetensors":
        save_file(saved, file)
    else:
        torch.save({"state_dict": saved} if suffix.startswith("wrapped") else saved, file)
    found = _network(f"network.weights={file}").state_dict()
    plain = _network().state_dict()
    for name, tensor in found.items():
        assert torch.equal(tensor, plain[name] if name == head else saved[name]), name


def test_a_model_of_a_run_is_the_start_of_another(tmp_path: Path) -> None:
    run([*SMALL, *QUIET], tmp_path / "first")
    file = tmp_path / "first" / "models.safetensors"
    (saved,) = read_models(tmp_path / "first")
    for name, tensor in _network(f"network.weights={file}@0").state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), saved[name])
    with pytest.raises(ConfigError, match="must name one of the models 0 in the file"):
        _network(f"network.weights={file}@3")


def _config(file: Path) -> Config:
    torch.save(_state(*NORM), file)
    return load([*SMALL, *NORM, f"network.weights={file}", "network.freeze=['1.*','2.*']"],
                also=problems)  # fmt: skip


def test_frozen_parts_stay_as_saved_with_their_statistics(tmp_path: Path) -> None:
    config = _config(tmp_path / "saved.pt")
    layout, start = wiring.initial_model(config)
    assert set(layout.names) == {"5.weight", "5.bias", "3.offsets"}
    client = client_wiring.client(config, 0)
    before = {k: v.clone() for k, v in client.learner.flat.module.state_dict().items()}
    model = client.fit(start, server_round=1).model
    for name, tensor in client.learner.flat.module.state_dict().items():
        assert torch.equal(tensor, before[name]) == (not name.startswith("5.")), name
    assert (model[layout.direction] != start[layout.direction]).any()


def test_a_run_sends_only_the_head_and_saves_all(tmp_path: Path) -> None:
    config = _config(tmp_path / "saved.pt")
    given = [*SMALL, *NORM, f"network.weights={tmp_path / 'saved.pt'}",
             "network.freeze=['1.*','2.*']"]  # fmt: skip
    run([*given, *QUIET], tmp_path / "run")
    (state,) = read_models(tmp_path / "run")
    saved = torch.load(tmp_path / "saved.pt")
    for name in ("1.weight", "2.weight", "2.running_var"):
        np.testing.assert_array_equal(state[name], saved[name].numpy())
    rounds = (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()
    _, start = wiring.initial_model(config)
    assert json.loads(rounds[0])["bytes"]["up"] < 3 * (4 * len(start) + 200)


def test_further_models_of_a_method_differ_in_what_is_trained(tmp_path: Path) -> None:
    config = _config(tmp_path / "saved.pt")
    data = wiring.shared_population(config).dataset
    first, second = (wiring.network(config, data, number).state_dict() for number in (0, 1))
    assert torch.equal(first["1.weight"], second["1.weight"])
    assert not torch.equal(first["5.weight"], second["5.weight"])


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["network.freeze=[nothing.*]"], "match a parameter, got 'nothing.\\*'; the parameters"),
        (["network.freeze=['*']"], "at least one trainable parameter, got none"),
        (["network.weights=/nowhere.pt"], "network.weights must be a file .pt, .pth or .safet"),
        (["network.freeze=5"], "network.freeze must be .*list, got 5"),
        (["network.weights={file}"], "must have the tensors of the network, got none"),
        (["network.weights={part}", "network.freeze=['*']"], "network.freeze freezes, got none of"),
    ],
)
def test_what_cannot_be_loaded_or_frozen_is_refused(
    overrides: list[str], said: str, tmp_path: Path
) -> None:
    torch.save({"other": torch.zeros(2)}, tmp_path / "file.pt")
    part = _state()
    part.pop(next(iter(part)))
    torch.save(part, tmp_path / "part.pt")
    read_weights.cache_clear()
    names = {"file": tmp_path / "file.pt", "part": tmp_path / "part.pt"}
    given = [one.format(**names) if "{" in one else one for one in overrides]
    with pytest.raises(ConfigError, match=said):
        load([*SMALL, *given], also=problems)


def test_a_whole_module_other_objects_and_a_damaged_file_are_told_without_torchs_page(
    tmp_path: Path,
) -> None:
    file = tmp_path / "saved.pt"
    said = f"got {file}, which holds a whole module or other objects, or is damaged; save module"
    for content in (torch.nn.Linear(2, 2), {"weights": {}, "folder": tmp_path}):
        torch.save(content, file)
        with pytest.raises(ValueError, match=re.escape(said)):
            read_weights(str(file))
    file.write_text("no weights")
    with pytest.raises(ValueError, match=re.escape(said)):
        read_weights(str(file))
