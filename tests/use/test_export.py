"""Exported models answer as PyTorch does, for any number of samples, and have a card."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "client"))  # where user_networks is
from fl_app.config import ConfigError
from fl_app.data.preparation import Numbers, Pixels, Preparation
from fl_app.data.rows import TableRows, TextRows
from fl_app.one_run import run
from fl_app.use.card import _communities, _from_raw, _input, write_card
from fl_app.use.commands import export as command
from fl_app.use.export import _difference, _written, export
from fl_app.use.formats import FORMATS
from fl_app.use.run import load_run

QUICK = ["records.figures=false", "records.report=false", "tracking=none", "client.threads=1"]
SMALL = ["population=iid", "population.clients=2", "population.train_samples=20",
         "population.test_samples=10", "strategy=fedavg", "rounds=1"]  # fmt: skip


@pytest.mark.parametrize("form", FORMATS)
def test_each_format_is_checked_and_has_a_card(
    form: str, digits_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    command([str(digits_run), "--format", form, "--to", str(tmp_path)])
    said = capsys.readouterr().out.splitlines()
    communities = load_run(digits_run).communities
    assert len(said) == len(communities) + 1
    assert all("differs from PyTorch by at most" in line for line in said[:-1])
    card = (tmp_path / "model_card.md").read_text()
    assert "**Method**: `CommunityDiscovery`" in card
    assert "without differential privacy" in card
    assert "worst client" in card
    assert "| community_0 |" in card
    assert "- torch 2." in card
    assert (tmp_path / "serving.json").exists()


def test_a_card_is_not_put_beside_models_of_another_run(digits_run: Path, tmp_path: Path) -> None:
    to = ["--to", str(tmp_path)]
    command([str(digits_run), "--format", "safetensors", *to])
    command([str(digits_run), "--format", "torchscript", *to])  # of the same run
    another = (tmp_path / "serving.json").read_text().replace('"round":', '"round": 1')
    (tmp_path / "serving.json").write_text(another)
    card = (tmp_path / "model_card.md").read_text()
    with pytest.raises(ValueError, match=r"got community_0\.pt, .* remove them, or give another"):
        command([str(digits_run), "--format", "safetensors", *to])
    assert (tmp_path / "model_card.md").read_text() == card
    for each in tmp_path.glob("*.pt"):
        each.unlink()
    command([str(digits_run), "--format", "safetensors", *to])  # all of its models are replaced
    assert (tmp_path / "serving.json").read_text() != another


@torch.no_grad()
def test_onnx_answers_as_pytorch(digits_run: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    command([str(digits_run), "--client", "0", "--format", "onnx", "--to", str(tmp_path)])
    found = load_run(digits_run)
    (file,) = tmp_path.glob("*.onnx")
    assert file.stem == found.clients[0][0]
    session = onnxruntime.InferenceSession(file)
    raw = np.random.default_rng(0).integers(0, 256, (33, 1, 8, 8)).astype(np.uint8)
    inputs = found.preprocess(raw)
    (answers,) = session.run(None, {"input": inputs.numpy()})
    np.testing.assert_allclose(answers, found.model(client=0)(inputs).numpy(), atol=1e-4)


SLOW = "client.learning_rate=0.001"
NETWORKS = {
    "mlp": ["strategy=fedavg", SLOW, "network=mlp"],
    "mobilenet": ["strategy=fedavg", SLOW, "network=mobilenet", "network.width=0.05"],
    "centroids": ["strategy=kmeans", "network=centroids"],
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_become_onnx(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    given = [each for each in SMALL if each != "strategy=fedavg"]
    run([*given, *NETWORKS[name], *QUICK], tmp_path / "run")
    command(["run", "--format", "onnx", "--to", "out"])
    assert "differs from PyTorch by at most" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["safetensors", "torchscript", "pt2"])
@pytest.mark.parametrize("network", ["attention", "untracked_norm", "in_parallel", "Gated"])
def test_networks_of_users_are_exported(
    network: str,
    form: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = ["network=mcmahan_cnn", f"network._target_=user_networks.{network}"]
    run([*SMALL, *given, *QUICK], tmp_path / "run")
    command([str(tmp_path / "run"), "--format", form, "--to", str(tmp_path / "out")])
    assert "differs from PyTorch by at most" in capsys.readouterr().out
    assert "does not choose as the network" not in caplog.text


@pytest.mark.parametrize(
    ("answers", "told"),
    [("numbers", "what the network returns: numbers, but no scores of classes."),
     ("multilabel", "one score per class before the sigmoid: a, b."),
     ("tokens", "for each token one score per class before the softmax: a, b."),
     ("regression", "what the network returns to predict price and days, as the loss or the"),
     ("centroids", "minus the squared distance to each centroid."),
     ("words of a user", "what the network returns.")],
)  # fmt: skip
def test_the_card_tells_what_the_output_is(
    answers: str, told: str, digits_run: Path, tmp_path: Path
) -> None:
    run = load_run(digits_run)
    run.serving = {**run.serving, "answers": answers, "class_names": ["a", "b"],
                   "preprocess": {"label": {"column": ["price", "days"]}}}  # fmt: skip
    run.summary = {**run.summary, "metrics": {"mae": {"mean": 1.25, "std": 0.0}}}
    card = write_card(run, tmp_path, []).read_text()
    assert f"from raw samples. The output is {told}" in card
    assert "- **Measures**: mae 1.25\n" in card


@pytest.mark.parametrize(
    ("loss", "told"),
    [("torch.nn.HuberLoss", "the predicted numbers, in the unit of the data."),
     ("own.Cox", "what the network returns to predict numbers, as the loss or the learner uses it"),
     ("torch.nn.PoissonNLLLoss", "what the network returns to predict numbers, as the loss")],
)  # fmt: skip
def test_the_card_tells_the_unit_of_a_regression_where_its_loss_has_one(
    loss: str, told: str, tmp_path: Path
) -> None:
    run: Any = SimpleNamespace(
        answers="regression", classes=(), predicted=(), input_shape=(3,),
        serving={"input_type": "float32"},
    )  # fmt: skip
    (line,) = _input(run, {"task": {"loss": {"_target_": loss}}, "client": {"learner": None}})
    assert f"The output is {told}" in line


@pytest.mark.parametrize(
    ("described", "told"),
    [(Pixels([1, 2, 2], [0.5], [0.1]), "divided by 255, then `mean` of their channel is subtr"),
     (Pixels([1, 2, 2], None, None), "are divided by 255. Files were turned"),
     (TableRows(None, [], [], []), "the columns in `order`. A column of `numbers` is one input"),
     (TextRows(None, "text", "words", 4, ["a"]), "is 2 plus its place in `words`, from 0"),
     (Numbers([3], False), "")],
)  # fmt: skip
def test_the_card_tells_how_raw_samples_become_inputs(described: Preparation, told: str) -> None:
    assert told in "".join(_from_raw(described.describe()))
    of_a_user = {**described.describe(), "_target_": "own.Rows"}
    assert not [*_from_raw(of_a_user)]


def test_the_card_counts_rejected_replies_apart_from_attacks(
    digits_run: Path, tmp_path: Path
) -> None:
    run = load_run(digits_run)
    run.summary = {**run.summary, "clients": {**run.summary["clients"], "rejected": 8}}
    card = write_card(run, tmp_path, []).read_text()
    assert "- **Rejected replies**: 8, in which a value broke a rule" in card
    assert "- **Attacks seen**: none\n" in card


def test_the_card_tells_when_its_scores_are_of_other_rounds(
    digits_run: Path, tmp_path: Path
) -> None:
    run, last = load_run(digits_run), load_run(digits_run).round
    assert "not of these" not in write_card(run, tmp_path, [], owner=0).read_text()
    run.serving = {**run.serving, "round": last + 1}
    card = write_card(run, tmp_path, [], owner=0).read_text()
    assert f"- **Accuracy** of the models after round {last}, not of these: " in card
    assert f"| accuracy of the models after round {last}, not of these | worst client |" in card
    assert f" after round {last}.\n" in card
    assert f", round {last + 1}\n" in card
    run.serving = {**run.serving, "round": last - 1}  # killed after it was resumed
    assert f"after round {last}" not in write_card(run, tmp_path, []).read_text()


def test_the_card_has_the_measures_of_each_model_where_there_is_no_accuracy() -> None:
    run: Any = SimpleNamespace(clients={0: ("a",), 1: ("b",), 2: ("a",)}, round=2)
    mae = {"mean": 1.0, "clients": {"0": 0.5, "2": 1.0}}
    rounds: Any = [{"round": 2, "accuracy": None, "metrics": {"mae": mae}}]
    head, _, *rows = _communities(run, rounds, "")
    assert head == "| model | clients | mae |"
    assert rows == ["| a | 2 | 0.75 |", "| b | 1 |  |"]


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_answers_of_16_bits_may_differ_by_their_rounding(kind: torch.dtype) -> None:
    class Half(torch.nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs.clamp(0.5, 1).to(kind)

    run: Any = SimpleNamespace(input_shape=(3,), serving={"input_type": "float32"})
    step = torch.finfo(kind).eps / 2
    near = _difference(run, "personal", Half(), lambda x: Half()(x).float().numpy() + step)
    assert near == pytest.approx(step, rel=0.1)
    with pytest.raises(ValueError, match=r"must differ by at most 0.00.*; or use another format"):
        _difference(run, "personal", Half(), lambda x: Half()(x).float().numpy() + 3 * step)


def test_a_layer_of_16_bits_may_round_though_the_answers_are_float32() -> None:
    class Mixed(torch.nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs.half()).float().clamp(-1, 1)

    network = Mixed(3, 1, dtype=torch.float16)
    run: Any = SimpleNamespace(input_shape=(3,), serving={"input_type": "float32"})
    step = torch.finfo(torch.float16).eps / 2
    near = _difference(run, "personal", network, lambda x: network(x).detach().numpy() + step)
    assert near == pytest.approx(step, rel=0.1)
    with pytest.raises(ValueError, match=r"at most 0.00098, got .* 16 bits, which formats round"):
        _difference(run, "personal", network, lambda x: network(x).detach().numpy() + 3 * step)
    plain = torch.nn.Linear(3, 1)
    with pytest.raises(ValueError, match=r"at most 0.0001, got [^;]*; in forward give sizes"):
        _difference(run, "personal", plain, lambda x: plain(x).detach().numpy() + step)


def test_a_file_for_one_number_of_samples_is_told_with_the_way_out() -> None:
    run: Any = SimpleNamespace(input_shape=(2,), serving={"input_type": "float32"})

    def answer(inputs: torch.Tensor) -> np.ndarray:
        raise RuntimeError("Got: 1\nExpected: 3")

    with pytest.raises(ValueError, match=r"personal must take any number .* with 1; .*x[.]shape"):
        _difference(run, "personal", torch.nn.Linear(2, 1), answer)


def test_answers_that_are_not_finite_are_told() -> None:
    run: Any = SimpleNamespace(input_shape=(2,), serving={"input_type": "float32"})
    broken = torch.nn.Linear(2, 1)
    torch.nn.init.constant_(broken.bias, float("nan"))
    with pytest.raises(ValueError, match="the answers of one must be finite, got others"):
        _difference(run, "one", broken, lambda x: broken(x).numpy())


class _Refuses(torch.nn.Module):
    """Takes no sample of padding alone, as masked attention does, or no sample at all."""

    def __init__(self, *, every: bool) -> None:
        super().__init__()
        self.every = every

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        if self.every or not tokens.any():
            raise RuntimeError("a row must have a token")
        return tokens.float()


def test_inputs_that_the_network_itself_refuses_are_not_compared() -> None:
    run: Any = SimpleNamespace(input_shape=(3,), serving={"input_type": "int64"})
    assert _difference(run, "one", _Refuses(every=False), lambda x: x.float().numpy()) == 0.0
    with pytest.raises(ValueError, match=r"finite, got RuntimeError: a row .* any values"):
        _difference(run, "one", _Refuses(every=True), lambda x: x.float().numpy())


class _Several(torch.nn.Module):
    """Answers with several tensors, which only its learner can read."""

    def forward(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"scores": rows}


def test_answers_of_several_tensors_are_told_before_a_format_fails_on_them(tmp_path: Path) -> None:
    run: Any = SimpleNamespace(
        folder=tmp_path / "run", input_shape=(2,), serving={"input_type": "float32"},
        own=lambda client: False, network=_Several, load=lambda name, module, client: module,
    )  # fmt: skip
    with pytest.raises(
        ValueError, match="must answer with one tensor, got dict; return the scores"
    ):
        export(run, "torchscript", tmp_path / "out", ["community_0"])
    assert not list((tmp_path / "out").iterdir())


class _Counts(torch.nn.Module):
    """Takes the number of its samples as a constant."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.reshape(len(inputs), -1)


