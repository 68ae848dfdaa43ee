"""The contracts that users import: parts of the app keep them, broken parts do not."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))  # where state_networks is
from fl_app import wiring
from fl_app.aggregation import Rule, weighted_mean
from fl_app.client.sgd import SgdLearner
from fl_app.client_wiring import client
from fl_app.config import Config, load
from fl_app.data.datasets import DataError
from fl_app.strategies.fedavg import SingleModel
from fl_app.strategies.server_context import ServerContext
from fl_app.testing import (
    DataContract,
    LearnerContract,
    MethodContract,
    NetworkContract,
    PopulationContract,
)
from fl_app.testing.parts import SMALL, small
from fl_app.types import Vector, Vectors, Weights


class TestLearner(LearnerContract):
    pass


class TestNetwork(NetworkContract):
    pass


class TestDigits(DataContract):
    pass


class TestBlobs(DataContract):
    overrides = ("data=blobs", "network=centroids", "population=iid", "strategy=kmeans")


class TestPopulation(PopulationContract):
    pass


@pytest.fixture
def config() -> Config:
    return load(SMALL)


def _fails(check: Callable[..., None], *given: Any) -> None:
    with pytest.raises(AssertionError):
        check(*given)


class Mixing(nn.Module):
    """A network whose answer to a sample depends on the others, and whose weights are unkeyed."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.from_numpy(np.random.default_rng().random((64, 10))))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        flat = images.flatten(1).double()
        return (flat - flat.mean(0)) @ self.weight


def test_a_network_with_draws_of_its_own_or_that_mixes_samples_fails(config: Config) -> None:
    contract, built = NetworkContract(), Mixing()
    _fails(contract.test_it_is_the_same_whenever_it_is_built, config, built)
    _fails(contract.test_one_sample_does_not_depend_on_the_others, config, built)


@pytest.mark.parametrize("network", ["averaging", "flagged"])
def test_a_network_with_state_that_is_not_saved_fails(network: str) -> None:
    config = load([*SMALL, "network=mcmahan_cnn", f"network._target_=state_networks.{network}"])
    _fails(
        NetworkContract().test_a_model_rebuilt_from_what_is_saved_answers_as_the_trained_one, config
    )


class Careless(SgdLearner):
    """A learner that draws from torch's global generator, and never learns."""

    def train(self, job: Any) -> Any:
        done = super().train(job)
        return replace(done, model=job.start + torch.rand(len(job.start)).numpy())


def test_a_learner_with_draws_of_its_own_or_that_never_learns_fails(config: Config) -> None:
    honest, start = client(config, 0), wiring.initial_model(config)[1]
    learner = honest.learner
    careless = Careless(learner.flat, learner.settings, classes=learner.classes)
    broken, contract = replace(honest, learner=careless), LearnerContract()
    _fails(contract.test_training_is_repeatable_whatever_came_between, config, broken, start)
    _fails(contract.test_training_lowers_the_loss_on_its_own_data, broken, start)


class Deaf(SgdLearner):
    """A learner that trains from zeros, whatever it is given, and scores one sample alone."""

    def train(self, job: Any) -> Any:
        return super().train(replace(job, start=np.zeros_like(job.start)))

    def score(self, model: Any, images: Any, labels: Any) -> Any:
        return replace(super().score(model, images, labels), samples=1)


def test_a_learner_that_ignores_its_start_or_miscounts_fails(config: Config) -> None:
    honest, start = client(config, 0), wiring.initial_model(config)[1]
    deaf = Deaf(honest.learner.flat, honest.learner.settings, classes=honest.learner.classes)
    broken, contract = replace(honest, learner=deaf), LearnerContract()
    _fails(contract.test_it_trains_from_the_model_that_it_is_given, config, broken, start)
    _fails(contract.test_scoring_twice_is_scoring_once, broken, start)


def _away(models: Vectors, weights: Weights) -> Vector:
    """Return the mean with the wrong sign."""
    return -weighted_mean(models, weights)


def _without_the_last(models: Vectors, weights: Weights) -> Vector:
    return weighted_mean(models[:-1], weights[:-1])


@pytest.mark.parametrize("rule", [_away, _without_the_last])
def test_a_method_that_never_learns_or_forgets_a_client_fails(rule: Rule) -> None:
    def build(given: ServerContext) -> SingleModel:
        return SingleModel(given, participation=1.0, rule=rule)

    contract = MethodContract()
    learns = contract.test_clients_get_models_that_are_nearer_to_what_they_learn
    hears = contract.test_another_reply_of_the_last_client_is_another_result
    _fails(learns if rule is _away else hears, build)
    (hears if rule is _away else learns)(build)


def test_data_that_is_tested_on_its_training_rows_or_has_odd_labels_fails(config: Config) -> None:
    data, contract = wiring.dataset(config.data, 0), DataContract()
    same = replace(data, test_images=data.train_images, test_labels=data.train_labels)
    _fails(contract.test_it_is_not_tested_on_what_it_was_trained_on, same)
    with pytest.raises(DataError, match=r"must be 0..2 for 3 classes"):
        replace(data, classes=3)


def test_a_population_with_a_client_without_data_fails(config: Config) -> None:
    people = wiring.population(config)
    empty = replace(people, train=[people.train[0][:0], *people.train[1:]])
    _fails(PopulationContract().test_every_client_has_data_to_train_and_to_test, empty)


@pytest.mark.parametrize(
    ("overrides", "clients"),
    [
        (("experiment=federation_demo",), 3),  # has settings of FLIC
        (("population.dynamics.newcomers=4", "population.dynamics.join_rounds=[2]"), 20),
        (("strategy=flic", "strategy.cluster_round=1"), 3),
    ],
)
def test_words_of_any_experiment_make_a_small_run(overrides: tuple[str, ...], clients: int) -> None:
    found = load(small(overrides))
    assert (found.rounds, found.population.options["clients"]) == (2, clients)
    assert found.strategy.path.endswith("Flic" if "strategy=flic" in overrides else "FedAvg")


class TestUnequal(LearnerContract, NetworkContract):
    """The first client has three samples."""

    overrides = ("population=quantity_skew", "network=mlp")
