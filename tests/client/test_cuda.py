"""Clients on CUDA against the CPU; skipped where there is no GPU."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))  # where user_networks is
from sample_references import clipped_sums
from user_networks import Gated, recurrent

from fl_app.client.clipped_gradients import gradients_of
from fl_app.client.layer_calls import Watched, calls_of
from fl_app.client.learner import TrainingJob
from fl_app.client.networks import mcmahan_cnn, small_cnn
from fl_app.client_wiring import client
from fl_app.config import load
from fl_app.one_run import run
from fl_app.records.summary import read_summary
from fl_app.wiring import device, initial_model, shared_population

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SHAPE, CLASSES, SAMPLES = (1, 12, 12), 4, 40
FEW = ("strategy=fedavg", "population.clients=8", "client.epochs=2")
RUN = (
    "strategy=flic", "strategy.cluster_round=3", "rounds=5", "population.clients=6",
    "strategy.participation=1.0",
)  # fmt: skip
LEARNERS: dict[str, list[str]] = {
    "small_cnn": [],
    "linear": ["network=mlp", "network.hidden=[]"],
    "momentum": ["client.momentum=0.9", "client.weight_decay=0.01", "client.proximal=0.1"],
    "adam": ["client/optimizer=adam"],
    "DP-SGD": ["privacy=sample_dp", "privacy.epsilon=inf", "privacy.clip=0.5"],
}


@pytest.fixture(autouse=True)
def whole_precision() -> Iterator[None]:
    """Multiply in float32, not in the TF32 that torch uses for convolutions on CUDA."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


def test_it_is_used_when_there_is_one() -> None:
    assert device(load([])).type == "cuda"
    assert client(load([]), 0).learner.flat.vector().dtype == np.float32


def transformer(shape: Any, classes: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(
        shape[2], 2, 16, dropout=0.0, batch_first=True, norm_first=True
    )
    rows = nn.Sequential(
        nn.Flatten(1, 2), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    )
    return nn.Sequential(rows, nn.Flatten(), nn.Linear(shape[1] * shape[2], classes))


@pytest.mark.parametrize(
    "build", [partial(small_cnn, width=0.5), mcmahan_cnn, transformer, recurrent, Gated]
)
def test_the_sum_of_clipped_gradients_is_that_of_the_cpu(build: Any) -> None:
    torch.manual_seed(0)
    module: nn.Module = build(SHAPE, CLASSES)
    images = torch.randn(SAMPLES, *SHAPE) * torch.arange(1, SAMPLES + 1)[:, None, None, None]
    labels = torch.arange(SAMPLES) % CLASSES
    found = []
    for where, kind in (("cpu", torch.float64), ("cuda", torch.float32)):
        module.to(where, kind)
        with calls_of(Watched(module)) as calls:
            scores = module(images.to(where, kind))
            loss = nn.functional.cross_entropy(scores, labels.to(where), reduction="sum")
        gradients = gradients_of(calls, loss)
        bound = float(gradients.squares.sqrt().cpu().median())
        sums = clipped_sums(gradients, module, bound)
        found.append([each.cpu().double() for each in sums.values()])
    for expected, got in zip(*found, strict=True):
        assert (got - expected).norm() / expected.norm() < 1e-5


@pytest.mark.parametrize("words", LEARNERS.values(), ids=LEARNERS)
def test_a_client_learns_what_it_learns_on_the_cpu(words: list[str]) -> None:
    trained = []
    for where in ("cpu", "cuda"):
        config = load([f"client.device={where}", "client.cohort=single", *FEW, *words])
        start = initial_model(config)[1]
        trained.append(client(config, 0).fit(start, server_round=1).model - start)
    assert np.linalg.norm(trained[0]) > 0.01
    apart = np.linalg.norm(trained[1] - trained[0]) / np.linalg.norm(trained[0])
    assert apart < 1e-3


@pytest.mark.parametrize("name", ["mobilenet", "mcmahan_cnn", "lazy"])
def test_networks_of_any_sizes_train(name: str) -> None:
    words = ["network=small_cnn", "~network.width"] if name == "lazy" else [f"network={name}"]
    words += ["network._target_=user_networks.lazy"] if name == "lazy" else []
    losses = []
    for where in ("cpu", "cuda"):
        config = load([f"client.device={where}", *FEW, *words])
        start = initial_model(config)[1]
        losses.append(client(config, 0).fit(start, server_round=1).loss)
    assert losses[1] == pytest.approx(losses[0], rel=0.1)


@pytest.mark.parametrize("cohort", [1, 3])
def test_a_cohort_gets_what_each_client_gets_alone(cohort: int) -> None:
    config = load([*FEW, "network=mlp", "network.hidden=[7]"])  # sizes that no kernel likes
    learner, start = client(config, 0).learner, initial_model(config)[1]

    def jobs() -> list[TrainingJob]:
        each = [shared_population(config).client(number) for number in range(cohort)]
        return [
            TrainingJob(
                start, data.train_images.cuda(), data.train_labels.cuda(),
                torch.Generator().manual_seed(7),
            )
            for data in each
        ]  # fmt: skip

    alone = [learner._single(job).model.copy() for job in jobs()]
    for done, expected in zip(learner._cohort(jobs()), alone, strict=True):
        np.testing.assert_allclose(done.model, expected, atol=1e-4)


def test_noise_is_drawn_on_the_gpu_by_the_keys_alone() -> None:
    config = load(["privacy=sample_dp", *FEW])
    start = initial_model(config)[1]
    first, again, later = (
        client(config, 0).fit(start, server_round=now).model.copy() for now in (1, 1, 2)
    )
    np.testing.assert_allclose(first, again, atol=1e-5)
    assert np.linalg.norm(later - first) > 0.1 * np.linalg.norm(first - start)


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cpu") / "run"
    run([*RUN, "client.device=cpu"], folder)
    return folder


@pytest.mark.parametrize(
    "words", [["client.cohort=fused"], ["client.cohort=single"], ["engine=deployment"]]
)
def test_a_run_finds_the_communities_that_it_finds_on_the_cpu(
    words: list[str], on_cpu: Path, tmp_path: Path
) -> None:
    run([*RUN, *words], tmp_path / "run")
    expected, found = (read_summary(folder) for folder in (on_cpu, tmp_path / "run"))
    assert found["communities"]["assignment"] == expected["communities"]["assignment"]
    assert found["accuracy"]["mean"] == pytest.approx(expected["accuracy"]["mean"], abs=0.03)
    assert found["clients"]["failed"] == found["clients"]["rejected"] == 0
