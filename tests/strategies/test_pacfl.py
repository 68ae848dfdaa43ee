"""PACFL: what is asked once, who joins later, and what a false subspace can do."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from flwr.common import FitRes
from told import told_losses

from fl_app.compatibility import problems
from fl_app.config import ConfigError, load
from fl_app.learner_reports import HELD_OUT, PREFIX
from fl_app.one_run import run
from fl_app.records.history import UNDONE
from fl_app.strategies.fallback import LOOKS
from fl_app.strategies.pacfl import Pacfl
from fl_app.testing.toy import SIZE, builder, context, honest, join, play, roster
from fl_app.types import Vector

SMALL = (
    "population=rotation", "population.clients=8", "population.train_samples=100",
    "population.test_samples=20", "network=mlp", "rounds=2", "client.epochs=1",
    "records.figures=false", "records.report=false", "tracking=none",
)  # fmt: skip
Client = Callable[[int, Vector, int], FitRes]
AXES = np.eye(SIZE, dtype=np.float32)


def _method(**changes: object) -> Pacfl:
    built = builder("pacfl", vectors=1, threshold=10.0, **changes)(context())
    assert isinstance(built, Pacfl)
    return built


def _telling(strategy: Pacfl, angles: dict[int, float]) -> Client:
    """Return clients whose only vector lies at so many degrees from the first axis."""

    def client(client_id: int, start: Vector, server_round: int) -> FitRes:
        answer = honest(client_id, start, server_round)
        turn = np.radians(angles[client_id])
        vector = np.cos(turn) * AXES[0] + np.sin(turn) * AXES[1]
        asked = strategy.cohort.asked.values()
        if client_id in {each.client_id for each in asked if "subspace" in each.reports}:
            answer.metrics["report.subspace"] = vector.astype("<f4").tobytes()
        return answer

    return client


def test_vectors_are_asked_for_once() -> None:
    strategy, known = _method(), roster(4)
    strategy.sampler.participation = 1.0
    play(strategy, known, range(1, 2))
    assert all("subspace" in each.reports for each in strategy.cohort.asked.values())
    join(known, 4)
    play(strategy, known, range(2, 3))
    asked = {each.client_id for each in strategy.cohort.asked.values() if each.reports}
    assert asked == {4}
    assert strategy.rejections.by_client == {}


def test_a_newcomer_founds_no_community_after_a_split_was_undone() -> None:
    strategy, known = _method(fallback=True), roster(4)
    strategy.sampler.participation = 1.0
    honest_ones = _telling(strategy, {0: 0, 1: 5, 2: 40, 3: 46, 4: 85})

    def harmed(client_id: int, start: Vector, server_round: int) -> FitRes:
        answer = honest_ones(client_id, start, server_round)
        if 1 < server_round <= 1 + LOOKS[0]:
            losses = told_losses(strategy.state, start, 2.0, 1.0)
            answer.metrics[f"{PREFIX}{HELD_OUT}"] = losses.tobytes()
        return answer

    play(strategy, known, range(1, 2 + LOOKS[0]), client=harmed)
    assert [event.kind for event in strategy.events] == [UNDONE]
    join(known, 4)
    play(strategy, known, range(2 + LOOKS[0], 3 + LOOKS[0]), client=harmed)
    assert strategy.state.communities.members == dict.fromkeys(range(5), 0)
    assert len(strategy.state.communities.models) == 1


def test_communities_by_hand_and_newcomers_that_join_or_found_one() -> None:
    strategy, known = _method(), roster(4)
    strategy.sampler.participation = 1.0
    client = _telling(strategy, {0: 0, 1: 5, 2: 40, 3: 46, 4: 36, 5: 85})
    play(strategy, known, range(1, 2), client=client)
    # 0 and 1 are 5 degrees apart, 2 and 3 are 6; the two pairs are 40 apart on average
    assert strategy.state.communities.members == {0: 0, 1: 0, 2: 1, 3: 1}
    join(known, 4)
    join(known, 5)
    play(strategy, known, range(2, 3), client=client)
    # 4 is 7 degrees from 2 and 3 on average, 5 is 42 from them
    assert strategy.state.communities.members == {0: 0, 1: 0, 2: 1, 3: 1, 4: 1, 5: 2}
    assert [event.kind for event in strategy.events] == ["founded"]
    assert len(strategy.state.communities.models) == 3


def test_a_founder_starts_its_community_with_its_own_model() -> None:
    strategy, known = _method(), roster(2)
    client = _telling(strategy, {0: 0, 1: 1, 5: 85})
    play(strategy, known, range(1, 2), client=client)
    before = strategy.state.communities.models.copy()
    join(known, 5)
    sent: list[Vector] = []

    def only_the_founder(client_id: int, start: Vector, server_round: int) -> FitRes | None:
        if client_id != 5:
            return None
        sent.append(start)
        return client(client_id, start, server_round)

    play(strategy, known, range(2, 3), client=only_the_founder)
    models = strategy.state.communities.models
    np.testing.assert_array_equal(models[0], before[0])
    assert np.linalg.norm(models[1] - sent[0]) > 1


def test_a_false_subspace_moves_only_its_teller() -> None:
    lies = {46: {0: 0, 1: 0, 2: 1, 3: 1}, 0: {0: 0, 1: 0, 3: 0, 2: 1}, 85: {0: 0, 1: 0, 2: 1, 3: 2}}
    for told, members in lies.items():
        strategy = _method()
        client = _telling(strategy, {0: 0, 1: 5, 2: 40, 3: told})
        play(strategy, roster(4), range(1, 2), client=client)
        assert strategy.state.communities.members == members


def test_on_rotated_digits_the_planted_groups_are_found(tmp_path: Path) -> None:
    run(["strategy=pacfl", *SMALL], tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["communities"]["sizes"] == [2, 2, 2, 2]
    assert summary["communities"]["ari"] == 1.0
    assert summary["clients"]["failed"] == summary["clients"]["rejected"] == 0


def test_privacy_is_refused_with_the_names() -> None:
    with pytest.raises(ConfigError, match=r"privacy must be none with fl_app\.strategies\.pacfl"):
        load(["strategy=pacfl", "privacy=local_dp", *SMALL], also=problems)
