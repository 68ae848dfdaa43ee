"""FedGWC: which clients are split, when, and what becomes of newcomers and of lies."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from flwr.common import FitRes

from fl_app.compatibility import problems
from fl_app.config import ConfigError, load
from fl_app.learner_reports import HELD_OUT, HELD_OUT_PARTS, PREFIX
from fl_app.one_run import run
from fl_app.records.history import UNDONE
from fl_app.strategies.fedgwc import FedGwc
from fl_app.testing.toy import builder, context, honest, join, play, roster
from fl_app.types import Vector

ROUNDS = 40
NOISY = (2, 6, 10)
Client = Callable[[int, Vector, int], FitRes]


def _method(**changes: object) -> FedGwc:
    built = builder("fedgwc", participation=0.5, **changes)(context(rounds=ROUNDS))
    assert isinstance(built, FedGwc)
    return built


def _telling(level: Callable[[int], float], steps: int = 8) -> Client:
    """Return clients whose losses run near their `level`."""

    def client(client_id: int, start: Vector, server_round: int) -> FitRes:
        answer = honest(client_id, start, server_round)
        draw = np.random.default_rng((client_id, server_round))
        losses = level(client_id) + draw.normal(0, 0.05, steps) + draw.normal(0, 0.05)
        answer.metrics["report.loss_trajectory"] = losses.astype("<f4").tobytes()
        return answer

    return client


def _difficult(client: int) -> float:
    return 2.0 if client in NOISY else 1.0


def test_no_split_is_made_after_one_was_undone() -> None:
    method, known = _method(fallback=True, fewest=3), roster(12)
    telling, kinds, split_at = _telling(_difficult), [], ROUNDS

    def harmed(client_id: int, start: Vector, server_round: int) -> FitRes:
        answer = telling(client_id, start, server_round)
        if server_round > split_at:
            losses = np.repeat(np.array([2.0, 1.0], "<f4"), HELD_OUT_PARTS)
            answer.metrics[f"{PREFIX}{HELD_OUT}"] = losses.tobytes()
        return answer

    for server_round in range(1, 2 * ROUNDS):
        tried = UNDONE not in kinds
        client = harmed if tried else telling
        play(method, known, range(server_round, server_round + 1), client=client)
        kinds += [event.kind for event in method.events]
        split_at = min(split_at, server_round) if "clustered" in kinds else ROUNDS
    assert kinds[-1] == UNDONE
    assert kinds.count(UNDONE) == 1
    assert set(method.state.communities.members.values()) == {0}


def test_clients_with_other_losses_are_split_off_from_one_model() -> None:
    method, known, before = _method(), roster(12), np.zeros(6, np.float32)
    for server_round in range(1, ROUNDS + 1):
        play(method, known, range(server_round, server_round + 1), client=_telling(_difficult))
        if method.events:
            break
        before = method.state.communities.models[0].copy()
        assert method.outcome(server_round).phase == "federated"
    models, members = method.state.communities.models, method.state.communities.members
    assert {c for c, row in members.items() if row == 1} == set(NOISY)
    np.testing.assert_array_equal(models[0], models[1])
    assert not np.array_equal(models[0], before)
    assert method.outcome(server_round).phase == "clustered"
    assert method.state.interactions.meetings.sum() == 0
    # the parts are smaller than `fewest`, and train apart from now on
    play(method, known, range(server_round + 1, ROUNDS + 10), client=_telling(_difficult))
    assert len(method.state.communities.models) == 2
    assert not np.array_equal(*method.state.communities.models)


def test_equally_difficult_clients_are_not_split() -> None:
    for seed in range(3):
        built = builder("fedgwc", participation=0.5)(context(rounds=ROUNDS, seed=seed))
        play(built, roster(20), range(1, ROUNDS + 21), client=_telling(lambda client: 1.0))
        assert len(built.state.communities.models) == 1


def test_small_clusters_are_not_split() -> None:
    method = _method(fewest=13)
    play(method, roster(12), range(1, ROUNDS + 1), client=_telling(_difficult))
    assert len(method.state.communities.models) == 1


def test_a_newcomer_joins_the_cluster_whose_model_has_the_least_loss() -> None:
    method, known = _method(), roster(12)
    play(method, known, range(1, ROUNDS + 1), client=_telling(_difficult))
    join(known, 12)
    models, (rows,) = method.attribute([12])
    assert len(rows) == len(models) == 2
    method.sampler.participation = 1.0
    play(method, known, range(ROUNDS + 1, ROUNDS + 2), client=_telling(_difficult))
    assert method.state.communities.members[12] in (0, 1)
    assert len(method.attribute([12])[1][0]) == 1


def test_a_liar_about_its_losses_is_split_off_alone_or_not_at_all() -> None:
    def lying(client: int) -> float:
        return 1e29 if client == 5 else 1.0

    method = _method()
    play(method, roster(12), range(1, ROUNDS + 1), client=_telling(lying))
    members = method.state.communities.members
    parts = {row: {c for c in members if members[c] == row} for row in set(members.values())}
    assert set(range(12)) - {5} in [part - {5} for part in parts.values()]


def test_on_digits_the_clients_with_noisy_images_are_found(tmp_path: Path) -> None:
    small = (
        "population=noise", "population.clients=15", "network=mlp", "client.epochs=1",
        "rounds=30", "records.figures=false", "records.report=false", "tracking=none",
    )  # fmt: skip
    run(["strategy=fedgwc", "fallback=false", *small], tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["communities"]["sizes"] == [12, 3]
    assert summary["communities"]["ari"] == 1.0
    assert summary["clients"]["failed"] == summary["clients"]["rejected"] == 0


def test_privacy_is_refused_with_the_name() -> None:
    with pytest.raises(ConfigError, match=r"privacy must be none with fl_app\.strategies\.fedgwc"):
        load(["strategy=fedgwc", "privacy=local_dp"], also=problems)
