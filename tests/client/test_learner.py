"""The learner that a network names, and what goes with it."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))  # where user_networks is
import user_networks

from fl_app import client_wiring
from fl_app.client.clustering import CentroidLearner
from fl_app.client.learner import Learner, TrainingJob, learner_of
from fl_app.client.sgd import SgdLearner
from fl_app.client.training import Score
from fl_app.compatibility import problems
from fl_app.config import ConfigError, load
from fl_app.params import FlatModule
from fl_app.rng import global_torch_seed
from fl_app.wiring import made

centroids, small_cnn = partial(made, "network=centroids"), partial(made, "network=small_cnn")

SHAPE, CLASSES = (1, 8, 8), 3
OWN = ["network=mcmahan_cnn", "network._target_=user_networks.with_a_learner"]


FEW = ["population.clients=2", "engine.min_success=1"]


class Local:
    """Settings of local training."""

    epochs, batch_size, learning_rate, momentum = 1, 5, 0.1, 0.0
    weight_decay, proximal, precision = 0.0, 0.0, "fp32"


def _learner(build: type[Learner], module: nn.Module) -> Learner:
    return build(FlatModule(module), Local(), classes=CLASSES)


def test_a_network_names_its_learner() -> None:
    assert learner_of(small_cnn(SHAPE, CLASSES), None) is SgdLearner
    assert learner_of(centroids(SHAPE, CLASSES), None) is CentroidLearner


def test_the_setting_names_a_learner_before_the_network_does() -> None:
    config = load([*OWN, "client.learner=user_networks.Tame", *FEW], also=problems)
    assert type(client_wiring.client(config, 0).learner) is user_networks.Tame
    of_network = load([*OWN, *FEW], also=problems)
    assert type(client_wiring.client(of_network, 0).learner) is user_networks.Idle


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("user_networks.Tokens", "a subclass of fl_app.client.learner.Learner"),
        ("fl_app.client.learner.Learner", "with the methods train and score"),
        ("user_networks.Missing", "a class that can be imported"),
        ("nowhere_to_be_found.Mine", "there is no module nowhere_to_be_found"),
        ("7", "text"),
    ],
)
def test_what_is_no_learner_is_one_error_with_its_value(path: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as found:
        load([f"client.learner={path}"], also=problems)
    assert len(found.value.problems) == 1
    assert found.value.problems[0].startswith("client.learner must be ")
    assert path in found.value.problems[0]


def test_a_network_that_names_no_learner_is_refused() -> None:
    module = small_cnn(SHAPE, CLASSES)
    module.learner = "user_networks.Tokens"
    with pytest.raises(ValueError, match=r"attribute learner must be .*'user_networks\.Tokens'"):
        learner_of(module, None)


@pytest.mark.parametrize("build", [SgdLearner, CentroidLearner])
def test_it_trains_from_the_start_and_scores_what_it_is_given(build: type[Learner]) -> None:
    draw = torch.Generator().manual_seed(0)
    images = torch.randn((12, *SHAPE), generator=draw)
    labels = torch.arange(12) % CLASSES
    module = small_cnn if build is SgdLearner else centroids
    with global_torch_seed(0):  # from some weights a step is too long
        learner = _learner(build, module(SHAPE, CLASSES))
    start = learner.flat.vector()
    task = {"steps": 2, "tolerance": 0.0, "own": False}
    job = TrainingJob(start, images, labels, torch.Generator().manual_seed(1), task)
    first = learner.train(job).model.copy()
    assert first.shape == start.shape
    assert not np.array_equal(first, start)
    learner.score(first, images, labels)
    again = TrainingJob(start, images, labels, torch.Generator().manual_seed(1), task)
    assert np.array_equal(learner.train(again).model, first)
    before, after = (learner.score(model, images, labels) for model in (start, first))
    assert after.loss < before.loss
    assert after.samples == 12


def test_learners_in_a_cohort_and_alone_share_one_network() -> None:
    learner = _learner(SgdLearner, small_cnn(SHAPE, CLASSES))
    together = learner.fused()
    assert (together.in_cohort, together.alone().in_cohort) == (True, False)
    assert together.flat is learner.flat
    apart = _learner(CentroidLearner, centroids(SHAPE, CLASSES))
    assert apart.fused() is apart
    assert not CentroidLearner.fuses(apart.flat.module)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["network=centroids", "strategy=fedavg"], "one kind of model"),
        (["network=centroids", "strategy=kmeans", "privacy=local_dp"], "counts of points"),
        (["network=centroids", "strategy=kmeans", "records.central_test=true"], "no classes"),
        (["network=centroids", "strategy=kmeans", "client.cohort=fused"], "cohort=auto"),
        (["network=mixture", "strategy=fedem", "task.class_weights=balanced"], "must stay as"),
        (["network=mixture", "strategy=fedrc", "+task.loss.label_smoothing=0.5"], "must stay as"),
        ([*OWN, "privacy=sample_dp"], "trained by SGD"),
        (["client.learner=user_networks.Idle", "privacy=sample_dp"], "trained by SGD"),
        (["client.learner=fl_app.client.clustering.CentroidLearner"], "one kind of model"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_a_learner_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(overrides, also=problems)


def test_a_metric_that_is_undefined_on_a_clients_samples_is_left_out() -> None:
    metrics: Any = {
        "none": None, "nan": np.float32("nan"), "endless": float("inf"), "known": torch.tensor(0.5),
    }  # fmt: skip
    score = Score(1.0, 0.5, np.int64(3), metrics=metrics)  # type: ignore[arg-type]
    assert score.metrics == {"known": 0.5}
    assert type(score.samples) is int
