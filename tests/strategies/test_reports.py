"""What clients tell beside their models reaches the strategy that asks, and no lie does."""

import json
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.common import FitRes

sys.path.insert(0, str(Path(__file__).parent))  # where user_methods is
sys.path.insert(0, str(Path(__file__).parents[1] / "client"))  # where user_networks is
sys.path.insert(0, str(Path(__file__).parents[1] / "engines"))  # where carried is
from carried import CarryingGrid
from user_methods import Asking, AskingForOne, packed

from fl_app import client_wiring, server_wiring, wiring
from fl_app.client.class_losses import class_losses
from fl_app.client.sgd import SgdLearner
from fl_app.compatibility import problems
from fl_app.config import ConfigError, load
from fl_app.engines import inprocess
from fl_app.learner_reports import Report, request
from fl_app.one_run import run
from fl_app.report_checks import check_reports
from fl_app.strategies.server_context import ServerContext
from fl_app.testing import MethodContract
from fl_app.testing.toy import Build, context, honest, play, roster
from fl_app.types import Vector

SMALL = [
    "population.clients=3", "rounds=1", "client.epochs=1", "population.train_samples=40",
    "population.test_samples=10", "records.figures=false", "records.report=false", "tracking=none",
    "strategy=fedavg", "strategy.participation=1.0",
]  # fmt: skip
ASKING = [*SMALL, "strategy._target_=user_methods.Asking"]
NORM = ["network=mcmahan_cnn", "network._target_=user_networks.batch_norm"]
TASK = request({name: each.sized(10) for name, each in Asking.asks.items()})


def _build(given: ServerContext) -> AskingForOne:
    AskingForOne.received.clear()
    return AskingForOne(given, participation=1.0, weighting="samples")


class TestAsking(MethodContract):
    @pytest.fixture
    def build(self) -> Build:
        def made(given: ServerContext) -> AskingForOne:
            return AskingForOne(given, participation=0.5, weighting="samples")

        return made


LIES = {
    "NaN": ({"losses": packed(1, np.nan, 1)}, "report.losses must be 3 finite float32 numbers"),
    "length": ({"losses": packed(1, 1)}, "12 bytes, got 8 bytes"),
    "text": ({"losses": "1, 1, 1"}, "got '1, 1, 1'"),
    "range": ({"norm": 2.0}, "report.norm must be a number in 0..1, got 2.0"),
    "missing": ({"norm": None}, "report.norm must be a number in 0..1, got None"),
    "more": ({"mine": 2.0}, "must be a report that was asked for"),
}


@pytest.mark.parametrize("lie", list(LIES))
def test_a_liar_is_named_and_what_it_tells_never_arrives(lie: str) -> None:
    changes, said = LIES[lie]

    def client(client_id: int, start: Vector, server_round: int) -> FitRes:
        reply = honest(client_id, start, server_round)
        if client_id == 2:
            reply.metrics |= {f"report.{name}": value for name, value in changes.items()}
        return reply

    strategy = _build(context())
    play(strategy, roster(5), range(1, 2), client=client, reverse=True)
    assert list(strategy.rejections.by_client) == [2]
    assert said in strategy.rejections.by_client[2]
    (replies,) = strategy.received
    assert replies.client_ids.tolist() == [0, 1, 3, 4]
    assert replies.reports["losses"].shape == (4, 3)
    assert replies.reports["norm"].shape == (4,)
    assert np.isfinite(replies.reports["losses"]).all()


def test_the_order_is_that_of_the_clients() -> None:
    def client(client_id: int, start: Vector, server_round: int) -> FitRes:
        reply = honest(client_id, start, server_round)
        told = {"report.losses": packed(client_id, 0, 1), "report.norm": client_id / 10}
        reply.metrics |= told
        return reply

    strategy = _build(context())
    play(strategy, roster(5), range(1, 2), client=client, reverse=True)
    (replies,) = strategy.received
    np.testing.assert_allclose(replies.reports["losses"][:, 0], [0, 1, 2, 3, 4])
    np.testing.assert_allclose(replies.reports["norm"], [0, 0.1, 0.2, 0.3, 0.4])


class _OnlyTheOdd(AskingForOne):
    """Asks only clients with an odd id for their losses."""

    def asks_of(self, client_id: int) -> Collection[str]:
        return self.asks if client_id % 2 else ("norm",)


def test_a_client_tells_only_what_it_is_asked_for() -> None:
    _OnlyTheOdd.received.clear()
    strategy = _OnlyTheOdd(context(), participation=1.0, weighting="samples")
    play(strategy, roster(5), range(1, 2))
    assert strategy.rejections.by_client == {}
    (replies,) = strategy.received
    blank = np.isnan(replies.reports["losses"]).all(axis=1)
    assert blank.tolist() == [True, False, True, False, True]
    assert np.isfinite(replies.reports["norm"]).all()


@pytest.mark.parametrize("cohort", ["single", "fused"])
def test_a_strategy_gets_what_the_clients_computed(cohort: str, tmp_path: Path) -> None:
    given = [*ASKING, f"client.cohort={cohort}"]
    Asking.received.clear()
    run(given, tmp_path / "run")
    config = load(given)
    people, (_, start) = wiring.shared_population(config), wiring.initial_model(config)
    (replies,) = Asking.received
    assert replies.client_ids.tolist() == [0, 1, 2]
    for row in range(3):
        client, data = client_wiring.client(config, row), people.client(row)
        assert client.fit(start, server_round=1).reports == {}
        told = client.fit(start, server_round=1, task=TASK).reports
        counts = np.bincount(data.train_labels.numpy(), minlength=10)
        np.testing.assert_array_equal(replies.reports["class_counts"][row], counts)
        close = {"rtol": 1e-3, "atol": 1e-5}  # a fused cohort sums in another order
        np.testing.assert_allclose(
            replies.reports["class_losses"][row], told["class_losses"], **close
        )
        # the mean over the samples is what scoring the trained model gives
        scored = client.score(replies.models[row], train_data=True, server_round=1)
        mean = np.average(told["class_losses"], weights=counts)
        assert mean == pytest.approx(scored.loss, rel=1e-3)


