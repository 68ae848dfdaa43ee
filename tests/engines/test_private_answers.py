"""Answers with losses in whole runs: booked with the updates, in records and after a kill."""

import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.common import FitIns, Parameters

sys.path.insert(0, str(Path(__file__).parent))
from carried_runs import SMALL, Watched, assert_same, run

from fl_app.client import accountant
from fl_app.client.accountant import Release
from fl_app.client.private_losses import SHARED, TOLD
from fl_app.client.training_plan import TrainingPlan
from fl_app.engines.availability import Availability
from fl_app.engines.newcomers import ASKED, Newcomers
from fl_app.engines.privacy_budget import PrivacyBudget
from fl_app.records.newcomers import read_newcomers
from fl_app.records.releases import ReleaseLog
from fl_app.strategies.outcome import Event
from fl_app.strategies.replies import ClientFailure
from fl_app.strategies.state import Communities
from fl_app.testing.toy import SIZE, Proxy, builder, context, roster
from fl_app.wiring import made

sample_dp = partial(made, "privacy=sample_dp")
local_dp = partial(made, "privacy=local_dp")
PLAN = TrainingPlan(9, 1.0, 1000, 50, 1, losses=True)
MODEL = b"\0"
PRIVATE = ("privacy=sample_dp", "population.train_samples=100", *SMALL)


def _asked(known, count: int, **config) -> list[tuple[Proxy, FitIns]]:
    return [
        (proxy, FitIns(Parameters([MODEL] * count, ""), dict(config)))
        for proxy in known.proxies().values()
    ]


@pytest.mark.parametrize(
    ("count", "config", "answers"),
    [(1, {}, False), (1, {TOLD: False}, False), (1, {TOLD: True}, True), (3, {}, True)],
)
def test_an_answer_is_booked_if_the_message_asks_for_one(
    count: int, config: dict[str, bool], answers: bool
) -> None:
    known, guard = roster(2), sample_dp(epsilon=10.0)
    budget = PrivacyBudget(guard, lambda samples: PLAN)
    asked = _asked(known, count, **config)
    budget.instruct(1, asked, known)
    assert all(ins.config[SHARED] is True for _, ins in asked)
    method = builder("fedavg")(context())
    method.cohort.asked = {}
    outcome = method.outcome(0)
    object.__setattr__(outcome, "cohort", [0, 1])
    record = budget.book(outcome, known)
    told = guard.loss_release(PLAN)
    expected = [guard.release(PLAN), *[told] * answers]
    assert budget.releases == {0: expected, 1: expected}
    assert [Release(**each) for each in record["answered"].values()] == [told] * 2 * answers
    assert record["epsilon"]["max"] == accountant.spent(expected, 1e-5)
    again = PrivacyBudget(guard, lambda samples: PLAN)
    again.restore([{"round": 1, "privacy": record, "events": []}])
    assert again.releases == budget.releases


def test_records_of_runs_before_losses_were_booked_are_restored() -> None:
    known, guard = roster(1), sample_dp(epsilon=10.0)
    budget = PrivacyBudget(guard, lambda samples: PLAN)
    old = {"noise_multiplier": 1.0, "rate": 0.1, "steps": 10, "adaptive": False}
    found = {"kind": "sample_dp", "released": {"0": old}, "next_clip": 1.0}
    budget.restore([{"round": 1, "privacy": found, "events": []}])
    assert budget.releases == {0: [Release(1.0, 0.1, 10)]}
    assert budget.over(known) == []


def test_answers_asked_for_before_a_kill_are_spent(tmp_path: Path) -> None:
    known, guard = roster(2), sample_dp(epsilon=10.0, randomness="system")

    def budget() -> PrivacyBudget:
        return PrivacyBudget(guard, lambda samples: PLAN, ReleaseLog(tmp_path))

    first = budget()
    first.instruct(1, _asked(known, 2), known)
    assert first.question(2, 0, 2, known) == {SHARED: True}
    second = budget()
    second.restore([])
    told = guard.loss_release(PLAN)
    found = {client: Counter(each) for client, each in second.releases.items()}
    assert found == {0: {guard.release(PLAN): 1, told: 2}, 1: {guard.release(PLAN): 1, told: 1}}


@pytest.mark.parametrize(
    "guard", [local_dp(epsilon=10.0), sample_dp(epsilon=0.001), sample_dp(noise_multiplier=1e-3)]
)
def test_a_newcomer_is_not_asked_in_vain(guard, tmp_path: Path) -> None:
    known = roster(1)
    budget = PrivacyBudget(guard, lambda samples: TrainingPlan(9, 1.0, 10, 5, 1))
    budget.releases = {0: [Release(1e-2, 1.0, 1)]}
    assert budget.question(1, 0, 2, known) is None
    method = builder("flic")(context(private=True))
    newcomers = Newcomers(
        method, Availability(known, None, budget), tmp_path, places=True, unplaced=True
    )
    assert newcomers._told(1, 0, 2) is None
    assert newcomers.events == [
        Event(
            "not placed",
            "client 0: noise would hide which model suits it, or its budget is spent",
            [0],
        )
    ]
    assert newcomers._asked[0] == ASKED


