"""Evaluations that the next round's training carries: the same results."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord, RecordDict
from flwr.common import EvaluateIns, EvaluateRes

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "client"))
from carried_runs import ALL, APART, CARRIED, CLIENTS, MIXED, NORM, Watched, assert_same, run

from fl_app.client_app import FederatedClient
from fl_app.engines.carried_evaluation import CarriedEvaluation
from fl_app.engines.plain_exchange import PlainExchange
from fl_app.records.recorder import Recorder
from fl_app.testing.toy import context
from fl_app.wiring import made

CASES: dict[str, tuple[str, ...]] = {
    "one model": ("strategy=fedavg",),
    "all train": ("strategy=fedavg", "strategy.participation=1"),
    "every second round": ("strategy=flic", "strategy.cluster_round=2", "records.evaluate_every=2"),
    "communities from a round on": ("strategy=flic", "strategy.cluster_round=2"),
    "a common model": ("strategy=late", "strategy.cluster_round=1", "strategy.fallback=true"),
    "a choice of models": ("strategy=ifca",),
    "a common model in every second round": ("strategy=ifca", "strategy.fallback=true"),
    "losses of all models": ("strategy=feddrift",),
    "a global model too": ("strategy=communities",),
    "a mean of models for each": ("strategy=communities_wnn",),
    "a mixture": ("strategy=fedem", *MIXED),
    "splits": ("strategy=cfl",),
    "batch normalisation stays": ("strategy=fedavg", *NORM),
    "models of their own": ("strategy=fedavg", "personal=ditto"),
    "a trial of the attack": (
        "strategy=flic", "strategy.cluster_round=2", "attack=backdoor", "records.central_test=true",
    ),
    "some evaluate": ("strategy=ifca", "records.evaluate_at_most=2"),
    "metrics": ("strategy=fedavg", "+task.metrics.f1._target_=torchmetrics.F1Score",
                "+task.metrics.f1.task=multiclass", "+task.metrics.f1.num_classes=10"),
    "clients join, leave and drift": (
        "strategy=ifca", "engine.place_newcomers=true", "population.dynamics.newcomers=1",
        "population.dynamics.join_rounds=[3]", "population.dynamics.leavers=1",
        "population.dynamics.leave_rounds=[2]", "population.dynamics.drifters=1",
        "population.dynamics.drift_rounds=[3]",
    ),
    "choices of private clients": (
        "strategy=ifca", "strategy.communities=2", "privacy=sample_dp", "privacy.epsilon=30",
        "population.train_samples=100",
    ),
    "a privacy budget": (
        "strategy=fedavg", "privacy=local_dp", "privacy.epsilon=8", "population.train_samples=40",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", list(CASES))
def test_the_results_are_those_of_separate_exchanges(case: str, tmp_path: Path) -> None:
    apart, carried = Watched(), Watched()
    words = CASES[case]
    rounds = run(tmp_path / "apart", *words, APART, watched=apart)
    run(tmp_path / "carried", *words, CARRIED, watched=carried)
    assert any(record["accuracy"] for record in rounds)
    assert not apart.attached.total()
    assert carried.attached.total()
    kinds = [Counter(kind for kind, _ in each.seen.elements()) for each in (apart, carried)]
    assert kinds[0]["train"] == kinds[1]["train"]
    assert kinds[0]["evaluate"] > kinds[1]["evaluate"]
    assert_same(tmp_path / "apart", tmp_path / "carried")


def test_a_method_that_reads_its_scores_gets_them_in_the_same_round(tmp_path: Path) -> None:
    watched = Watched()
    run(tmp_path, "experiment=kmeans_blobs", "rounds=3", CARRIED, watched=watched)
    assert not watched.attached.total()
    assert watched.seen["evaluate", "2"]


@pytest.mark.parametrize(
    ("wanted", "attaches", "reads", "now", "reason"),
    [
        (True, True, False, 1, None),
        (False, True, False, 1, "engine.evaluate_with_training=false"),
        (True, False, False, 1, "under masks a score is part of a sum of its own"),
        (True, True, True, 1, "the method uses the scores of a round in this round"),
        (True, True, False, 4, "no round follows"),
    ],
)
def test_the_reason_for_an_exchange_of_its_own_is_told(
    wanted: bool, attaches: bool, reads: bool, now: int, reason: str | None
) -> None:
    method = made("strategy=fedavg", context(rounds=4))
    method.reads_scores = reads  # type: ignore[misc]
    exchange = PlainExchange(method)
    exchange.attaches = attaches
    none: Any = None
    carried = CarriedEvaluation(method, exchange, none, none, none, wanted=wanted)
    assert carried.apart_because(method.outcome(0), now) == reason
    finished = replace(method.outcome(0), finished="done")
    assert carried.apart_because(finished, now) is not None


def test_only_the_last_round_has_an_exchange_of_its_own_if_all_train(tmp_path: Path) -> None:
    watched = Watched()
    words = ("strategy=fedavg", "strategy.participation=1", CARRIED)
    run(tmp_path, *words, watched=watched)
    assert [watched.seen["evaluate", str(each)] for each in range(1, 5)] == [0, 0, 0, CLIENTS]
    assert [watched.attached[str(each)] for each in range(1, 5)] == [0, 6, 6, 6]


def test_a_round_that_waits_for_its_scores_is_told_to_be_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record comes only after the next round's training, which can take another hour."""
    told = []
    monkeypatch.setattr(Recorder, "trained", lambda self: told.append(len(self.history.rounds)))
    run(tmp_path, "strategy=fedavg", CARRIED)
    assert told == [0, 1, 2]


