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


class _Masked(nn.Module):
    """Attention over the tokens that are no padding, before a lazy layer."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4, padding_idx=0)
        layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.attend = nn.TransformerEncoder(layer, 1)
        self.head = nn.LazyLinear(classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        attended = self.attend(self.embed(tokens), src_key_padding_mask=tokens == 0)
        return self.head(attended.mean(1))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_the_sample_that_tells_sizes_is_no_padding_and_is_told_as_made_up() -> None:
    module = drawn(_Masked, (3,), 2, {}, tokens=True, seed=0)
    assert module.state_dict()["head.weight"].shape == (2, 4)
    with pytest.raises(ValueError, match=r"made-up sample, ones of .* \(1, 3\), got .*Error: "):
        drawn(_Masked, (3,), 2, {}, tokens=False, seed=0)


@pytest.mark.filterwarnings("ignore:.*is deprecated")  # of torch.jit itself
def test_torchscript_is_named() -> None:
    def scripted(shape: tuple[int, ...], classes: int) -> nn.Module:
        layer: nn.Module = torch.jit.script(nn.Linear(*shape, classes))
        return nn.Sequential(nn.Flatten(), layer)

    with pytest.raises(TypeError, match="layer '1' is TorchScript: return the module as it was"):
        drawn(scripted, (4,), 3, {}, tokens=False, seed=0)
