"""Contracts of networks, learners, data sets and populations, on the data that they are given."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fl_app import client_wiring, wiring
from fl_app.client.learner import TrainingJob
from fl_app.client.local import LocalClient
from fl_app.compatibility import problems
from fl_app.composition import compose
from fl_app.config import Config, ConfigError, load, option
from fl_app.data.datasets import Dataset
from fl_app.data.population import ClientData, Population
from fl_app.hidden_state import answers, rebuilt
from fl_app.one_run import run
from fl_app.params import FlatModule
from fl_app.types import Vector

CLIENTS, EPOCH = "population.clients=3", "client.epochs=1"
SMALL = (
    CLIENTS, "rounds=2", EPOCH, "records.evaluate_every=1",
    "records.figures=false", "records.report=false", "tracking=none", "strategy=fedavg",
)  # fmt: skip


@cache
def small(overrides: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a small run with a part that these words select (cached).

    The method is FedAvg, without those settings of an experiment's own method that it lacks, or of
    its graph. The number of clients stays that of the words if they cannot do with fewer, as with
    late newcomers, and so do the epochs with clients that cluster points.
    """
    words = [*SMALL, *overrides]
    known = option("strategy=fedavg")
    tree, usual = compose(words), compose(SMALL).graph
    method = tree.strategy
    if method.get("_target_") == known.path:
        words += [
            f"~strategy.{name}" for name in method if name not in ("_target_", *known.options)
        ]
        words += [
            f"graph.{name}={usual[name]}" for name in usual if tree.graph[name] != usual[name]
        ]
    try:
        load(words, also=problems)
    except ConfigError as error:
        for word in (CLIENTS, EPOCH):
            if word.partition("=")[0] in str(error):
                words.remove(word)
    return tuple(words)


class Contract:
    """Tests of a part; a subclass selects it by `overrides`, as on the command line."""

    overrides: Sequence[str] = ()

    @pytest.fixture
    def config(self) -> Config:
        """Return the configuration of a small run with the part."""
        return load(small(tuple(self.overrides)), also=problems)

    def test_a_run_with_it_completes_and_nobody_fails(self, tmp_path: Path) -> None:
        run([*small(tuple(self.overrides))], tmp_path / "run")
        summary = json.loads((tmp_path / "run" / "summary.json").read_text())
        assert summary["status"] == "completed"
        assert summary["clients"]["failed"] == summary["clients"]["rejected"] == 0


class NetworkContract(Contract):
    """Tests of a network; `overrides` select it, and data of a shape that it takes."""

    overrides: Sequence[str] = ("network=small_cnn",)

    @pytest.fixture
    def built(self, config: Config) -> nn.Module:
        """Return the network as every process of a run builds it."""
        return wiring.network(config, wiring.shared_population(config).dataset)

    def test_it_is_the_same_whenever_it_is_built(self, config: Config, built: nn.Module) -> None:
        again = wiring.network(config, wiring.shared_population(config).dataset)
        _same(built.state_dict(), again.state_dict())

    def test_another_number_is_another_draw_of_its_weights(self, config: Config) -> None:
        first, second = (wiring.initial_model(config, number)[1] for number in (0, 1))
        assert first.shape == second.shape
        assert (first != second).any()

    def test_a_model_that_travelled_loads_strictly(self, config: Config, built: nn.Module) -> None:
        flat = FlatModule(wiring.network(config, wiring.shared_population(config).dataset))
        flat.load(flat.vector())
        built.load_state_dict(flat.module.state_dict(), strict=True)

    def test_a_model_rebuilt_from_what_is_saved_answers_as_the_trained_one(
        self, config: Config
    ) -> None:
        client = client_wiring.client(config, _largest(config))
        data, flat = client.load(1), client.learner.flat
        model = client.fit(wiring.initial_model(config)[1], server_round=1).model.copy()
        trained = answers(flat.module, inputs := data.train_images[:5])
        dataset = wiring.shared_population(config).dataset
        fresh = rebuilt(flat, model, lambda: wiring.network(config, dataset))
        again = answers(fresh.to(inputs.device), inputs)
        torch.testing.assert_close(again, trained, rtol=1e-3, atol=1e-4)

    def test_it_answers_each_sample_with_finite_numbers(
        self, config: Config, built: nn.Module
    ) -> None:
        data = _data(config)
        built.eval()
        with torch.inference_mode():
            answers = built(images := data.train_images[:5])
        assert len(answers) == len(images)
        assert torch.isfinite(answers).all()

    def test_one_sample_does_not_depend_on_the_others(
        self, config: Config, built: nn.Module
    ) -> None:
        data = _data(config)
        built.eval()
        with torch.inference_mode():
            alone, among = built(data.train_images[:1]), built(data.train_images[:5])[:1]
        torch.testing.assert_close(alone, among, rtol=1e-4, atol=1e-5)


