"""A finished run of a user's network, learner, data and method in use, and resumed."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from fl_app import one_run, own
from fl_app.use.commands import COMMANDS
from fl_app.use.run import load_run

MODULE = '''
"""Doses from four measurements, learnt by the Huber loss and a server with momentum."""
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
import torch
from torch import nn
from torch.nn.functional import huber_loss

from fl_app.aggregation import weighted_mean
from fl_app.client.learner import Learner, TrainingResult
from fl_app.client.training import Score, epoch_order, trainable
from fl_app.data.datasets import Dataset
from fl_app.rng import generator
from fl_app.strategies.encoding import encode
from fl_app.strategies.fedavg import SingleModel
from fl_app.strategies.state import Communities, MethodState


def doses(*, seed: int) -> Dataset:
    draw = generator(seed, purpose="doses")
    x = draw.normal(size=(200, 4)).astype(np.float32)
    y = (x[:, :2].sum(1) + 0.1 * draw.normal(size=200)).astype(np.float32)
    return Dataset("doses", 1, x[40:], y[40:], x[:40], y[:40], target="regression")


def linear(shape, classes) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 8), nn.Tanh(), nn.Linear(8, classes))


class Huber(Learner):
    targets = ("regression",)
    classifies = False

    def train(self, job):
        began, batch = perf_counter(), self.settings.batch_size
        self.flat.load(job.start)
        adam = torch.optim.Adam(trainable(self.flat.module), lr=self.settings.learning_rate)
        for rows in torch.split(epoch_order(len(job.labels), job.generator), batch):
            adam.zero_grad()
            loss = self._loss(job.images[rows], job.labels[rows])
            loss.backward()
            adam.step()
        return TrainingResult(self.flat.view(), float(loss.detach()), perf_counter() - began)

    @torch.no_grad()
    def score(self, model, images, labels):
        self.flat.load(model)
        return Score(float(self._loss(images, labels)), None, len(labels))

    def _loss(self, images, labels):
        return huber_loss(self.flat.module(images).squeeze(-1), labels.float())


@dataclass(kw_only=True)
class MomentumState(MethodState):
    velocity: np.ndarray
    lengths: dict[int, list[float]] = field(default_factory=dict)


class Momentum(SingleModel):
    state: MomentumState

    def __init__(self, context, *, participation: float, beta: float):
        super().__init__(context, participation=participation, rule=weighted_mean)
        self.beta = beta
        self.state = MomentumState(
            communities=Communities.of(context.initial), velocity=np.zeros_like(context.initial)
        )

    def aggregate_fit(self, server_round, results, failures):
        replies = self.receive(server_round, results, failures)
        models, state = self.state.communities.models, self.state
        before = models[0].copy()
        self.aggregator.update(models, replies)
        state.velocity = self.beta * state.velocity + (models[0] - before)
        state.lengths[server_round] = [float(np.linalg.norm(state.velocity))]
        models[0] = before + state.velocity
        return encode(models[0]), {"train_loss": replies.loss}
'''
WORDS = [
    "data=digits", "data._target_=own_doses.doses", "~data.test_share", "~data.standardise",
    "task=regression",
    "network=mlp", "~network.hidden", "network._target_=own_doses.linear",
    "client.learner=own_doses.Huber", "client.learning_rate=0.03", "client.threads=1",
    "population=iid", "population.clients=2", "population.train_samples=60",
    "population.test_samples=15", "strategy=fedmedian", "strategy._target_=own_doses.Momentum",
    "strategy.participation=1.0", "+strategy.beta=0.5", "rounds=4", "records.evaluate_every=2",
    "records.figures=false", "records.report=false", "tracking=none",
]  # fmt: skip


def said(capsys: pytest.CaptureFixture, *words: str) -> str:
    COMMANDS[words[0]](words[1:])
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with the user's module, from which runs are started."""
    folder = tmp_path_factory.mktemp("stranger")
    (folder / "own_doses.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own, "searched", [])
        patch.syspath_prepend(folder)
        patch.chdir(folder)
        yield folder
    sys.modules.pop("own_doses", None)


@pytest.fixture(scope="module")
def stranger_run(project: Path) -> Path:
    one_run.run(WORDS, project / "run")
    return project / "run"


def test_a_learner_without_metrics_has_its_test_loss_in_the_records(stranger_run: Path) -> None:
    rounds = [json.loads(line) for line in (stranger_run / "rounds.jsonl").open()]
    recorded = [each["metrics"]["test_loss"] for each in rounds if each["metrics"]]
    assert len(recorded) == 2
    assert recorded[1]["mean"] < recorded[0]["mean"]
    assert json.loads((stranger_run / "summary.json").read_text())["metrics"] == {
        "test_loss": {"mean": recorded[1]["mean"], "std": recorded[1]["std"]}
    }


@pytest.fixture(scope="module")
def samples(project: Path) -> Path:
    """Return a file with new samples of the same doses."""
    inputs = np.random.default_rng(1).normal(size=(30, 4)).astype(np.float32)
    np.savez(project / "new.npz", inputs=inputs, labels=inputs[:, :2].sum(1))
    return project / "new.npz"


def test_the_loss_is_told_where_there_is_no_accuracy(
    stranger_run: Path, samples: Path, capsys: pytest.CaptureFixture
) -> None:
    found = json.loads(said(capsys, "evaluate", str(stranger_run), "--json"))
    assert found["accuracy"]["mean"] is None
    assert set(found["loss"]["clients"]) == {"0", "1"}
    mean = found["loss"]["mean"]
    assert f"loss {mean:.4f}, mean of 2 clients" in said(capsys, "evaluate", str(stranger_run))
    assert "loss" in said(capsys, "evaluate", str(stranger_run), "--data", str(samples))


def test_the_only_model_needs_no_name(
    stranger_run: Path, samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run, inputs = load_run(stranger_run), np.load(samples)["inputs"]
    assert [run.name()] == list(run.models)
    np.save(tmp_path / "new.npy", inputs)
    out = tmp_path / "answers.csv"
    said(capsys, "predict", str(stranger_run), "--data", f"{tmp_path}/new.npy", "--out", str(out))
    with torch.no_grad():
        expected = run.model()(torch.from_numpy(inputs)).squeeze(-1).numpy()
    found = np.loadtxt(out, delimiter=",", skiprows=1)
    assert found[:, -1] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("form", ["onnx", "pt2", "safetensors"])
def test_a_model_fine_tuned_by_the_users_learner_is_exported(
    stranger_run: Path, samples: Path, tmp_path: Path, form: str, capsys: pytest.CaptureFixture
) -> None:
    mine = tmp_path / "mine"
    tuning = ["--data", str(samples), "--epochs", "30", "--to", str(mine)]
    told = said(capsys, "fine-tune", str(stranger_run), "--community", "0", *tuning)
    before, after = (float(told.split("loss ")[1].split()[i]) for i in (0, 2))
    assert after < before
    held_out = round(0.2 * len(np.load(samples)["labels"]))
    assert f"after, on {held_out} samples that it was not trained on" in told
    told = said(capsys, "export", str(mine), "--format", form, "--to", str(tmp_path / "out"))
    assert "personal" in told
    assert (tmp_path / "out" / "model_card.md").exists()


def test_a_new_client_is_assigned_by_the_users_loss(
    stranger_run: Path, samples: Path, capsys: pytest.CaptureFixture
) -> None:
    found = json.loads(said(capsys, "assign", str(stranger_run), "--data", str(samples), "--json"))
    assert found["model"] == "community_0"
    with pytest.raises(ValueError, match="a client without labels needs a run whose models answer"):
        said(capsys, "assign", str(stranger_run), "--data", str(samples), "--without-labels")


def test_a_users_method_with_a_state_is_resumed_as_if_nothing_had_happened(
    stranger_run: Path, project: Path
) -> None:
    folder = project / "resumed"
    one_run.run([*WORDS, "rounds=2"], folder)
    one_run.resume(folder, ["rounds=4"])
    for name, value in load_run(stranger_run).model().state_dict().items():
        assert torch.equal(value, load_run(folder).model().state_dict()[name])
    shutil.rmtree(folder)
