"""A client that joins later gets its community's model by one question and answer."""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, Message, MessageType, RecordDict
from flwr.common import Code, EvaluateIns, EvaluateRes, Status
from flwr.compat.common import recorddict_compat as compat

sys.path.insert(0, str(Path(__file__).parents[1] / "engines"))  # where carried is
from carried import carried

from fl_app import one_run
from fl_app.client_app import app
from fl_app.engines.availability import Availability
from fl_app.engines.newcomers import ASKED, OF_ALL, Newcomers
from fl_app.ingress.placements import LOSSES, PLACE
from fl_app.records.history import read_rounds
from fl_app.records.newcomers import read_newcomers
from fl_app.server_wiring import server
from fl_app.strategies.encoding import encode
from fl_app.strategies.replies import ClientFailure
from fl_app.strategies.state import Communities
from fl_app.testing.toy import SIZE, builder, context, roster
from fl_app.use.run import load_run
from fl_app.use.scorer import Scorer, config_of

OK = Status(Code.OK, "")


def test_who_joins_a_run_under_way_is_placed_before_the_round(rotated_run: Path) -> None:
    records = read_rounds(rotated_run)
    told = {each["round"]: [e for e in each["events"] if e["kind"] == "placed"] for each in records}
    assert [number for number, events in told.items() if events] == [4]
    assert told[4][0]["clients"] == [4]
    placed = read_newcomers(rotated_run)[4]
    found = load_run(rotated_run)
    assert placed.round == 3  # whose models it got
    assert {0, 2} <= set(found.communities[int(placed.model.removeprefix("community_"))])
    assert found.clients[4] == (placed.model,)