class LearnerContract(Contract):
    """Tests of a learner; `overrides` select a network that names it."""

    overrides: Sequence[str] = ("network=small_cnn",)

    @pytest.fixture
    def client(self, config: Config) -> LocalClient:
        """Return the client with the most samples."""
        return client_wiring.client(config, _largest(config))

    @pytest.fixture
    def start(self, config: Config) -> Vector:
        """Return the first model (d,)."""
        return wiring.initial_model(config)[1]

    def test_training_is_repeatable_whatever_came_between(
        self, config: Config, client: LocalClient, start: Vector
    ) -> None:
        before = start.copy()
        first = client.fit(start, server_round=1).model.copy()
        other = int(_largest(config) == 0)
        client_wiring.client(config, other).fit(first, server_round=1)
        torch.rand(3), np.random.rand(3)
        second = client.fit(start, server_round=1).model
        np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(start, before)

    def test_another_round_has_other_draws(
        self, config: Config, client: LocalClient, start: Vector
    ) -> None:
        if client.samples <= config.client.batch_size:
            pytest.skip("a single batch has no order")
        first = client.fit(start, server_round=1).model.copy()
        assert (first != client.fit(start, server_round=2).model).any()

    def test_training_changes_the_model_and_what_it_tells_is_finite(
        self, client: LocalClient, start: Vector
    ) -> None:
        done = client.fit(start, server_round=1)
        assert (done.model != start).any()
        assert np.isfinite(done.model).all()
        assert np.isfinite(done.loss)
        assert done.seconds >= 0

    def test_it_trains_from_the_model_that_it_is_given(
        self, config: Config, client: LocalClient, start: Vector
    ) -> None:
        first = client.fit(start, server_round=1).model.copy()
        other = wiring.initial_model(config, 1)[1]
        assert (first != client.fit(other, server_round=1).model).any()

    def test_training_lowers_the_loss_on_its_own_data(
        self, client: LocalClient, start: Vector
    ) -> None:
        model = start
        for server_round in range(1, 6):
            model = client.fit(model, server_round=server_round).model.copy()
        first, last = (
            client.score(each, train_data=True, server_round=1).loss for each in (start, model)
        )
        assert last < first

    def test_scoring_twice_is_scoring_once(self, client: LocalClient, start: Vector) -> None:
        scores = [client.score(start, train_data=False, server_round=1) for _ in range(2)]
        assert scores[0].loss == scores[1].loss
        data = client.load(1)
        trains = client.learner.scores_training_data
        labels = data.train_labels if trains else data.test_labels
        assert 0 < scores[0].samples <= labels.numel()
        if labels.ndim == 1:  # of several labels per sample, some may not count
            assert scores[0].samples == len(labels)

    def test_a_single_sample_leaves_a_finite_model(
        self, client: LocalClient, start: Vector
    ) -> None:
        data = client.load(1)
        job = TrainingJob(start, data.train_images[:1], data.train_labels[:1], torch.Generator())
        assert np.isfinite(client.learner.train(job).model).all()


class DataContract(Contract):
    """Tests of a data set."""

    overrides: Sequence[str] = ("data=digits",)

    @pytest.fixture
    def dataset(self, config: Config) -> Dataset:
        """Return the data set."""
        return wiring.dataset(config.data, config.seed)

    def test_there_is_data_to_train_and_to_test(self, dataset: Dataset) -> None:
        assert len(dataset.train_images) == len(dataset.train_labels) > 0
        assert len(dataset.test_images) == len(dataset.test_labels) > 0

    def test_it_is_the_same_in_every_process(self, config: Config, dataset: Dataset) -> None:
        again = config.data.resolve()(seed=config.seed, **config.data.options)
        for name in ("train_images", "train_labels", "test_images", "test_labels"):
            np.testing.assert_array_equal(getattr(dataset, name), getattr(again, name))

    def test_it_is_not_tested_on_what_it_was_trained_on(self, dataset: Dataset) -> None:
        trained = {np.asarray(image).tobytes() for image in dataset.train_images}
        tested = [np.asarray(image).tobytes() in trained for image in dataset.test_images]
        assert np.mean(tested) < 0.5


class PopulationContract(Contract):
    """Tests of a population."""

    overrides: Sequence[str] = ("population=label_swap",)

    @pytest.fixture
    def people(self, config: Config) -> Population:
        """Return the population."""
        return wiring.population(config)

    def test_every_client_has_data_to_train_and_to_test(self, people: Population) -> None:
        assert people.clients > 0
        for client in range(people.clients):
            data = people.client(client)
            assert len(data.train_images) == len(data.train_labels) == people.samples(client) > 0
            assert len(data.test_images) == len(data.test_labels) > 0

    def test_it_is_the_same_in_every_process(self, config: Config, people: Population) -> None:
        again = wiring.population(config)
        for client in range(people.clients):
            _same(vars(people.client(client)), vars(again.client(client)))

    def test_every_client_has_a_planted_group(self, people: Population) -> None:
        assert people.groups.shape == (people.clients,)
        assert np.issubdtype(people.groups.dtype, np.integer)

    def test_an_unknown_client_is_refused(self, people: Population) -> None:
        for client in (-1, people.clients):
            with pytest.raises(ValueError, match="client id must be in"):
                people.client(client)


def _largest(config: Config) -> int:
    people = wiring.shared_population(config)
    return max(range(people.clients), key=people.samples)


def _data(config: Config) -> ClientData:
    return wiring.shared_population(config).client(_largest(config))


def _same(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
