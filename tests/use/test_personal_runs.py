"""Finished and resumed runs whose clients have a model or a head of their own."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from fl_app import one_run
from fl_app.records.models import read_models
from fl_app.use.commands import COMMANDS
from fl_app.use.evaluate import evaluate
from fl_app.use.run import load_run

RUN = ["network=mlp", "network.hidden=[8]", "rounds=2", "population.clients=3",
       "population.groups=1", "population.train_samples=20", "population.test_samples=10",
       "strategy=fedavg", "strategy.participation=0.7", "records.figures=false",
       "records.report=false", "tracking=none"]  # fmt: skip


@pytest.fixture(scope="module", params=["ditto", "fedrep"])
def personal_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param) / "run"
    one_run.run([*RUN, f"personal={request.param}"], folder)
    return folder


def test_each_client_has_the_model_that_it_was_scored_with(personal_run: Path) -> None:
    assert evaluate(personal_run, [])["recorded"]["largest_difference"] == 0.0
    run = load_run(personal_run)
    models = [run.model(client=client).state_dict() for client in range(3)]
    trained = {int(each.name) for each in (personal_run / "clients").iterdir()}
    first, second = sorted(trained)[:2]
    differ = {n for n in models[first] if not torch.equal(models[first][n], models[second][n])}
    own_model = run.serving["own_models"]
    assert differ == (set(models[0]) if own_model else {"3.weight", "3.bias"})
    assert run.kept_by == f"personal={'ditto' if own_model else 'fedrep'}"


def test_a_community_s_model_is_whole_only_if_clients_have_models_beside_it(
    personal_run: Path, tmp_path: Path
) -> None:
    run, data = load_run(personal_run), tmp_path / "x.npz"
    np.savez(data, inputs=np.zeros((4, 8, 8), np.uint8), labels=np.arange(4))
    assign = [str(personal_run), "--data", str(data)]
    if run.serving["own_models"]:
        shared = run.model(name=run.models[0]).state_dict()
        kept = run.shared(run.models[0])
        assert all(np.array_equal(shared[name].numpy(), kept[name]) for name in kept)
        COMMANDS["assign"](assign)
        return
    with pytest.raises(ValueError, match=r"must be a client's, got none with personal=fedrep"):
        run.model(name=run.models[0])
    with pytest.raises(ValueError, match=r"needs whole models, got a run with personal=fedrep"):
        COMMANDS["assign"](assign)


def test_a_copy_without_the_clients_says_where_they_are(personal_run: Path, tmp_path: Path) -> None:
    shutil.copytree(personal_run, tmp_path / "run", ignore=shutil.ignore_patterns("clients"))
    with pytest.raises(ValueError, match="on its own machine; use its model there"):
        load_run(tmp_path / "run").model(client=0)


def test_fine_tuning_starts_from_the_client_s_own(personal_run: Path, tmp_path: Path) -> None:
    client = sorted(int(each.name) for each in (personal_run / "clients").iterdir())[0]
    COMMANDS["fine-tune"]([str(personal_run), "--client", str(client), "--epochs", "1",
                           "--to", str(tmp_path / "p")])  # fmt: skip
    tuned = load_run(tmp_path / "p").model(name="personal").state_dict()
    own = load_run(personal_run).model(client=client).state_dict()
    shared = load_run(personal_run).shared("community_0")
    moved = sum(float((tuned[name] - tensor).norm()) for name, tensor in own.items())
    apart = sum(float((tuned[n] - torch.from_numpy(each)).norm()) for n, each in shared.items())
    assert 0 < moved < 0.9 * apart


def test_a_resumed_run_goes_on_with_what_the_clients_had(
    personal_run: Path, tmp_path: Path
) -> None:
    choice = load_run(personal_run).kept_by
    shutil.copytree(personal_run, tmp_path / "resumed")
    one_run.resume(tmp_path / "resumed", ["rounds=4"])
    one_run.run([*RUN, choice, "rounds=4"], tmp_path / "at_once")
    first, second = (read_models(tmp_path / name)[0] for name in ("resumed", "at_once"))
    for name, tensor in first.items():
        np.testing.assert_array_equal(tensor, second[name])
    scores = [
        json.loads((tmp_path / name / "summary.json").read_text())["accuracy"]["mean"]
        for name in ("resumed", "at_once")
    ]
    assert scores[0] == scores[1]


def test_a_client_s_own_model_is_exported_under_its_name(
    personal_run: Path, tmp_path: Path
) -> None:
    first, second = sorted(int(each.name) for each in (personal_run / "clients").iterdir())[:2]
    for client in (first, second):
        COMMANDS["export"]([str(personal_run), "--client", str(client), "--format", "safetensors",
                            "--to", str(tmp_path)])  # fmt: skip
        card = (tmp_path / "model_card.md").read_text()
        assert f"**Model of client {client} alone**" in card
        assert f"| community_0_client_{client} |" in card
        assert "of own models" not in card
    files = {each.name for each in tmp_path.glob("*.safetensors")}
    assert files == {f"community_0_client_{each}.safetensors" for each in (first, second)}


def test_the_card_of_shared_models_tells_that_others_were_scored(
    personal_run: Path, tmp_path: Path
) -> None:
    export = [str(personal_run), "--format", "safetensors", "--to", str(tmp_path)]
    if not load_run(personal_run).serving["own_models"]:
        with pytest.raises(ValueError, match="must be a client's, got none"):
            COMMANDS["export"](export)
        return
    COMMANDS["export"](export)
    card = (tmp_path / "model_card.md").read_text()
    assert "**Not the models that were scored**: with personal=ditto each client has" in card
    assert "- **Accuracy of own models**: " in card
    assert "| model | clients | accuracy of own models | worst client |" in card