@pytest.mark.parametrize("form", ["torchscript", "pt2"])
def test_a_network_that_counts_its_samples_is_told_what_to_write(form: str, tmp_path: Path) -> None:
    run: Any = SimpleNamespace(input_shape=(2, 3), serving={"input_type": "float32"})
    with pytest.raises(ValueError, match=r"give sizes as x[.]shape\[0\], not len\(x\)"):
        _difference(run, "one", _Counts(), _written(run, _Counts(), form, tmp_path / "one"))


class _Chooses(torch.nn.Module):
    """Takes large numbers for others, as a network for raw and for scaled rows does."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if inputs.max() > 8:
            inputs = inputs / 100
        return inputs


def test_a_choice_by_values_that_a_file_does_not_make_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture
) -> None:
    run: Any = SimpleNamespace(input_shape=(3,), serving={"input_type": "float32"})
    answer = _written(run, _Chooses(), "torchscript", tmp_path / "one.pt")
    (told,) = caplog.messages
    assert "one.pt does not choose as the network at test_export.py:" in told
    with pytest.raises(ValueError, match=r"must differ by at most 0.0001, got .*torch[.]where"):
        _difference(run, "one", _Chooses(), answer)
    with pytest.raises(ValueError, match="one that pt2 can hold, got GuardOnDataDependent"):
        _written(run, _Chooses(), "pt2", tmp_path / "one.pt2")
    assert capsys.readouterr() == ("", ""), "an exporter's page about the network is dropped"


class _Rare(torch.nn.Module):
    """Answers samples without a rare token in another form of the sum."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(50, 4)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found = self.embed(tokens).sum(1)
        return found + 1 if tokens.max() > 40 else found