def test_a_newcomer_is_not_asked_more_often_because_the_run_was_resumed(tmp_path: Path) -> None:
    """Asked once in a recorded round, once in one that was lost, so once more: then never."""
    known, guard = roster(3), sample_dp(epsilon=1000.0, randomness="system")
    method = builder("flic")(context(private=True))
    method.state.communities = Communities(np.eye(2, SIZE, dtype=np.float32), {0: 0, 1: 1})
    asked = 0

    def started(records: Sequence[Mapping[str, Any]]) -> Newcomers:
        budget = PrivacyBudget(guard, lambda samples: PLAN, ReleaseLog(tmp_path))
        budget.restore(records)
        given = Availability(known, None, budget)
        return Newcomers(method, given, tmp_path, places=False, unplaced=True)

    def silent(_: int, questions: Sequence[Any]) -> tuple[list[Any], list[ClientFailure]]:
        nonlocal asked
        asked += len(questions)
        return [], [ClientFailure(2, "it was killed") for _ in questions]

    first = started([])
    first.begin(1, [])
    first.place(1, silent)
    assert first.availability.budget is not None
    booked = first.availability.budget.book(replace(method.outcome(0), cohort=[]), known)
    first.place(2, silent)
    record = {"round": 1, "privacy": booked, "events": [], "sampled": [], "accuracy": None}
    second = started([record])
    second.begin(2, [record])
    for server_round in range(2, 6):
        second.place(server_round, silent)
    assert asked == ASKED
    assert second.waiting() == []


def test_a_private_run_books_choices_and_keeps_its_budget(tmp_path: Path) -> None:
    words = "strategy=ifca", "strategy.communities=2", "privacy.epsilon=30"
    rounds = run(tmp_path, *PRIVATE, *words, "strategy.participation=1")
    told = [record["privacy"] for record in rounds]
    assert all(each["answered"].keys() == each["released"].keys() for each in told)
    assert 29 < told[-1]["epsilon"]["max"] <= 30
    assert [record["train_loss"] for record in rounds] == [None] * 4
    assert all(len(record["accuracy"]["clients"]) == 6 for record in rounds)
    assert not any(record["rejected"] for record in rounds)


def test_who_never_trained_is_asked_once_and_keeps_its_choice(tmp_path: Path) -> None:
    words = ("strategy=flic", "strategy.cluster_round=1", "privacy.epsilon=100", "rounds=4",
             "strategy.participation=0.5", "graph.resolution=3")  # fmt: skip
    rounds = run(tmp_path, *PRIVATE, *words)
    placed = [client for record in rounds for client in record["privacy"]["placed"]]
    members = set(rounds[0]["sampled"])
    count = rounds[-1]["communities"]["count"]
    if count > 1:
        assert sorted(placed) == sorted(str(each) for each in range(6) if each not in members)
        assert read_newcomers(tmp_path).keys() == set(range(6)) - members
        assert len(rounds[-1]["accuracy"]["clients"]) == 6
    assert not any(record["privacy"]["answered"] for record in rounds)


@pytest.mark.parametrize(
    "words",
    [
        ("strategy=ifca", "strategy.communities=2", "privacy.epsilon=30"),
        ("strategy=flic", "strategy.cluster_round=1", "privacy.epsilon=100",
         "graph.resolution=3"),
    ],
)  # fmt: skip
def test_a_resumed_run_books_and_chooses_the_same(words: tuple[str, ...], tmp_path: Path) -> None:
    copy = tmp_path / "killed"

    def at(kind: str, server_round: str) -> None:
        if kind == "train" and server_round == "3" and not copy.exists():
            shutil.copytree(tmp_path / "whole", copy)

    every = *PRIVATE, *words, "engine.evaluate_with_training=false"
    run(tmp_path / "whole", *every, watched=Watched(at=at))
    run(copy, *every, "records.resume=true")
    assert_same(tmp_path / "whole", copy)
    assert read_newcomers(tmp_path / "whole") == read_newcomers(copy)


def test_a_run_with_auto_asks_for_losses_until_the_clustering(tmp_path: Path) -> None:
    words = ("strategy=flic", "strategy.cluster_round=auto", "strategy.stability_window=1",
             "strategy.stability_tolerance=0.99", "privacy.epsilon=100", "rounds=4",
             "strategy.participation=1")  # fmt: skip
    rounds = run(tmp_path, *PRIVATE, *words)
    answered = [len(record["privacy"]["answered"]) for record in rounds]
    assert answered == [6, 6, 0, 0]
    assert [record["train_loss"] is None for record in rounds] == [False, False, True, True]
    assert rounds[1]["stability"] is not None
