"""A network with lazy layers is drawn once it knows its sizes, and can be loaded after the run."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))  # where user_networks is
from user_networks import lazy

from fl_app.client.initial_network import drawn
from fl_app.one_run import run
from fl_app.use.run import load_run

SMALL = ["network=mcmahan_cnn", "network._target_=user_networks.lazy", "strategy=fedavg",
         "population=iid", "population.clients=2", "population.train_samples=20", "rounds=1",
         "records.figures=false", "records.report=false", "tracking=none"]  # fmt: skip


def test_lazy_layers_take_their_sizes_from_the_inputs_and_their_weights_from_the_seed() -> None:
    one, same, other = (
        drawn(lazy, (1, 8, 8), 3, {}, tokens=False, seed=seed).state_dict() for seed in (0, 0, 1)
    )
    assert [tuple(each.shape) for each in one.values() if each.dim() > 1] == [
        (4, 1, 3, 3), (3, 144),
    ]  # fmt: skip
    assert one["1.running_mean"].tolist() == [0.0] * 4
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["0.weight"], other["0.weight"])


def test_a_run_with_lazy_layers_trains_and_is_loaded(tmp_path: Path) -> None:
    run(SMALL, tmp_path)
    module = load_run(tmp_path).model(client=0)
    first = drawn(lazy, (1, 8, 8), 10, {}, tokens=False, seed=0)
    assert module(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    assert not torch.equal(module.state_dict()["4.weight"], first.state_dict()["4.weight"])


@pytest.mark.filterwarnings("ignore:.*is deprecated")  # of torch.jit itself
def test_torchscript_is_named() -> None:
    def scripted(shape: tuple[int, ...], classes: int) -> nn.Module:
        layer: nn.Module = torch.jit.script(nn.Linear(*shape, classes))
        return nn.Sequential(nn.Flatten(), layer)

    with pytest.raises(TypeError, match="layer '1' is TorchScript: return the module as it was"):
        drawn(scripted, (4,), 3, {}, tokens=False, seed=0)