def test_tokens_of_all_rows_of_an_embedding_are_tried(tmp_path: Path) -> None:
    run: Any = SimpleNamespace(input_shape=(3,), serving={"input_type": "int64"})
    network = _Rare().eval()
    answer = _written(run, network, "torchscript", tmp_path / "one.pt")
    with pytest.raises(ValueError, match=r"must differ by at most 0.0001"):
        _difference(run, "one", network, answer)


def test_the_card_tells_privacy_and_attacks(tmp_path: Path) -> None:
    given = ["attack=scaled", "attack.share=0.5", "privacy=local_dp", "network.width=0.25"]
    run([*SMALL, *given, *QUICK], tmp_path / "run")
    command([str(tmp_path / "run"), "--format", "safetensors", "--to", str(tmp_path / "out")])
    card = (tmp_path / "out" / "model_card.md").read_text()
    assert "**Privacy**: local_dp, epsilon" in card
    assert "planted attack" in card


def test_a_wrong_format_and_a_missing_package_are_told(
    digits_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="another than that of the run, got"):
        command([str(digits_run), "--format", "safetensors", "--to", str(digits_run)])
    with pytest.raises(ConfigError, match="invalid choice: 'keras'"):
        command([str(digits_run), "--format", "keras", "--to", str(tmp_path)])
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(ValueError, match="install the extra onnx of fl-app"):
        command([str(digits_run), "--format", "onnx", "--to", str(tmp_path)])


def test_what_an_exporter_says_of_a_network_is_told_with_the_way_out(
    digits_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(run: object, model: object, inputs: object, file: Path) -> None:
        file.write_text("a part")
        try:
            raise TypeError("no operator for sort\nand a page of its trace")
        except TypeError as error:
            raise RuntimeError("the export failed") from error

    monkeypatch.setitem(FORMATS, "onnx", (fails, "onnx"))
    told = "one that onnx can hold, got TypeError: no operator for sort; use another format"
    (tmp_path / "community_0.onnx").write_text("earlier")
    with pytest.raises(ValueError, match=told):
        command([str(digits_run), "--format", "onnx", "--to", str(tmp_path)])
    assert [each.read_text() for each in tmp_path.iterdir()] == ["earlier"]
