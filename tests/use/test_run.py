"""A run's folder is enough to use its models, also copied, without its data."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

sys.path.insert(0, str(Path(__file__).parents[1] / "end_to_end"))
import door

from fl_app.config import load
from fl_app.data.rows import frame_of
from fl_app.one_run import run
from fl_app.records.models import FILE as MODELS
from fl_app.records.serving import read_serving
from fl_app.use.run import load_run
from fl_app.wiring import dataset

QUICK = ["records.figures=false", "records.report=false", "tracking=none", "client.threads=1"]
NETWORK = """
from torch import nn

def build(shape, classes, *, width: int):
    import helper
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), helper.head(width, classes))
"""
HELPER = "from torch import nn\n\ndef head(width, classes):\n    return nn.Linear(width, classes)\n"
ELSEWHERE = """
import sys, fl_app
assert "torch" not in sys.modules
before = list(sys.path)
run = fl_app.load_run(sys.argv[1])
import numpy as np
pixels = np.zeros((3, 8, 8), np.uint8)
print(tuple(run.model(client=0)(run.preprocess(pixels)).shape), sys.path == before)
"""


def test_a_client_has_the_mixture_that_it_was_scored_with(digits_run: Path) -> None:
    found = load_run(digits_run)
    assert found.input_shape == (1, 8, 8)
    assert found.classes == tuple("0123456789")
    assert sorted(found.clients) == list(range(6))
    assert any(names[0].startswith("mixture_") for names in found.clients.values())
    assert "global" in found.models
    model = found.model(client=0)
    assert not model.training
    whole = {key: each.clone() for key, each in model.state_dict().items()}
    parts = [found.model(community=row).state_dict() for row in found.communities]
    assert not any(torch.equal(part["9.weight"], whole["9.weight"]) for part in parts)
    stored = set(found.serving["models"]) - set(found.serving["mixtures"])
    assert not any(name.startswith("mixture_") for name in stored)
    assert {key.partition("/")[0] for key in load_file(digits_run / MODELS)} == stored


def test_mixtures_need_no_evaluation_and_old_folders_have_them_whole(
    digits_run: Path, tmp_path: Path
) -> None:
    content = json.loads((digits_run / "serving.json").read_text())
    named = next(iter(content["mixtures"]))
    mean = load_run(digits_run).model(name=named).state_dict()
    models = load_file(digits_run / MODELS)
    models |= {f"{named}/{key}": tensor.numpy() for key, tensor in mean.items()}
    save_file(models, tmp_path / MODELS)
    del content["mixtures"], content["constants"]
    (tmp_path / "serving.json").write_text(json.dumps(content | {"version": 1}))
    old = load_run(tmp_path).model(name=named).state_dict()
    assert all(torch.equal(old[key], tensor) for key, tensor in mean.items())


def test_pixels_become_the_inputs_of_the_run(digits_run: Path) -> None:
    found = load_run(digits_run)
    config = load(["data=digits"])
    data = dataset(config.data, config.seed)
    wanted, _ = data.test(np.arange(5))
    raw = data.test_images[:5]
    assert torch.equal(found.preprocess(raw), wanted)
    assert torch.equal(found.preprocess(raw[:, 0]), wanted)
    assert torch.equal(found.preprocess(raw[0]), wanted[:1])
    with pytest.raises(ValueError, match=r"bytes 0..255 of shape \(1, 8, 8\).*got float64"):
        found.preprocess(np.zeros((2, 1, 8, 8)))


def test_pictures_and_files_become_inputs_too(digits_run: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    raw = np.arange(64, dtype=np.uint8).reshape(8, 8) * 3
    image.fromarray(raw).save(tmp_path / "one.png")
    found = load_run(digits_run).preprocess
    assert torch.equal(found(tmp_path / "one.png"), found(raw))
    assert torch.equal(found([image.fromarray(raw), str(tmp_path / "one.png")])[1:], found(raw))
    wrongs: list[Any] = [[], 5, raw.tolist()]
    for wrong, got in zip(wrongs, ("none", "int", "list"), strict=True):
        with pytest.raises(ValueError, match=f"got {got}; "):
            found(wrong)


def test_rows_become_the_inputs_of_the_run(table_run: Path) -> None:
    found = load_run(table_run)
    assert found.classes == ("no", "yes")
    path = table_run.parent / "patients.csv"
    config = load(["data=table", f"data.root={path.parent}", "data.file=patients.csv",
                   "data.label=sick", "data.client=ward", "data.missing=median",
                   "data.standardise=true"])  # fmt: skip
    data = dataset(config.data, config.seed)
    every = found.preprocess(path)
    rows = {tuple(row) for row in every.tolist()}
    assert {tuple(row) for row in torch.from_numpy(data.test_images).tolist()} <= rows
    labels = found.preprocess.labels(frame_of(path))  # type: ignore[attr-defined]
    assert len(labels) == len(every) == 200
    one = {"age": 50, "pressure": None, "colour": "green"}
    assert found.preprocess(one).shape == (1, 4)
    with pytest.raises(ValueError, match="must have the column 'colour'"):
        found.preprocess([{"age": 50, "pressure": 120}])


def test_texts_become_the_tokens_of_the_run(tmp_path: Path) -> None:
    lines = [f"good day number{n},up,{n % 2}\nbad night number{n},down,{n % 2}" for n in range(30)]
    (tmp_path / "texts.csv").write_text("text,label,shop\n" + "\n".join(lines))
    texts = ["data=text", f"data.root={tmp_path}", "data.file=texts.csv", "data.length=4"]
    run([*texts, "network=text_classifier", "population=iid", "population.clients=2", "rounds=1",
         "strategy=fedavg", "data.client=null", *QUICK], tmp_path / "run")  # fmt: skip
    found = load_run(tmp_path / "run")
    tokens = found.preprocess(["good unseen day", "Bad"])
    assert tokens.dtype == torch.int64
    assert (tokens == 1).sum() == 1  # the word outside the vocabulary
    assert tokens[1, 1:].tolist() == [0, 0, 0]
    assert found.model(client=1)(tokens).shape == (2, 2)


def test_two_runs_keep_their_own_modules_of_one_name(tmp_path: Path) -> None:
    for place, bias in (("first", True), ("second", False)):
        folder = tmp_path / place
        folder.mkdir()
        (folder / "my_net.py").write_text(NETWORK)
        (folder / "helper.py").write_text(HELPER.replace("classes)\n", f"classes, bias={bias})\n"))
        code = "import sys; sys.path.insert(0, '.'); from fl_app.main import main; main()"
        done = door.run(
            door.SCRIPT, code, "network=small_cnn", "network._target_=my_net.build",
            "network.width=4", "rounds=1", "population.clients=2", "population=iid",
            "strategy=fedavg", "hydra.run.dir=run", *QUICK, cwd=folder,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    before = list(sys.path)
    biases = []
    for place in ("first", "second"):
        moved = tmp_path / f"copy_of_{place}"
        shutil.copytree(tmp_path / place / "run", moved)
        biases.append("3.bias" in load_run(moved).model(client=0).state_dict())
    assert biases == [True, False]
    assert sys.path == before


def test_a_copy_works_elsewhere_and_the_package_is_light(digits_run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("serving.json", "models.safetensors"):
        shutil.copy(digits_run / name, copy)
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(copy)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split("\n")[0] == "(3, 10) True", done.stderr


@pytest.mark.parametrize(
    ("change", "told"),
    [({"network": {"_target_": "nowhere.net"}}, "the network nowhere.net must be the one"),
     ({"network": {"_target_": "fl_app.client.networks.mlp", "hidden": [3]}}, "size mismatch"),
     ({"network": {"_target_": "fl_app.client.networks.mlp", "old": 3}}, "argument 'old'; use the"),
     ({"preprocess": {"_target_": "fl_app.data.preparation.Pixels", "old": 3}}, "preparation fl_"),
     ({"seed": None}, r"serving.json must be .* is damaged \('seed'\)"),
     ({"version": 3}, "must have version 2 or below, got 3; use the fl-app that wrote it")],
)  # fmt: skip
def test_a_folder_of_another_version_or_without_its_modules_is_told(
    digits_run: Path, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    content = json.loads((digits_run / "serving.json").read_text()) | change
    kept = {name: value for name, value in content.items() if value is not None}
    (tmp_path / "serving.json").write_text(json.dumps(kept | {"descriptors": None}))
    shutil.copy(digits_run / MODELS, tmp_path)
    with pytest.raises(ValueError, match=told):
        load_run(tmp_path).preprocess(load_run(tmp_path).model(client=0))


def test_a_run_that_has_failed_is_told(
    digits_run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert not load_run(digits_run).serving["local"]
    assert caplog.messages == []
    shutil.copy(digits_run / "serving.json", tmp_path)
    summary = json.loads((digits_run / "summary.json").read_text()) | {"status": "failed"}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    load_run(tmp_path)
    assert "has ended as failed: its models are those after round 4" in caplog.text


def test_an_unknown_client_community_or_folder_is_refused(digits_run: Path, tmp_path: Path) -> None:
    found = load_run(digits_run)
    with pytest.raises(ValueError, match=r"one of this run, 0\.\.5, got 9; use fl-app assign"):
        found.model(client=9)
    with pytest.raises(ValueError, match=r"must be one of community_0.*got community_8"):
        found.model(community=8)
    with pytest.raises(ValueError, match="by exactly one of --client"):
        found.model()
    with pytest.raises(ValueError, match=r"a run that has ended, with serving\.json, got"):
        load_run(tmp_path)
    with pytest.raises(ValueError, match=r"output folder of a run, got .*, which is not there"):
        load_run(tmp_path / "misspelt")
    (tmp_path / "serving.json").write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        load_run(tmp_path)


def test_the_choice_of_a_client_is_its_last_one(tmp_path: Path) -> None:
    run(["strategy=ifca", "strategy.communities=2", "strategy.restarts=0", "rounds=2",
         "population.clients=4", "population.groups=2", "network.width=0.25",
         "population.train_samples=40", "population.test_samples=20",
         "records.evaluate_at_most=3", *QUICK], tmp_path)  # fmt: skip
    found = read_serving(tmp_path)
    assert found is not None
    assignment = json.loads((tmp_path / "summary.json").read_text())["communities"]["assignment"]
    chosen = {c: names[0] for c, names in found["clients"].items() if len(names) == 1}
    rows = {str(client): int(name.removeprefix("community_")) for client, name in chosen.items()}
    assert rows.keys() == {"0", "1", "2", "3"}  # one never evaluated, but chose to train
    assert assignment == rows


def test_a_client_whose_choice_is_hidden_has_no_model_by_its_id(tmp_path: Path) -> None:
    run(["experiment=secure_ifca", "strategy.communities=2", "rounds=1",
         "population.clients=4", "population.groups=2", "network.width=0.25",
         "population.train_samples=40", "population.test_samples=20", *QUICK],
        tmp_path)  # fmt: skip
    with pytest.raises(
        ValueError, match=r"among community_0, community_1, and the server .* fl-app assign"
    ):
        load_run(tmp_path).model(client=0)


def test_a_constructor_that_reads_a_file_names_it_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import torch\nfrom torch import nn\n\ndef build(shape, classes):\n"
        "    net = nn.Sequential(nn.Flatten(), nn.Linear(64, classes))\n"
        "    net.load_state_dict(torch.load('base.pt'))\n    return net\n"
    )
    (tmp_path / "reads_a_file.py").write_text(code)
    start = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    torch.save(start.state_dict(), tmp_path / "base.pt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ["network=mlp", "~network.hidden", "network._target_=reads_a_file.build"]
    few = ["population.clients=2", "population.train_samples=20", "population.test_samples=10"]
    run([*words, *few, "population=iid", "strategy=fedavg", "rounds=1", *QUICK], tmp_path / "run")
    assert load_run(tmp_path / "run").model(client=0) is not None
    monkeypatch.chdir("/")
    with pytest.raises(ValueError, match=r"reads base.pt when it is made, which is not there"):
        load_run(tmp_path / "run").model(client=0)
