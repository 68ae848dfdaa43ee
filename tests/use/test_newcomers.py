"""A client that was never there finds its community, and a model is trained further for it."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fl_app.client.local import LocalClient
from fl_app.config import ConfigError, load
from fl_app.data.clients import ClientData
from fl_app.one_run import run
from fl_app.use.assign import by_loss
from fl_app.use.card import write_card
from fl_app.use.commands import assign, fine_tune
from fl_app.use.run import FinishedRun, load_run
from fl_app.use.scorer import Scorer, config_of
from fl_app.wiring import dataset

QUICK = ["records.figures=false", "records.report=false", "tracking=none", "client.threads=1"]


@pytest.fixture(scope="module")
def swapped_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run that has found the two groups that it was given."""
    folder = tmp_path_factory.mktemp("swapped") / "run"
    run(["strategy=flic", "strategy.cluster_round=6", "strategy.participation=1.0", "rounds=12",
         "population.clients=6", "population.groups=2", "client.batch_size=10",
         "client.learning_rate=0.15", "network=mlp", *QUICK], folder)  # fmt: skip
    assert json.loads((folder / "summary.json").read_text())["communities"]["ari"] == 1.0
    return folder


def _newcomer(path: Path, group: int) -> Path:
    """Write images of one planted group: it swaps the labels 2g and 2g + 1."""
    config = load(["data=digits"])
    data = dataset(config.data, config.seed)
    rows = np.random.default_rng(group).permutation(len(data.test_labels))[:60]
    labels = data.test_labels[rows]
    swap = (labels // 2) == group
    np.savez(path, inputs=data.test_images[rows], labels=np.where(swap, labels ^ 1, labels))
    return path


@pytest.mark.parametrize("way", [["--by", "loss"], ["--by", "update", "--epochs", "2"]])
def test_a_newcomer_finds_its_group(
    way: list[str], swapped_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    groups = load_run(swapped_run).communities
    for group in range(2):
        data = _newcomer(tmp_path / f"{group}.npz", group)
        assign([str(swapped_run), "--data", str(data), *way, "--json"])
        found = json.loads(capsys.readouterr().out)
        members = groups[int(found["model"].removeprefix("community_"))]
        assert {client % 2 for client in members} == {group}
        assert 0 < found["margin"] <= 1
        assert set(found["values"]) == {"community_0", "community_1"}
    assign([str(swapped_run), "--data", str(data)])
    assert "margin to the second" in capsys.readouterr().out


def test_images_in_folders_are_a_newcomer_too(
    swapped_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    image = pytest.importorskip("PIL.Image")
    found = np.load(_newcomer(tmp_path / "0.npz", 0))
    for number, (pixels, label) in enumerate(zip(found["inputs"], found["labels"], strict=True)):
        (tmp_path / "images" / str(label)).mkdir(parents=True, exist_ok=True)
        image.fromarray(pixels[0]).save(tmp_path / "images" / str(label) / f"{number}.png")
    said = []
    for data in ("0.npz", "images"):
        assign([str(swapped_run), "--data", str(tmp_path / data), "--json"])
        said.append(json.loads(capsys.readouterr().out))
    assert said[0]["values"] == pytest.approx(said[1]["values"], rel=1e-5)
    (tmp_path / "images" / "ten").mkdir()
    image.fromarray(pixels[0]).save(tmp_path / "images" / "ten" / "1.png")
    with pytest.raises(ValueError, match="named like a class of the run"):
        assign([str(swapped_run), "--data", str(tmp_path / "images")])


def test_inputs_alone_find_a_group_with_inputs_of_its_own(
    rotated_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    groups = load_run(rotated_run).communities
    images = np.load(_newcomer(tmp_path / "x.npz", 0))["inputs"]
    for group, given in enumerate((images, images[:, :, ::-1, ::-1])):
        np.save(tmp_path / "x.npy", given)
        np.savez(tmp_path / "x.npz", inputs=given)
        said = []
        for data in ("x.npy", "x.npz"):
            assign([str(rotated_run), "--data", str(tmp_path / data), "--without-labels", "--json"])
            said.append(json.loads(capsys.readouterr().out))
        assert said[0] == said[1]
        members = groups[int(said[0]["model"].removeprefix("community_"))]
        assert {client % 2 for client in members} == {group}
        assert 0 < said[0]["margin"] <= 1
    assign([str(rotated_run), "--data", str(tmp_path / "x.npy"), "--without-labels"])
    assert "disagree only on labels cannot be told apart" in capsys.readouterr().out


def test_labels_of_a_table_are_not_read_without_labels(
    table_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    lines = (table_run.parent / "patients.csv").read_text().splitlines()
    (tmp_path / "x.csv").write_text("\n".join(line.rpartition(",")[0] for line in lines))
    assign([str(table_run), "--data", str(tmp_path / "x.csv"), "--without-labels"])
    assert capsys.readouterr().out.startswith("community_0, the only one")


def test_what_cannot_be_placed_without_labels_is_told(
    swapped_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = str(_newcomer(tmp_path / "x.npz", 0))
    for given, said in (
        (["--by", "loss", "--data", data], "--by loss needs labels"),
        (["--data", str(tmp_path)], "at least one sample, got none"),
    ):
        with pytest.raises(ValueError, match=said):
            assign([str(swapped_run), "--without-labels", *given])
    np.savez(tmp_path / "y.npz", labels=np.zeros(3))
    with pytest.raises(ValueError, match="must have the array inputs, got labels"):
        assign([str(swapped_run), "--without-labels", "--data", str(tmp_path / "y.npz")])
    for kind in ("regression", "numbers"):
        monkeypatch.setattr(FinishedRun, "answers", kind)
        with pytest.raises(ValueError, match=rf"got {kind}.*give labelled samples"):
            assign([str(swapped_run), "--without-labels", "--data", data])


def test_a_single_community_has_no_margin(table_run: Path, capsys: pytest.CaptureFixture) -> None:
    data = str(table_run.parent / "patients.csv")
    assign([str(table_run), "--data", data])
    assert capsys.readouterr().out.startswith("community_0, the only one")


def test_wrong_samples_are_told(swapped_run: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", images=np.zeros(3))
    (tmp_path / "damaged.npz").write_bytes(b"abc")
    for name, said in (
        ("damaged.npz", "must be a .npy or .npz file of numbers that can be read"),
        ("none.npz", "which is not there"),
        ("x.npz", "must have the array inputs, got images"),
        (".", "must have images in <class>/<image>"),
    ):
        with pytest.raises(ValueError, match=said):
            assign([str(swapped_run), "--data", str(tmp_path / name)])
    (tmp_path / "x.csv").write_text("a\n1")
    with pytest.raises(ValueError, match=r"a folder <class>/<image>, or a \.npz file"):
        assign([str(swapped_run), "--data", str(tmp_path / "x.csv")])


def test_a_personal_model_is_a_run_of_one_model(
    swapped_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    fine_tune([str(swapped_run), "--client", "1", "--epochs", "2", "--to", str(tmp_path / "p")])
    assert "before" in capsys.readouterr().out
    found = load_run(tmp_path / "p")
    assert found.models == ("personal",)
    assert found.clients == {1: ("personal",)}
    with pytest.raises(ConfigError, match=r"without config\.yaml; this command needs the settings"):
        assign([str(found.folder), "--data", str(_newcomer(tmp_path / "1.npz", 1))])
    new, old = found.model(name="personal"), load_run(swapped_run).model(client=1)
    weights = [each.state_dict()["1.weight"] for each in (new, old)]
    assert not torch.equal(*weights)
    card = write_card(found, tmp_path, []).read_text()
    assert "of a run, as it was after round" in card
    assert "trained further for 2 epochs on the data of one client alone, without diff" in card
    assert "**Privacy**" not in card  # the records that tell it are those of the run
    assert "**Attacks seen**" not in card
    data = _newcomer(tmp_path / "1.npz", 1)
    fine_tune([str(swapped_run), "--community", "0", "--data", str(data),
               "--to", str(tmp_path / "q")])  # fmt: skip
    assert (tmp_path / "q" / "models.safetensors").exists()
    with pytest.raises(ValueError, match="must not exist or be empty"):
        fine_tune([str(swapped_run), "--client", "1", "--to", str(tmp_path / "q")])
    with pytest.raises(ValueError, match="--data must be given"):
        fine_tune([str(swapped_run), "--community", "1", "--to", str(tmp_path / "r")])


def test_a_client_without_test_samples_gets_a_model_without_scores(
    swapped_run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = Scorer.client

    def without_test(self: Scorer, client: int) -> LocalClient:
        local = kept(self, client)

        def load(server_round: int) -> ClientData:
            data = local.load(server_round)
            return replace(data, test_images=data.test_images[:0], test_labels=data.test_labels[:0])

        return replace(local, load=load)

    monkeypatch.setattr(Scorer, "client", without_test)
    fine_tune([str(swapped_run), "--client", "1", "--to", str(tmp_path / "p")])
    assert "not scored, since the client has no test samples" in capsys.readouterr().out
    assert load_run(tmp_path / "p").models == ("personal",)


def test_the_model_of_a_run_is_not_changed_by_use(swapped_run: Path, tmp_path: Path) -> None:
    before = (swapped_run / "models.safetensors").read_bytes()
    scorer = Scorer(load_run(swapped_run), config_of(swapped_run, []))
    found = np.load(_newcomer(tmp_path / "0.npz", 0))
    inputs = scorer.run.preprocess(found["inputs"])
    labels = torch.from_numpy(found["labels"]).long()
    first, second = (by_loss(scorer, inputs, labels) for _ in range(2))
    assert first == second
    assert (swapped_run / "models.safetensors").read_bytes() == before
