"""Clients are told by the names that the data give them, beside their ids."""

import json
import re
from pathlib import Path

import pytest
import torch

from fl_app.engines.round_reporter import RoundReporter
from fl_app.report.page.clients import client_table
from fl_app.report.page.run_records import read_records
from fl_app.strategies.replies import ClientFailure
from fl_app.strategies.roster import Roster
from fl_app.testing.toy import builder, context
from fl_app.use.commands import COMMANDS
from fl_app.use.run import FinishedRun, load_run


def test_the_folder_knows_the_names(table_run: Path) -> None:
    run = load_run(table_run)
    assert run.client_names == {0: "A", 1: "B"}
    first, second = (run.model(client=given).state_dict() for given in ("B", 1))
    assert all(torch.equal(first[name], second[name]) for name in first)
    summary = json.loads((table_run / "summary.json").read_text())
    assert summary["clients"]["names"] == {"0": "A", "1": "B"}


def test_without_names_of_their_own_clients_have_ids(digits_run: Path) -> None:
    summary = json.loads((digits_run / "summary.json").read_text())
    assert summary["clients"]["names"] is None
    run = load_run(digits_run)
    assert run.client_names == {}
    assert run.client_id("4") == 4
    with pytest.raises(ValueError, match="none with names of their own, got A"):
        run.client_id("A")


def test_the_commands_take_names(
    table_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    given, data = str(table_run), str(table_run.parent / "patients.csv")
    out = {}
    for client in ("B", "1"):
        COMMANDS["predict"]([given, "--client", client, "--data", data,
                             "--out", str(tmp_path / "y.csv")])  # fmt: skip
        out[client] = (tmp_path / "y.csv").read_text()
    assert out["B"] == out["1"]
    COMMANDS["evaluate"]([given, "--data", data, "--client", "A", "--json"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (list(found["accuracy"]["clients"]), found["names"]["0"]) == (["0"], "A")
    COMMANDS["evaluate"]([given])
    assert "(client 0, A)" in capsys.readouterr().out
    COMMANDS["evaluate"]([given, "--data", data, "--client", "A"])
    told = capsys.readouterr().out
    assert re.search(r"^accuracy [01]\.\d{4} \(client 0, A\)$", told, re.MULTILINE)
    COMMANDS["export"]([given, "--client", "B", "--format", "safetensors", "--to", str(tmp_path)])
    card = (tmp_path / "model_card.md").read_text()
    assert "(A)" in card or "(B)" in card
    COMMANDS["fine-tune"]([given, "--client", "A", "--to", str(tmp_path / "p")])
    with pytest.raises(ValueError, match="one of this run, A, B, got C"):
        COMMANDS["predict"]([given, "--client", "C", "--data", data, "--out", "y.csv"])


def test_a_name_that_is_the_id_of_another_must_be_made_clear(table_run: Path) -> None:
    run: FinishedRun = load_run(table_run)
    run.serving = {**run.serving, "client_names": ["1", "x:y"]}
    assert [run.client_id(given) for given in (1, "id:1", "name:1", "0", "x:y")] == [1, 1, 0, 0, 1]
    with pytest.raises(ValueError, match=r"the name of client 0 and the id of x:y; give name:1 or"):
        run.client_id("1")
    run.serving = {**run.serving, "client_names": ["2021", "1"]}
    assert [run.client_id(given) for given in ("2021", "1")] == [0, 1]
    assert run.client_id("7") == 7  # which no model has


def test_the_report_has_a_column_of_names(
    table_run: Path, digits_run: Path, capsys: pytest.CaptureFixture
) -> None:
    tables = [client_table(read_records(folder)) for folder in (table_run, digits_run)]
    columns = [[column["key"] for column in table["columns"]] for table in tables]
    assert columns[0][:2] == ["client", "name"]
    assert "name" not in columns[1]
    assert [row[1] for row in tables[0]["rows"]] == ["A", "B"]


def test_reasons_name_the_client() -> None:
    method = builder("fedavg")(context())
    method.rejections.add(1, "loss must be a number")
    known = RoundReporter(
        Roster(), clients=2, benign=lambda models, sizes: set(), schedule=None, central=None,
        names={0: "A", 1: "B"},
    )  # fmt: skip
    record = known.record(1, method.outcome(0), [ClientFailure(0, "killed")], ())
    assert record["rejected"] == {"1": "loss must be a number (client B)"}
    assert record["failed"] == {"0": "killed (client A)"}
