"""Newcomers of a resumed run are asked as in one that was not interrupted."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.common import Code, EvaluateIns, EvaluateRes, Status
from flwr.server.client_proxy import ClientProxy

from fl_app.engines.availability import Availability
from fl_app.engines.newcomers import Newcomers
from fl_app.ingress.placements import LOSSES
from fl_app.records.newcomers import write_first
from fl_app.strategies.outcome import Event
from fl_app.strategies.state import Communities
from fl_app.testing.toy import SIZE, builder, context, roster

PLACED = asdict(Event("placed", "client 2 in community_0", [2]))
SCORED = {"clients": {"0": 0.5, "1": 0.5, "2": 0.5}}


@pytest.mark.parametrize(
    ("change", "waiting"),
    [
        ({}, [2]),
        ({"events": [PLACED]}, []),
        ({"accuracy": SCORED}, [2]),
    ],
)
def test_a_resumed_run_asks_the_newcomers_that_were_not_placed(
    change: dict[str, Any], waiting: list[int], tmp_path: Path
) -> None:
    method = builder("flic")(context())
    method.state.communities = Communities(np.eye(2, SIZE, dtype=np.float32), {0: 0, 1: 1})
    write_first(tmp_path, [0, 1])
    newcomers = Newcomers(method, Availability(roster(3), None, None), tmp_path, places=True)
    record = {"round": 4, "sampled": [0, 1], "accuracy": None, "events": []}
    newcomers.begin(6, [record | change, record | {"round": 5}])
    assert newcomers.waiting() == waiting


def test_an_older_run_does_not_name_its_first_clients(tmp_path: Path) -> None:
    method = builder("flic")(context())
    newcomers = Newcomers(method, Availability(roster(3), None, None), tmp_path, places=True)
    record = {"round": 1, "sampled": [0], "accuracy": {"clients": {"1": 0.5}}, "events": []}
    newcomers.begin(2, [record])
    assert newcomers.waiting() == [2]


def test_a_newcomer_cannot_choose_by_a_loss_that_its_task_does_not_have(tmp_path: Path) -> None:
    method = builder("flic")(context(least_loss=0.0))
    method.state.communities = Communities(np.eye(2, SIZE, dtype=np.float32), {0: 0, 1: 1})
    write_first(tmp_path, [0, 1])
    newcomers = Newcomers(method, Availability(roster(4), None, None), tmp_path, places=True)
    newcomers.begin(2, [{"round": 1, "sampled": [0, 1], "accuracy": None, "events": []}])
    told = {2: [0.5, -9.0], 3: [0.5, 0.25]}

    def send(_: int, asked: Sequence[tuple[ClientProxy, EvaluateIns]]) -> Any:
        answers = [np.array(told[c], "<f4").tobytes() for c in newcomers.waiting()]
        replies = [EvaluateRes(Status(Code.OK, ""), 0.0, 5, {LOSSES: each}) for each in answers]
        return list(zip([proxy for proxy, _ in asked], replies, strict=True)), []

    newcomers.place(2, send)
    (refused,) = newcomers.refused
    assert refused.client_id == 2
    assert "losses must be 2 finite float32 numbers in 0..1e+30" in refused.reason
    assert [(each.kind, each.clients) for each in newcomers.events] == [
        ("not placed", [2]), ("placed", [3]),
    ]  # fmt: skip