def test_newcomers_of_a_finished_run_are_placed_without_a_round(
    rotated_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(rotated_run, folder)
    before = (folder / "rounds.jsonl").read_bytes(), load_run(folder)
    one_run.resume(folder, ["population.clients=7"])
    assert (folder / "rounds.jsonl").read_bytes() == before[0]
    found, placed = load_run(folder), read_newcomers(folder)
    assert found.round == before[1].round
    assert sorted(placed) == [4, 5, 6]
    for client, each in placed.items():
        assert found.clients[client] == (each.model,)
        members = before[1].communities[int(each.model.removeprefix("community_"))]
        assert {member % 2 for member in members} == {client % 2}
        assert each.margin is not None
        assert each.margin > 0.2
    assert {c: found.clients[c] for c in range(5)} == before[1].clients
    for client in (5, 6):
        row = json.loads((folder / "summary.json").read_text())["communities"]["assignment"]
        assert f"community_{row[str(client)]}" == placed[client].model
    one_run.resume(folder, [])  # nobody is asked again, and nothing is forgotten
    assert load_run(folder).clients == found.clients


def test_a_node_with_a_folder_holds_the_model_that_it_chose(
    rotated_run: Path, tmp_path: Path
) -> None:
    scorer = Scorer(load_run(rotated_run), config_of(rotated_run, []))
    models = [scorer.vector(f"community_{row}").copy() for row in range(2)]
    folder = tmp_path / "node" / "model"
    ins = EvaluateIns(encode(*models), {PLACE: True, "round": 4, "community": OF_ALL})
    record = carried(compat.evaluateins_to_recorddict(ins, True))
    question = Message(record, dst_node_id=1, message_type=MessageType.EVALUATE)
    overrides = (rotated_run / "overrides.yaml").read_text().replace("- ", "").replace("\n", " ")
    node = {"partition-id": 1, "num-partitions": 5, "model-folder": str(folder)}
    context = Context(
        run_id=1, node_id=1, node_config=node, state=RecordDict(),
        run_config={"overrides": overrides},
    )  # fmt: skip
    reply = compat.recorddict_to_evaluateres(carried(app(question, context).content))
    losses = np.frombuffer(reply.metrics[LOSSES], "<f4")
    held = load_run(folder)
    assert held.clients == {1: ("held",)}
    wanted = load_run(rotated_run).model(community=int(losses.argmin())).state_dict()
    for name, tensor in held.model(client=1).state_dict().items():
        assert torch.equal(tensor, wanted[name])
    assert load_run(rotated_run).clients[1] == (f"community_{losses.argmin()}",)
    assert held.preprocess(np.zeros((8, 8), np.uint8)).shape == (1, 1, 8, 8)


class Asked:
    """Answers questions of `Newcomers` in the place of clients, by what `answers` has for each."""

    def __init__(self, folder: Path, clients: int, models: int, begun_with: int = 0) -> None:
        method, known = builder("flic")(context()), roster(clients)
        vectors = np.arange(models * SIZE, dtype=np.float32).reshape(models, SIZE)
        method.state.communities = Communities(vectors, {0: 0, 1: models - 1})
        self.known, self.questions = known, 0
        if begun_with:
            first = Availability(roster(begun_with), None, None)
            Newcomers(method, first, folder, places=True).begin(1, [])
        self.newcomers = Newcomers(method, Availability(known, None, None), folder, places=True)
        self.newcomers.begin(5, [{"round": 4, "sampled": [0], "accuracy": None}])
        self.answers: dict[int, Any] = {}

    def send(self, _: int, asked: Sequence[Any]) -> tuple[list[Any], list[ClientFailure]]:
        self.questions += len(asked)
        results, failures = [], []
        for proxy, _ins in asked:
            told = self.answers[self.known.client_id(proxy)]
            if isinstance(told, str):
                failures.append(ClientFailure(self.known.client_id(proxy), told))
                continue
            results.append((proxy, EvaluateRes(OK, 0.0, 1, told)))
        return results, failures


def _losses(*values: float) -> dict[str, Any]:
    return {LOSSES: np.array(values, "<f4").tobytes()}


def test_who_was_there_from_the_start_is_no_newcomer_of_a_resumed_run(tmp_path: Path) -> None:
    asked = Asked(tmp_path, clients=5, models=2, begun_with=3)
    assert asked.newcomers.waiting() == [3, 4]  # 2 has not trained yet


def test_only_who_joined_is_asked_and_only_until_it_answers(tmp_path: Path) -> None:
    asked = Asked(tmp_path, clients=4, models=2)
    asked.answers = {2: _losses(3.0, 1.5), 3: "it was killed"}
    asked.newcomers.place(5, asked.send)
    assert asked.questions == 2
    told = [(event.kind, event.clients) for event in asked.newcomers.events]
    assert told == [("not placed", [3]), ("placed", [2])]
    assert asked.newcomers.method.state.evaluated == {2: 1}
    (placed,) = read_newcomers(tmp_path).values()
    assert (placed.model, placed.margin, placed.round) == ("community_1", 0.5, 4)
    assert placed.values == {"community_0": 3.0, "community_1": 1.5}
    for more in range(1, ASKED + 2):
        asked.newcomers.place(5 + more, asked.send)
        assert asked.questions == 2 + min(more, ASKED - 1)


@pytest.mark.parametrize(
    "told", [{}, {LOSSES: 1.0}, _losses(1.0), _losses(1.0, np.nan), _losses(np.inf, 1.0), None]
)
def test_a_wrong_answer_is_named_and_places_nobody(told: Any, tmp_path: Path) -> None:
    asked = Asked(tmp_path, clients=3, models=2)
    asked.answers = {2: told}
    asked.newcomers.place(5, asked.send)
    (event,) = asked.newcomers.events
    assert event.kind == "not placed"
    assert event.clients == [2]
    assert "client 2: " in event.detail
    assert "must be" in event.detail
    (refused,) = asked.newcomers.refused  # which the round counts
    assert refused.client_id == 2
    assert refused.reason.startswith("placement: ")
    assert read_newcomers(tmp_path) == {}
    asked.answers = {2: _losses(1.0, 2.0)}
    asked.newcomers.place(6, asked.send)
    assert asked.newcomers.refused == []


def test_nobody_is_asked_while_all_models_are_equal(tmp_path: Path) -> None:
    asked = Asked(tmp_path, clients=3, models=2)
    asked.answers = {2: _losses(1.0, 0.5)}
    communities = asked.newcomers.method.state.communities
    trained, communities.models = communities.models, np.zeros_like(communities.models)
    asked.newcomers.place(5, asked.send)
    assert asked.questions == 0
    communities.models = trained
    asked.newcomers.place(6, asked.send)
    assert asked.newcomers.method.state.evaluated == {2: 1}


def test_nobody_is_asked_while_there_is_one_model_or_it_is_switched_off(tmp_path: Path) -> None:
    asked = Asked(tmp_path, clients=3, models=1)
    asked.newcomers.place(5, asked.send)
    assert asked.questions == 0
    asked.answers = {2: _losses(1.0)}
    asked.newcomers.place(5, asked.send, ended=True)
    assert asked.newcomers.now == {2: 0}
    asked.newcomers.places = False
    asked.newcomers._known.clear()
    asked.newcomers.place(6, asked.send)
    assert asked.questions == 1


@pytest.mark.parametrize("sharing", ["average", "local"])
def test_batch_normalisation_that_stays_with_clients_has_no_newcomers(
    sharing: str, tmp_path: Path
) -> None:
    from fl_app.config import load

    given = ["engine.place_newcomers=true", f"client.batch_norm={sharing}", "network=mobilenet"]
    config = load([*given, "network.width=0.05", f"records.folder={tmp_path}", "tracking=none"])
    assert server(config).newcomers.places == (sharing == "average")