@pytest.mark.parametrize("participation", ["1", "0.5"])
def test_a_client_that_cannot_train_is_asked_apart(participation: str, tmp_path: Path) -> None:
    fails = {(client, "train", "3") for client in (1, 4, 5)}
    words = ("strategy=ifca", f"strategy.participation={participation}")
    rounds = run(tmp_path / "apart", *words, APART, watched=Watched(fails=fails))
    run(tmp_path / "carried", *words, CARRIED, watched=Watched(fails=fails))
    assert rounds[2]["failed"]
    assert len(rounds[1]["accuracy"]["clients"]) == CLIENTS
    assert_same(tmp_path / "apart", tmp_path / "carried")


def test_an_evaluation_that_fails_or_lies_spoils_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = FederatedClient.evaluate

    def evaluate(self: FederatedClient, ins: EvaluateIns) -> EvaluateRes:
        if (self.local.client_id, ins.config["round"]) == (1, 2):
            raise ValueError("no test samples")
        reply = honest(self, ins)
        if (self.local.client_id, ins.config["round"]) == (2, 2):
            reply.metrics["accuracy"] = 7.0
        return reply

    monkeypatch.setattr(FederatedClient, "evaluate", evaluate)
    rounds = run(tmp_path / "apart", *ALL, APART)
    run(tmp_path / "carried", *ALL, CARRIED)
    assert_same(tmp_path / "apart", tmp_path / "carried")
    assert rounds[1]["failed"] == {"1": "evaluation: ValueError: no test samples"}
    told = "evaluation: accuracy must be a number in 0..1, got 7.0"
    assert rounds[1]["rejected"] == {"2": told}  # once, of both models
    assert set(rounds[1]["accuracy"]["clients"]) == {"0", "3", "4", "5"}
    assert rounds[2]["sampled"] == list(range(CLIENTS))
    assert not rounds[2]["failed"] | rounds[2]["rejected"]


def test_a_score_that_is_missing_is_rejected_and_the_model_is_used(tmp_path: Path) -> None:
    def without(content: RecordDict) -> None:
        for name in [each for each in content if each.startswith("attached.")]:
            del content[name]

    words = ("strategy=fedavg", "strategy.participation=1")
    usual = run(tmp_path / "usual", *words, APART)
    lying = Watched(changes={(3, "train", "3"): without})
    rounds = run(tmp_path / "lying", *words, CARRIED, watched=lying)
    rule = "the score must be attached to the reply of training, got nothing"
    assert rounds[1]["rejected"] == {"3": f"evaluation: {rule}"}
    assert set(rounds[1]["accuracy"]["clients"]) == {"0", "1", "2", "4", "5"}
    assert rounds[2:] == usual[2:]


def test_a_model_that_is_rejected_does_not_spoil_the_score(tmp_path: Path) -> None:
    def garbage(content: RecordDict) -> None:
        content["fitres.metrics"] = ConfigRecord({"loss": "low"})

    def watched() -> Watched:
        return Watched(changes={(3, "train", "3"): garbage})

    rounds = run(tmp_path / "apart", *ALL, APART, watched=watched())
    run(tmp_path / "carried", *ALL, CARRIED, watched=watched())
    assert set(rounds[2]["rejected"]) == {"3"}
    assert not rounds[1]["rejected"]
    assert_same(tmp_path / "apart", tmp_path / "carried")
