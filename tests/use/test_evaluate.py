"""`fl-app evaluate` repeats what was recorded, and scores models on new data."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from fl_app.config import ConfigError
from fl_app.one_run import run
from fl_app.records.history import read_rounds
from fl_app.use.commands import evaluate as command
from fl_app.use.evaluate import evaluate
from fl_app.use.run import load_run
from fl_app.use.scorer import config_of
from fl_app.wiring import shared_population

QUICK = ["records.figures=false", "records.report=false", "tracking=none", "client.threads=1"]
SMALL = ["population=iid", "population.clients=2", "population.train_samples=40",
         "population.test_samples=20", "strategy=fedavg", "rounds=2"]  # fmt: skip


def test_the_json_form_has_every_client(digits_run: Path, capsys: pytest.CaptureFixture) -> None:
    command([str(digits_run), "--json"])
    found = json.loads(capsys.readouterr().out)
    last = read_rounds(digits_run)[-1]["accuracy"]
    assert found["accuracy"]["clients"] == last["clients"]
    assert found["accuracy"]["mean"] == last["mean"]
    assert found["metrics"] == {}
    command([str(digits_run)])
    said = capsys.readouterr().out
    assert f"accuracy {last['mean']:.4f}, mean of 6 clients" in said
    assert "largest difference from round 4 as recorded: 0.0e+00" in said


def test_a_table_with_labels_scores_models(
    table_run: Path, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    lines = (table_run.parent / "patients.csv").read_text().splitlines()
    (tmp_path / "new.csv").write_text("\n".join(lines[:60]))
    command([str(table_run), "--data", str(tmp_path / "new.csv"), "--client", "1", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert list(found["accuracy"]["clients"]) == ["1"]
    assert found["accuracy"]["mean"] > 0.6
    assert found["recorded"] is None
    (tmp_path / "none.csv").write_text("\n".join(line.rsplit(",", 1)[0] for line in lines[:9]))
    with pytest.raises(ValueError, match=r"none\.csv must have the column 'sick' with the labels"):
        command([str(table_run), "--data", str(tmp_path / "none.csv")])


def test_other_data_are_named_by_a_setting(table_run: Path, tmp_path: Path) -> None:
    text = (table_run.parent / "patients.csv").read_text()
    (tmp_path / "patients.csv").write_text(text.replace("yes", "no", 30))
    found = evaluate(table_run, [f"data.root={tmp_path}"])
    assert found["recorded"] is None
    assert found["accuracy"] != evaluate(table_run, [])["accuracy"]


def test_other_data_are_prepared_as_those_of_the_run(table_run: Path, tmp_path: Path) -> None:
    rows = (table_run.parent / "patients.csv").read_text().splitlines()
    kept = [row for row in rows[1:] if "red" in row and ",no" in row]
    (tmp_path / "patients.csv").write_text("\n".join([rows[0], *kept]) + "\n")
    config = config_of(table_run, [f"data.root={tmp_path}"])
    data = shared_population(config).dataset
    assert data.form()["preprocess"] == load_run(table_run).serving["preprocess"]
    assert (data.class_names, set(data.train_labels)) == (("no", "yes"), {0})


def test_metrics_of_the_task_are_repeated(tmp_path: Path) -> None:
    f1 = "{_target_: torchmetrics.classification.MulticlassF1Score, average: macro}"
    run([*SMALL, f"+task.metrics.f1={f1}", "network.width=0.25", *QUICK], tmp_path)
    found = evaluate(tmp_path, [])
    assert list(found["metrics"]["f1"]["clients"]) == ["0", "1"]
    assert found["recorded"]["largest_difference"] <= 1e-6


def test_a_run_whose_only_score_is_the_loss_is_compared(table_run: Path, tmp_path: Path) -> None:
    root = table_run.parent
    alone = ["data=table", f"data.root={root}", "data.file=patients.csv", "data.label=age",
             "data.exclude=[ward]", "data.missing=mean", "data.standardise=true", "network=mlp",
             "client.learning_rate=0.0001",
             "data.target=regression", "task=regression", "~task.metrics.mae", "~task.metrics.r2",
             "population=iid", "population.clients=2", "strategy=fedavg", "rounds=1"]  # fmt: skip
    run([*alone, *QUICK], tmp_path / "run")
    assert evaluate(tmp_path / "run", [])["recorded"] == {"round": 1, "largest_difference": 0.0}


def test_a_record_of_before_metrics_is_evaluated_too(
    digits_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    shutil.copytree(digits_run, tmp_path / "run")
    last = read_rounds(digits_run)[-1]
    del last["metrics"]
    (tmp_path / "run" / "rounds.jsonl").write_text(json.dumps(last) + "\n")
    assert evaluate(tmp_path / "run", [])["recorded"]["largest_difference"] == 0.0
    last |= {"accuracy": None, "metrics": {"other": {"mean": 1.0, "clients": {"0": 1.0}}}}
    (tmp_path / "run" / "rounds.jsonl").write_text(json.dumps(last) + "\n")
    command([str(tmp_path / "run")])
    assert "the record of round 4 has none of these scores" in capsys.readouterr().out


def test_the_scores_of_centroids_are_over_all_points(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    points = [each.replace("fedavg", "kmeans") for each in SMALL]
    run([*points, "network=centroids", *QUICK], tmp_path)
    found = evaluate(tmp_path, [])
    notes = read_rounds(tmp_path)[-1]["notes"]
    assert found["metrics"]["v_measure"]["mean"] == pytest.approx(notes["v_measure"])
    assert found["metrics"]["distance"]["mean"] == pytest.approx(notes["distance"])
    command([str(tmp_path)])
    assert "homogeneity" in capsys.readouterr().out


def test_frozen_weights_come_from_the_run(tmp_path: Path) -> None:
    import torch

    run([*SMALL, "network.width=0.25", *QUICK], tmp_path / "first")
    saved = tmp_path / "first.pt"
    torch.save(load_run(tmp_path / "first").model(client=0).state_dict(), saved)
    run([*SMALL, "network.width=0.25", "seed=3", f"network.weights={saved}",
         "network.freeze=['0.*']", *QUICK], tmp_path / "second")  # fmt: skip
    saved.unlink()
    assert evaluate(tmp_path / "second", [])["recorded"]["largest_difference"] <= 1e-6


@pytest.mark.parametrize("group", ["engine", "strategy", "population", "task"])
def test_a_run_of_before_a_setting_is_evaluated_too(
    table_run: Path, tmp_path: Path, group: str
) -> None:
    shutil.copytree(table_run, tmp_path / "run")
    config = tmp_path / "run" / "config.yaml"
    whole = yaml.safe_load(config.read_text())
    new = {"engine": "place_newcomers", "strategy": "weighting", "population": "min_samples",
           "task": "metrics"}[group]  # fmt: skip
    del whole[group][new]
    config.write_text(yaml.safe_dump(whole))
    assert evaluate(tmp_path / "run", [])["recorded"]["largest_difference"] == 0.0


def test_a_run_without_samples_for_test_says_so(
    table_run: Path, capsys: pytest.CaptureFixture
) -> None:
    command([str(table_run), "data.test_share=0"])
    assert capsys.readouterr().out.startswith("no client has samples for test; give")


def test_wrong_arguments_are_told(digits_run: Path, tmp_path: Path) -> None:
    for given, said in (
        ([], r"required: folder.*use fl-app evaluate"),
        ([str(digits_run), "--client", "1"], "--client needs --data"),
        ([str(digits_run), "data.rot=x"], r"a setting in .*config\.yaml, got data\.rot=x"),
        ([str(digits_run), "--fast"], "unrecognized arguments: --fast"),
        ([str(tmp_path)], "a run that has ended"),
    ):
        with pytest.raises(ValueError, match=said):
            command(given)
    with pytest.raises(ConfigError, match="output folder of a run"):
        config_of(tmp_path, [])
