"""Batches of one sample with batch normalisation."""

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))  # where user_networks is
from user_networks import Squeezed

from fl_app.client.fused_training import can_fuse
from fl_app.client.normalisation import batches
from fl_app.client.training import evaluate, scores, train
from fl_app.one_run import run
from fl_app.rng import torch_generator


class Local:
    """Settings of local training."""

    epochs, batch_size, learning_rate, momentum = 2, 4, 0.1, 0.9
    weight_decay, proximal, precision = 0.0, 0.0, "fp32"


def _network(*, tracks: bool = True) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        norm = nn.BatchNorm1d(5, track_running_stats=tracks)
        return nn.Sequential(nn.Flatten(), nn.Linear(4, 5), norm, nn.ReLU(), nn.Linear(5, 3))


def _data(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch_generator(0, purpose="data")
    return torch.randn((samples, 1, 2, 2), generator=draw), torch.arange(samples) % 3


def _train(module: nn.Module, samples: int, local: type = Local) -> float:
    return train(module, *_data(samples), local, generator=torch_generator(0, purpose="batches"))


@pytest.mark.parametrize(
    ("samples", "size", "expected"),
    [(9, 4, [4, 5]), (8, 4, [4, 4]), (10, 4, [4, 4, 2]), (1, 4, [1]), (3, 1, [1, 1, 1])],
)
def test_a_last_sample_joins_the_batch_before_it(
    samples: int, size: int, expected: list[int]
) -> None:
    found = batches(torch.arange(samples), size, _network())
    assert [len(each) for each in found] == expected
    assert torch.cat(found).tolist() == list(range(samples))


def test_without_batch_normalisation_a_last_sample_stays_alone() -> None:
    assert [len(each) for each in batches(torch.arange(9), 4, nn.Linear(1, 1))] == [4, 4, 1]


@pytest.mark.parametrize("answers", [1, 3])
@pytest.mark.parametrize("samples", [1, 2, 5])
def test_a_squeezed_answer_to_one_sample_is_a_row(samples: int, answers: int) -> None:
    network = Squeezed(nn.Linear(4, answers))
    inputs = torch.randn(samples, 4)
    expected = network[0](inputs)
    found = scores(network, inputs)
    assert torch.equal(found, expected[:, 0] if answers == 1 else expected)


@pytest.mark.parametrize("tracks", [True, False])
@pytest.mark.parametrize("samples", [1, 5, 9])
def test_a_single_sample_is_trained_and_scored(samples: int, tracks: bool) -> None:
    module = _network(tracks=tracks)
    before = [p.detach().clone() for p in module.parameters()]
    assert 0 < _train(module, samples) < 10
    assert any((p != b).any() for p, b in zip(module.parameters(), before, strict=True))
    assert evaluate(module, *_data(1), precision="fp32").samples == 1
    assert not any(layer.training for layer in module.modules())


def test_a_single_sample_leaves_the_running_statistics() -> None:
    module = _network()
    _train(module, 1)
    assert module[2].running_mean.tolist() == [0.0] * 5
    assert module[2].running_var.tolist() == [1.0] * 5
    assert module[2].training
    _train(module, 5)
    assert (module[2].running_var != 1.0).all()


def test_a_single_sample_trains_by_the_running_statistics() -> None:
    # worked out: with mean 0, variance 1 and no affine part the layer hands on its input
    module = nn.Sequential(nn.BatchNorm1d(2, affine=False, eps=1e-12), nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        module[1].weight.zero_()

    class Step(Local):
        epochs, momentum = 1, 0.0

    train(
        module, torch.tensor([[1.0, 2.0]]), torch.tensor([0]), Step,
        generator=torch_generator(0, purpose="batches"),
    )  # fmt: skip
    # gradient of cross-entropy at equal scores: (p - y) x = ([0.5, 0.5] - [1, 0]) [1, 2]
    torch.testing.assert_close(module[1].weight, torch.tensor([[0.05, 0.1], [-0.05, -0.1]]))


def test_a_cohort_does_not_fuse_batch_normalisation_without_buffers() -> None:
    assert not can_fuse(_network(tracks=False))


@pytest.mark.parametrize("samples", [1, 41])
def test_a_run_goes_on_with_a_last_batch_of_one(samples: int, tmp_path: Path) -> None:
    run(["population.clients=4", "population.groups=2", f"population.train_samples={samples}",
         "population.test_samples=1", "strategy=fedavg", "rounds=2", "client.epochs=1",
         "network=mcmahan_cnn", "network._target_=user_networks.batch_norm",
         "records.figures=false", "records.report=false", "tracking=none"], tmp_path)  # fmt: skip
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["status"], summary["clients"]["failed"]) == ("completed", 0)