def test_reports_survive_the_way_of_a_deployment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    for grid in (inprocess.InProcessGrid, CarryingGrid):
        monkeypatch.setattr(inprocess, "InProcessGrid", grid)
        Asking.received.clear()
        run(ASKING, tmp_path / grid.__name__)
        told.append(Asking.received[0])
    here, carried = told
    assert set(carried.reports) == {"class_losses", "class_counts"}
    for name, values in here.reports.items():
        np.testing.assert_array_equal(carried.reports[name], values)
    np.testing.assert_array_equal(carried.models, here.models)


def test_a_learner_that_tells_something_else_is_rejected_and_named(tmp_path: Path) -> None:
    Asking.received.clear()
    lying = ["client.learner=user_methods.Lying", "engine.min_success=1", "population.clients=4"]
    run([*ASKING, *lying], tmp_path / "run")
    (line,) = (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()
    said = sorted(json.loads(line)["rejected"].values())
    assert len(said) == 3
    assert said[0] == "report.class_counts must be present, got nothing"
    assert "got 44 bytes" in said[1]
    assert "got numbers in nan" in said[2]
    (replies,) = Asking.received
    assert replies.reports["class_losses"].shape == (1, 10)
    assert np.isfinite(replies.reports["class_losses"]).all()


class Stored(dict[str, np.ndarray]):
    """What stays with a client."""

    def read(self, until: int) -> dict[str, np.ndarray]:
        return dict(self)

    def write(self, tensors: Mapping[str, np.ndarray], server_round: int) -> None:
        self.update(tensors)


@pytest.mark.parametrize("network", [[], NORM, [*NORM, "client.batch_norm=local"]])
def test_asking_changes_neither_the_model_nor_what_stays(network: list[str]) -> None:
    config = load([*SMALL, *network])
    found = []
    for task in ({}, TASK):
        memory, model = Stored(), wiring.initial_model(config)[1]
        client = client_wiring.client(config, 0, memory=memory)
        for server_round in (1, 2):
            done = client.fit(model, server_round=server_round, task=task)
            model = done.model.copy()
        assert bool(done.reports) == bool(task)
        found.append((model, memory))
    (first, kept), (second, also_kept) = found
    np.testing.assert_array_equal(first, second)
    assert bool(kept) == ("client.batch_norm=local" in network)
    assert kept.keys() == also_kept.keys()
    assert all(np.array_equal(kept[name], also_kept[name]) for name in kept)


def test_a_class_without_samples_has_the_loss_0_and_a_count_of_0() -> None:
    config = load([*SMALL, "client.device=cpu"])
    learner = client_wiring.client(config, 0).learner
    data = wiring.shared_population(config).client(0)
    few = data.train_labels < 3
    settings = {"classes": 10, "precision": "fp32"}
    given = data.train_images[few], data.train_labels[few], learner.recipe.loss_of(None, 10)
    told = class_losses(learner.flat.module, *given, **settings)
    assert (told["class_counts"] > 0).tolist() == [True] * 3 + [False] * 7
    assert (told["class_losses"][3:] == 0).all()
    assert (told["class_losses"][:3] > 0).all()


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ([*ASKING, "privacy=local_dp"], "privacy must be none with user_methods.Asking"),
        ([*ASKING, "privacy=sample_dp"], "no noise hides these"),
        ([*SMALL, "strategy._target_=user_methods.AskingForMore"], "SgdLearner tells class_losses"),
    ],
)
def test_what_cannot_be_told_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(overrides, also=problems)


def test_numbers_per_class_need_classes() -> None:
    config = load(ASKING)
    method, data = config.strategy, wiring.shared_population(config).dataset
    numbers = replace(data, target="regression", classes=1)
    with pytest.raises(ValueError, match=r"must be classification with user_methods\.Asking"):
        check_reports(method, Asking.asks, SgdLearner, None, numbers)
    with pytest.raises(ValueError, match="asks of a strategy must map names to"):
        check_reports(method, {"class_losses": 10}, SgdLearner, None, data)


def test_sizes_of_samples_need_samples_of_numbers() -> None:
    config = load(ASKING)
    data = wiring.shared_population(config).dataset
    asks = {"class_losses": Report(length=2, per=("inputs",), low=0, high=1)}
    check_reports(config.strategy, asks, SgdLearner, None, data)
    words = {f"{part}_images": np.ones((len(labels), 4), np.int64) for part, labels in (
        ("train", data.train_labels), ("test", data.test_labels))}  # fmt: skip
    tokens = replace(data, **words, moments=None)
    with pytest.raises(ValueError, match="the samples must be numbers with user_methods"):
        check_reports(config.strategy, asks, SgdLearner, None, tokens)


def test_what_a_constructor_asks_for_is_checked_before_the_first_round() -> None:
    config = load([*SMALL, "strategy._target_=user_methods.AskingLate"])
    with pytest.raises(ValueError, match="asks clients for histogram, but SgdLearner tells"):
        server_wiring.strategy(config)


def test_a_client_with_privacy_tells_nothing_even_if_it_is_asked() -> None:
    config = load([*SMALL, "privacy=local_dp"])
    client, (_, start) = client_wiring.client(config, 0), wiring.initial_model(config)
    assert client.fit(start, server_round=1, task=TASK).reports == {}
