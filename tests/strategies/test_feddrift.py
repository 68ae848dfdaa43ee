"""FedDrift: who is isolated, what is merged, and that it follows drifts."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from flwr.common import FitRes

from fl_app.compatibility import problems
from fl_app.config import ConfigError, load
from fl_app.one_run import run
from fl_app.strategies.feddrift import FedDrift
from fl_app.strategies.serving import served
from fl_app.strategies.state import Communities
from fl_app.testing.toy import TARGETS, builder, context, honest, parts, play, roster
from fl_app.types import Vector

Client = Callable[[int, Vector, int], FitRes]
SMALL = (
    "population=iid", "population.clients=8", "population.train_samples=100",
    "population.test_samples=30", "network=mlp", "client.epochs=2", "client.learning_rate=0.1",
    "strategy.participation=1.0", "records.evaluate_every=1", "records.figures=false",
    "records.report=false", "tracking=none",
)  # fmt: skip


def _method(**changes: object) -> FedDrift:
    built = builder("feddrift", participation=1.0, **changes)(context())
    assert isinstance(built, FedDrift)
    return built


def _claiming(method: FedDrift, losses: dict[int, float]) -> Client:
    """Return clients of one target that claim one loss for all models, 0.5 if it is not given."""

    def client(client_id: int, start: Vector, server_round: int) -> FitRes:
        answer = honest(0, start, server_round)
        told = np.full(len(method.state.communities.models), losses.get(client_id, 0.5), "<f4")
        answer.num_examples = 10
        if not method.trains_common:
            answer.metrics["report.offered_losses"] = told.tobytes()
        return answer

    return client


def _choosing(method: FedDrift, rows: dict[int, int]) -> Client:
    """Return clients that claim no drift and train the model of a row, the first if not given."""
    claiming = _claiming(method, {1: 9.0})

    def client(client_id: int, start: Vector, server_round: int) -> FitRes:
        answer = claiming(client_id, start, server_round)
        answer.metrics["choice"] = rows.get(client_id, 0)
        return answer

    return client


def test_a_client_whose_loss_rises_gets_what_it_trained_and_nobody_else_changes() -> None:
    method, known = _method(), roster(4)
    play(method, known, range(1, 3), client=_claiming(method, {}))
    assert method.outcome(2).phase == "federated"
    sent = method.state.communities.models[0].copy()
    play(method, known, range(3, 4), client=_claiming(method, {1: 9.0}))
    models = method.state.communities.models
    assert method.state.communities.members == {0: 0, 1: 1, 2: 0, 3: 0}
    assert [event.kind for event in method.events] == ["isolated"]
    assert method.outcome(3).phase == "clustered"
    trained = sent + 0.5 * (TARGETS[0] - sent)
    np.testing.assert_allclose(models[1], trained, atol=0.1)


def test_a_loss_that_rises_by_less_than_delta_is_no_drift() -> None:
    method, known = _method(delta=1.0), roster(4)
    play(method, known, range(1, 2), client=_claiming(method, {1: 2.0}))
    play(method, known, range(2, 3), client=_claiming(method, {1: 2.9}))
    assert len(method.state.communities.models) == 1


def test_models_that_are_alike_are_merged_in_the_next_round_by_their_clients() -> None:
    method, known = _method(start="own", merge_below=1.0), roster(4)
    play(method, known, range(1, 2), client=_claiming(method, {}))
    assert parts(method) == {frozenset({c}) for c in range(4)}
    # other models, so that not all clients choose the same one
    method.state.communities.models[:3] = TARGETS
    play(method, known, range(2, 3), client=_claiming(method, {}))
    assert parts(method) == {frozenset(range(4))}
    assert "merged" in [event.kind for event in method.events]


def test_who_chose_a_model_in_an_evaluation_is_served_it_after_a_merge() -> None:
    method = _method()
    models = np.arange(18, dtype=np.float32).reshape(3, 6)
    method.state.communities = Communities(models, {0: 0, 1: 1, 2: 2})
    method.state.used = [1, 1, 1]
    method.chose({7: 1, 8: 2})
    method._keep(np.array([0, 0, 2]))
    assert served(method, [0, 1, 2, 7, 8, 9], 1).clients == {
        0: ("community_0",), 1: ("community_0",), 2: ("community_1",),
        7: ("community_0",), 8: ("community_1",), 9: ("community_0", "community_1"),
    }  # fmt: skip


def test_who_chose_a_model_that_is_replaced_has_no_choice_any_more() -> None:
    method, known = _method(most_models=2, start="own"), roster(2)
    method.state.communities = Communities(np.zeros((2, 6), np.float32), {1: 0})
    method.state.used, method.state.losses = [1, 1], {1: 0.5}
    method.chose({7: 1, 8: 0})
    play(method, known, range(2, 3), client=_claiming(method, {}))
    assert method.state.communities.members == {0: 1, 1: 0}
    assert method.state.evaluated == {8: 0}


def test_with_own_models_at_the_start_the_groups_are_found_and_stay() -> None:
    method, known = _method(start="own", merge_below=1.0), roster(12)
    play(method, known, range(1, 9))
    assert parts(method) == {frozenset(range(group, 12, 3)) for group in range(3)}
    models, members = method.state.communities.models, method.state.communities.members
    for client, row in members.items():
        np.testing.assert_allclose(models[row], TARGETS[client % 3], atol=0.1)


def test_beyond_the_largest_number_clients_train_the_model_that_they_chose() -> None:
    method, known = _method(start="own", most_models=3), roster(4)
    before = method.state.communities.models[0].copy()
    play(method, known, range(1, 2), client=_claiming(method, {}))
    assert method.state.communities.members == {0: 1, 1: 2, 2: 0, 3: 0}
    assert [(each.kind, each.clients) for each in method.events] == [
        ("no room", [2, 3]), ("isolated", [0, 1]),
    ]  # fmt: skip
    assert not np.array_equal(method.state.communities.models[0], before)
    assert method.state.used == [1, 1, 1]
    play(method, known, range(2, 3), client=_claiming(method, {}))
    assert "no room" not in {event.kind for event in method.events}


def test_the_model_that_a_drifted_client_leaves_makes_room_for_it() -> None:
    method, known = _method(most_models=2), roster(2)
    method.state.communities = Communities(np.zeros((2, 6), np.float32), {0: 0, 1: 1})
    method.state.used, method.state.losses = [1, 1], dict.fromkeys(range(2), 0.5)
    play(method, known, range(2, 3), client=_choosing(method, {1: 1}))
    assert method.state.communities.members == {0: 0, 1: 1}
    assert [event.kind for event in method.events] == ["isolated"]


def test_a_model_of_clients_that_have_left_is_replaced() -> None:
    method, known = _method(most_models=2), roster(3)
    method.state.communities = Communities(np.zeros((2, 6), np.float32), {0: 0, 1: 0, 2: 1})
    method.state.used, method.state.losses = [1, 1], dict.fromkeys(range(3), 0.5)
    known.absent = frozenset({2})
    play(method, known, range(2, 3), client=_claiming(method, {1: 9.0}))
    assert method.state.communities.members == {0: 0, 1: 1}
    assert [event.kind for event in method.events] == ["isolated"]


def test_models_that_are_merged_make_room_in_the_same_round() -> None:
    method, known = _method(most_models=2, merge_below=1.0), roster(3)
    method.state.communities = Communities(TARGETS[:2].copy(), {0: 0, 1: 0, 2: 1})
    method.state.used, method.state.losses = [1, 1], dict.fromkeys(range(3), 0.5)
    play(method, known, range(2, 3), client=_choosing(method, {2: 1}))
    assert [event.kind for event in method.events] == ["merged", "isolated"]
    assert method.state.communities.members == {0: 0, 1: 1, 2: 0}


def test_of_models_that_nobody_uses_the_oldest_is_replaced() -> None:
    method = _method(most_models=4)
    method.state.communities = Communities(np.zeros((3, 6), np.float32), {0: 1})
    for used, free in (([5, 9, 3], 3), ([5, 9, 0], 2)):
        method.state.used = used
        assert method._free_row(7) == free
    method.most_models = 3
    method.state.used = [5, 9, 3]
    assert method._free_row(7) == 2
    method.state.alone = {0: 6}  # of which only one client has no use any more
    assert method._free_row(7) == 0
    method.state.communities.members = {0: 1, 1: 0, 2: 2}
    assert method._free_row(7) is None


def test_a_client_that_is_isolated_in_every_round_has_one_model() -> None:
    method, known = _method(most_models=3), roster(4)
    for server_round in range(1, 9):
        lie = _claiming(method, {3: 9.0 * server_round})
        play(method, known, range(server_round, server_round + 1), client=lie)
        assert method.state.alone == ({} if server_round == 1 else {1: 3})
    assert len(method.state.communities.models) == 2


def test_a_model_that_others_train_is_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    method, known = _method(), roster(4)
    monkeypatch.setattr(method, "_merge", lambda _: None)
    method.state.communities = Communities(np.zeros((3, 6), np.float32), {0: 1, 1: 2})
    method.state.used, method.state.losses = [1, 1, 1], {1: 9.0}
    method.state.alone = {1: 0, 2: 1}
    play(method, known, range(2, 3), client=_choosing(method, {0: 1}))
    assert method.state.alone == {1: 0, 2: 1}
    play(method, known, range(3, 4), client=_choosing(method, {0: 1, 3: 1}))
    assert method.state.alone == {2: 1}


def test_a_merged_model_is_of_several() -> None:
    method = _method()
    method.state.communities = Communities(np.zeros((4, 6), np.float32), {})
    method.state.used, method.state.alone = [1] * 4, {1: 0, 2: 1, 3: 2}
    method._keep(np.array([0, 1, 1, 3]))
    assert method.state.alone == {2: 2}


def test_a_liar_isolates_only_itself() -> None:
    method, known = _method(), roster(4)
    for server_round in range(1, 9):
        lie = {3: 1e29 * (server_round % 2)}
        rounds = range(server_round, server_round + 1)
        play(method, known, rounds, client=_claiming(method, lie))
    assert frozenset({0, 1, 2}) in {part - {3} for part in parts(method)}


def test_models_of_drifted_clients_are_judged_once_all_could_score_them() -> None:
    method, known = _method(fallback=True), roster(4)
    play(method, known, range(1, 3), client=_claiming(method, {}))
    play(method, known, range(3, 4), client=_claiming(method, {1: 9.0}))
    assert not method.state.judged
    play(method, known, range(4, 5), client=_choosing(method, {1: 1}))
    assert method.state.judged
    assert method.state.split_at == 4
    # the models have one ancestor, so that their mean is of use
    models = method.state.communities.models
    assert method.state.common is not None
    np.testing.assert_allclose(method.state.common, (3 * models[0] + models[1]) / 4, rtol=1e-5)


def test_a_trial_ends_without_a_verdict_when_all_models_are_merged() -> None:
    method, known = _method(fallback=True, merge_below=1.0), roster(4)
    play(method, known, range(1, 3), client=_claiming(method, {}))
    method.state.communities = Communities(TARGETS[:2].copy(), {0: 0, 1: 1, 2: 0, 3: 1})
    method.state.used = [2, 2]
    method.judge(3)
    assert method.state.common is not None
    play(method, known, range(4, 6), client=_claiming(method, {}))
    assert parts(method) == {frozenset(range(4))}
    assert method.state.common is None
    assert not method.state.judged
    assert not {"kept", "undone"} & {event.kind for event in method.events}


def test_after_the_models_were_undone_nobody_is_isolated() -> None:
    method, known = _method(fallback=True), roster(4)
    play(method, known, range(1, 2), client=_claiming(method, {}))
    method.state.one = True
    play(method, known, range(2, 3), client=_claiming(method, {}))
    asked = method.cohort.asked.values()
    assert not any(each.reports for each in asked)
    assert method.rejections.by_client == {}
    assert method.state.communities.members == dict.fromkeys(range(4), 0)
    assert len(method.state.communities.models) == 1


def _accuracies(name: str, overrides: list[str], folder: Path) -> list[float]:
    run([f"strategy={name}", *SMALL, *overrides], folder / name)
    lines = (folder / name / "rounds.jsonl").read_text().splitlines()
    return [json.loads(line)["accuracy"]["mean"] for line in lines]


def test_it_follows_a_drift_that_one_model_and_ifca_do_not(tmp_path: Path) -> None:
    drift = [
        "rounds=24", "population.dynamics.drift=labels", "population.dynamics.drifters=5",
        "population.dynamics.drift_rounds=[9,17]",
    ]  # fmt: skip
    found = {name: _accuracies(name, drift, tmp_path) for name in ("feddrift", "fedavg", "ifca")}
    before = {name: each[7] for name, each in found.items()}
    assert min(before.values()) > 0.85
    assert found["feddrift"][-1] > 0.85
    assert max(found["fedavg"][-1], found["ifca"][-1]) < found["feddrift"][-1] - 0.1
    record = json.loads((tmp_path / "feddrift" / "rounds.jsonl").read_text().splitlines()[8])
    (drifted,) = [event for event in record["events"] if event["kind"] == "drifted"]
    (isolated,) = [event for event in record["events"] if event["kind"] == "isolated"]
    assert isolated["clients"] == drifted["clients"]


def test_on_digits_with_own_models_at_the_start_the_planted_groups_are_found(
    tmp_path: Path,
) -> None:
    given = ["strategy=feddrift", *SMALL, "population=rotation", "population.groups=2"]
    run([*given, "strategy.start=own", "client.epochs=10", "rounds=3"], tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["communities"]["sizes"] == [4, 4]
    assert summary["communities"]["ari"] == 1.0
    assert summary["clients"]["failed"] == summary["clients"]["rejected"] == 0


def test_privacy_is_refused_with_the_name() -> None:
    with pytest.raises(ConfigError, match=r"privacy must be none with fl_app\.strategies\.feddrif"):
        load(["strategy=feddrift", "privacy=local_dp"], also=problems)
