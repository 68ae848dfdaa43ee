"""What clients spend, booked round by round, and taken up again."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.common import FitIns, Parameters

sys.path.insert(0, str(Path(__file__).parents[1] / "strategies"))
from fl_app.client import accountant
from fl_app.client.privacy import Privacy
from fl_app.client.training_plan import TrainingPlan
from fl_app.engines.privacy_budget import PrivacyBudget
from fl_app.records.releases import FILE, ReleaseLog
from fl_app.strategies.model_evaluation import Scores
from fl_app.strategies.outcome import FEDERATED, Outcome
from fl_app.strategies.roster import Identity, Roster
from fl_app.testing.toy import Proxy, roster
from fl_app.wiring import made

local_dp = partial(made, "privacy=local_dp")
sample_dp = partial(made, "privacy=sample_dp")

NOTHING = Parameters([], "")


def _budget(guard: Privacy, rounds: int = 3) -> PrivacyBudget:
    return PrivacyBudget(guard, lambda samples: TrainingPlan(rounds, 1.0, samples, 5, 1))


def _outcome(cohort: list[int], metrics: Mapping[int, Mapping[str, float]]) -> Outcome:
    """Return the outcome of a round in which these clients were asked to train."""
    empty = np.zeros((1, 2), np.float32)
    return Outcome(
        models=empty, members={}, global_model=None, removed={}, phase=FEDERATED, view=None,
        events=(), cohort=cohort, rejected={}, dominance={}, odd_updates={}, metrics=metrics,
        training_s=0.0, scores=Scores(), step=None,
    )  # fmt: skip


def test_everyone_asked_has_spent_the_others_have_not() -> None:
    known, budget = roster(4), _budget(local_dp(epsilon=10.0))
    budget.book(_outcome([0, 1], {}), known)
    record = budget.book(_outcome([1, 2], {}), known)
    once, twice = (
        accountant.spent([local_dp(epsilon=10.0).release(TrainingPlan(3, 1.0, 10, 5, 1))] * n, 1e-5)
        for n in (1, 2)
    )
    assert record["epsilon"]["clients"] == {"1": twice, "2": once}
    assert record["epsilon"]["max"] == twice
    assert record["epsilon"]["mean"] == pytest.approx((2 * once + twice) / 3)
    assert budget.spent(3) == 0.0


def test_the_budget_lasts_exactly_for_the_rounds_it_was_planned_for() -> None:
    known, budget = roster(3), _budget(local_dp(epsilon=10.0), rounds=3)
    for _ in range(2):
        budget.book(_outcome([0, 1, 2], {}), known)
        assert budget.exhausted(known, 1) is None
    budget.book(_outcome([0, 1], {}), known)
    end = budget.exhausted(known, 1)
    assert end is not None
    assert end.detail.startswith("one more round would cost clients [0, 1] more than epsilon 10")


def test_a_given_noise_ends_where_its_epsilon_does_and_a_budget_for_rounds_never() -> None:
    known = roster(3)
    noisy = _budget(local_dp(epsilon=5.0, noise_multiplier=4.0))
    rounds = 0
    while noisy.exhausted(known, 1) is None:
        noisy.book(_outcome([0, 1, 2], {}), known)
        rounds += 1
    spent = [
        accountant.spent([accountant.whole_update(4.0)] * n, 1e-5) for n in (rounds, rounds + 1)
    ]
    assert spent[0] <= 5.0 < spent[1]
    endless = _budget(local_dp(epsilon=5.0, budget="round"))
    for _ in range(20):
        endless.book(_outcome([0, 1, 2], {}), known)
    assert endless.exhausted(known, 1) is None
    assert endless.spent(0) > 5.0


@pytest.mark.parametrize("guard", [local_dp(quantile=0.5), sample_dp(noise_multiplier=1.0)])
def test_a_resumed_budget_goes_on_from_the_records(guard: Privacy) -> None:
    known, first = roster(3), _budget(guard, rounds=9)
    records = []
    for said in (0.9, 0.2):
        booked = first.book(_outcome([0, 1], {0: {"fitting": said}}), known)
        records.append(json.loads(json.dumps({"round": 1, "privacy": booked, "events": []})))
    second = _budget(guard, rounds=9)
    second.restore(records)
    assert second.releases == first.releases
    assert second.bound == first.bound
    with pytest.raises(ValueError, match="must keep its kind of privacy"):
        second.restore([{"round": 3, "privacy": None}])


def test_a_resumed_run_has_the_fixed_bound_of_its_settings() -> None:
    known, first = roster(3), _budget(local_dp(clip=0.5))
    booked = first.book(_outcome([0], {}), known)
    second = _budget(local_dp(clip=2.0))
    second.restore([{"round": 1, "privacy": booked, "events": []}])
    again = second.book(_outcome([0], {}), known)
    assert (again["clip"], again["next_clip"]) == (2.0, 2.0)


def test_what_was_asked_of_clients_before_a_kill_is_spent(tmp_path: Path) -> None:
    known, guard = roster(3), local_dp(noise_multiplier=1.0, randomness="system")

    def budget() -> PrivacyBudget:
        log = ReleaseLog(tmp_path)
        return PrivacyBudget(guard, lambda samples: TrainingPlan(9, 1.0, samples, 5, 1), log)

    def asked(*clients: int) -> list[tuple[Proxy, FitIns]]:
        return [(known.proxies()[client], FitIns(NOTHING, {})) for client in clients]

    first = budget()
    first.instruct(1, asked(0, 1), known)
    booked = first.book(_outcome([0, 1], {}), known)
    record = {"round": 1, "privacy": booked, "events": []}
    first.instruct(2, asked(0, 2), known)  # killed before the round was recorded
    with (tmp_path / FILE).open("a") as cut:
        cut.write('{"round": 3, "upd')  # and while it wrote whom it would ask next
    second = budget()
    second.restore([record])
    assert {client: len(each) for client, each in second.releases.items()} == {0: 2, 1: 1, 2: 1}
    second.instruct(2, asked(0, 2), known)  # killed again, and its checkpoint is lost
    third = budget()
    third.restore([])
    assert {client: len(each) for client, each in third.releases.items()} == {0: 3, 1: 1, 2: 2}


def test_a_killed_round_is_spent_with_the_noise_that_it_had(tmp_path: Path) -> None:
    known, log = roster(1), ReleaseLog(tmp_path)

    def asked(noise: float, records: Sequence[Mapping[str, Any]]) -> PrivacyBudget:
        guard = local_dp(noise_multiplier=noise, randomness="system")
        plan = TrainingPlan(9, 1.0, 10, 5, 1)
        budget = PrivacyBudget(guard, lambda samples: plan, log)
        budget.restore(records)
        budget.instruct(1, [(known.proxies()[0], FitIns(NOTHING, {}))], known)
        return budget

    asked(1.0, [])  # killed, and resumed with more noise
    booked = asked(5.0, []).book(_outcome([0], {}), known)
    again = asked(5.0, [{"round": 1, "privacy": booked, "events": []}])
    assert {each.noise_multiplier for each in again.releases[0]} == {1.0, 5.0}


def test_a_run_that_starts_again_from_its_beginning_keeps_its_kind(tmp_path: Path) -> None:
    known, log = roster(1), ReleaseLog(tmp_path)

    def budget(kind: Callable[..., Privacy]) -> PrivacyBudget:
        guard = kind(noise_multiplier=1.0, randomness="system")
        return PrivacyBudget(guard, lambda samples: TrainingPlan(9, 1.0, 10, 5, 1), log)

    budget(sample_dp).instruct(1, [(known.proxies()[0], FitIns(NOTHING, {}))], known)
    with pytest.raises(ValueError, match="must keep its kind of privacy, got local_dp after round"):
        budget(local_dp).restore([])


def test_what_is_keyed_by_the_seed_is_released_again_unchanged_and_counts_once(
    tmp_path: Path,
) -> None:
    log = ReleaseLog(tmp_path)
    guard = local_dp(noise_multiplier=1.0, randomness="seed")
    budget = PrivacyBudget(guard, lambda samples: TrainingPlan(9, 1.0, samples, 5, 1), log)
    known = roster(1)
    budget.instruct(1, [(known.proxies()[0], FitIns(NOTHING, {}))], known)
    assert log.read() == []


def test_the_bound_follows_what_clients_say_and_is_told_to_them() -> None:
    known, budget = roster(3), _budget(local_dp(quantile=0.5, clip=2.0, epsilon=inf))
    proxies = known.proxies()
    said = {0: {"fitting": 1.1}, 1: {"fitting": 0.7}}
    record = budget.book(_outcome([0, 1], said), known)
    assert record["fitting"] == pytest.approx(0.85)  # more than 1 without noise is 1
    assert (record["clip"], record["next_clip"]) == (2.0, pytest.approx(1.864788))
    asked = [(proxies[0], FitIns(NOTHING, {"round": 2}))]
    budget.instruct(2, asked, known)
    assert asked[0][1].config["clip_bound"] == budget.bound
    fixed = _budget(local_dp(clip=2.0))
    assert fixed.book(_outcome([0, 1], said), known)["next_clip"] == 2.0


def test_a_lie_about_the_bound_counts_little_more_than_its_noise() -> None:
    known, budget = roster(4), _budget(local_dp(quantile=0.5, noise_multiplier=5.0))
    said = {client: {"fitting": 0.5 if client else 1e30} for client in range(4)}
    record = budget.book(_outcome([0, 1, 2, 3], said), known)
    assert record["fitting"] == pytest.approx((3 * 0.5 + 8.056296) / 4)


def _claiming(*samples: int) -> Roster:
    known = Roster()
    for client, count in enumerate(samples):
        proxy = Proxy(f"{client}")
        known.register(proxy)
        known.introduce(proxy, Identity(client, 0, count))
    return known


@pytest.mark.parametrize("claim", [0, 1, 2**40])
def test_a_client_that_claims_any_number_of_samples_ends_its_own_part_alone(claim: int) -> None:
    known = _claiming(claim, 1000, 1000, 1000)
    budget = _budget(sample_dp(noise_multiplier=1.0, epsilon=4.0), rounds=50)
    assert budget.exhausted(known, 1) is None
    over = budget.over(known)
    assert over == ([0] if claim < 2 else [])
    event = budget.leaving(over)
    assert (event.clients if event is not None else []) == over
    assert budget.leaving(over) is None
    assert budget.book(_outcome([1, 2, 3], {}), known)["epsilon"]["max"] < 4.0


def test_a_resumed_run_does_not_say_again_who_trains_no_more() -> None:
    known = _claiming(1, 1, 1000, 1000, 1000, 1000)
    first, second = (_budget(sample_dp(noise_multiplier=1.0, epsilon=4.0), 50) for _ in range(2))
    event = first.leaving([0])
    assert event is not None
    booked = first.book(_outcome([2, 3], {}), known)
    record = {"round": 1, "privacy": booked, "events": [asdict(event)]}
    second.restore([json.loads(json.dumps(record))])
    for budget in (first, second):
        more = budget.leaving([0, 1])
        assert more is not None
        assert (more.kind, more.clients) == ("trains no more", [1])


def test_who_trained_on_with_a_larger_budget_is_named_again_when_it_is_spent() -> None:
    known = _claiming(1, 1000, 1000)
    first, second = (_budget(sample_dp(noise_multiplier=1.0), 50) for _ in range(2))
    event = first.leaving([0])
    assert event is not None
    booked = first.book(_outcome([1], {}), known)
    records = [{"round": 1, "privacy": booked, "events": [asdict(event)]}]
    booked = first.book(_outcome([0, 1], {}), known)
    records.append({"round": 2, "privacy": booked, "events": []})
    second.restore(json.loads(json.dumps(records)))
    for budget in (first, second):
        again = budget.leaving([0])
        assert again is not None
        assert again.clients == [0]
        assert budget.leaving([0]) is None


def test_a_client_without_budget_ends_no_run_while_others_are_not_connected() -> None:
    known, budget = (
        _claiming(1, 1000, 1000, 1000),
        _budget(sample_dp(noise_multiplier=1.0, epsilon=4.0), rounds=50),
    )
    for client in (1, 2, 3):
        known.unregister(known.proxy(client))
    assert budget.over(known) == [0]
    assert budget.exhausted(known, 1) is None


def test_a_run_ends_when_half_of_the_clients_or_all_but_too_few_cannot_train_on() -> None:
    budget = _budget(sample_dp(noise_multiplier=1.0, epsilon=4.0), rounds=50)
    assert budget.exhausted(_claiming(1, 1000, 1000), 2) is None
    half = budget.exhausted(_claiming(1, 1, 1000, 1000), 1)
    few = budget.exhausted(_claiming(1, 1000, 1000), 3)
    assert half is not None
    assert few is not None
    assert half.detail.startswith("one more round would cost clients [0, 1] more than epsilon 4")
