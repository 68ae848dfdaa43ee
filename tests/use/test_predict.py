"""`fl-app predict` answers raw samples as the model does, and names what is wrong with them."""

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fl_app.config import ConfigError
from fl_app.data.preparation import Numbers
from fl_app.one_run import run
from fl_app.use.commands import predict as command
from fl_app.use.predict import answers, batches, check_tokens
from fl_app.use.run import load_run
from fl_app.use.samples import labelled

QUICK = ["records.figures=false", "records.report=false", "tracking=none", "client.threads=1"]


def _read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_rows_get_probabilities_by_the_names_of_classes(table_run: Path, tmp_path: Path) -> None:
    data, out = table_run.parent / "patients.csv", tmp_path / "y.csv"
    command([str(table_run), "--client", "1", "--data", str(data), "--out", str(out),
             "--batch", "7"])  # fmt: skip
    found = _read(out)
    assert list(found[0]) == ["row", "prediction", "probability of no", "probability of yes"]
    assert [row["row"] for row in found] == [str(line) for line in range(2, 202)]
    run = load_run(table_run)
    with torch.no_grad():
        wanted = run.model(client=1)(run.preprocess(data)).softmax(1)
    shown = [[float(row[f"probability of {name}"]) for name in run.classes] for row in found]
    np.testing.assert_allclose(shown, wanted.numpy(), atol=1e-6)
    assert {row["prediction"] for row in found} == {"no", "yes"}


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_an_answer_that_is_no_number_is_no_class(wrong: float) -> None:
    run: Any = SimpleNamespace(answers="classification", classes=["no", "yes"])
    scores = torch.tensor([[0.0, -float("inf")], [wrong, 0.0], [0.0, wrong]])
    with pytest.raises(ValueError, match="finite numbers, got others for sample x7 and 1 more;"):
        answers(run, torch.nn.Identity(), scores, ["x6", "x7", "x8"])
    assert answers(run, torch.nn.Identity(), scores[:1])["prediction"] == ["no"]


class _Several(torch.nn.Module):
    """Answers with several tensors, which only its learner can read."""

    def __init__(self, kind: type) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, rows: torch.Tensor) -> Any:
        return (rows, rows) if self.kind is tuple else {"scores": rows}


@pytest.mark.parametrize("kind", [tuple, dict])
@pytest.mark.parametrize("samples", [1, 3])
def test_answers_of_several_tensors_are_no_fault_of_a_sample(kind: type, samples: int) -> None:
    run: Any = SimpleNamespace(answers="classification", classes=["no", "yes"])
    told = f"must answer with one tensor, got {kind.__name__}; return the scores alone in eval"
    with pytest.raises(ValueError, match=told):
        answers(run, _Several(kind), torch.zeros(samples, 2))


class _Refuses(torch.nn.Module):
    """Takes no sample without a token, or no two at once."""

    def __init__(self, *, several: bool) -> None:
        super().__init__()
        self.several = several

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        if len(tokens) > 1 if self.several else not tokens.any(1).all():
            raise RuntimeError("a row must\nhave a token")
        return tokens.float()


def test_a_sample_that_the_network_refuses_is_named() -> None:
    run: Any = SimpleNamespace(answers="classification", classes=["no", "yes"])
    tokens, names = torch.tensor([[1, 2], [0, 0], [0, 0]]), ["x6", "x7", "x8"]
    told = "got sample {}, for which it raises RuntimeError: a row must have a token; correct it or"
    with pytest.raises(ValueError, match=told.format("x7")):
        answers(run, _Refuses(several=False), tokens, names)
    with pytest.raises(ValueError, match=told.format("1")):
        answers(run, _Refuses(several=False), tokens)
    with pytest.raises(ValueError, match=r"got samples x6 to x8, .*; give fewer of them at once"):
        answers(run, _Refuses(several=True), tokens, names)


def test_several_labels_and_tokens_are_named() -> None:
    labels: Any = SimpleNamespace(answers="multilabel", classes=["cough", "fever"])
    scores = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    found = answers(labels, torch.nn.Identity(), scores)
    assert found["prediction"] == ["fever", "cough fever"]
    assert found["probability of fever"] == pytest.approx([0.731059, 0.952574], abs=1e-5)
    tokens: Any = SimpleNamespace(answers="tokens", classes=["a", "b"])
    scores = torch.tensor([[[0.0, 1.0], [1.0, 0.0], [0.0, 5.0]]])  # of 3 tokens
    assert answers(tokens, torch.nn.Identity(), scores) == {"prediction": ["b a b"]}


@pytest.mark.parametrize(
    ("predicted", "names"),
    [
        (("dose", "days"), ["prediction of dose", "prediction of days"]),
        ((), ["output 0", "output 1"]),
        (("dose",), ["output 0", "output 1"]),  # such as its mean and variance
    ],
)
def test_numbers_are_named_by_their_columns(predicted: tuple[str, ...], names: list[str]) -> None:
    run: Any = SimpleNamespace(answers="regression", predicted=predicted)
    values = torch.tensor([[0.5, 2.0], [1.5, 4.0]])
    found = answers(run, torch.nn.Identity(), values)
    assert found == dict(zip(names, ([0.5, 1.5], [2.0, 4.0]), strict=True))
    run.predicted = ("dose",)
    assert answers(run, torch.nn.Identity(), values[:, 1:]) == {"prediction": [2.0, 4.0]}


def test_numbers_that_are_no_scores_of_classes_are_one_column_each() -> None:
    run: Any = SimpleNamespace(answers="numbers")
    found = answers(run, torch.nn.Identity(), torch.tensor([[[0.5, 2.0]], [[-1.5, 4.0]]]))
    assert found == {"output 0": [0.5, -1.5], "output 1": [2.0, 4.0]}


def test_a_score_beyond_the_classes_is_named_by_its_number() -> None:
    run: Any = SimpleNamespace(answers="classification", classes=["no", "yes"])
    found = answers(run, torch.nn.Identity(), torch.tensor([[0.0, 1.0, 5.0], [3.0, 0.0, 0.0]]))
    assert found["prediction"] == ["2", "no"]


def test_a_wrong_cell_names_file_line_and_column(table_run: Path, tmp_path: Path) -> None:
    lines = (table_run.parent / "patients.csv").read_text().splitlines()
    lines[30] = "old" + lines[30][2:]
    data, out = tmp_path / "x.csv", tmp_path / "y.csv"
    data.write_text("\n".join(lines))
    out.write_text("earlier")
    with pytest.raises(ValueError, match=r"line 31, column 'age' of .*x\.csv must be a number"):
        command([str(table_run), "--community", "0", "--data", str(data), "--out", str(out),
                 "--batch", "10"])  # fmt: skip
    assert out.read_text() == "earlier"
    assert sorted(tmp_path.iterdir()) == [data, out]


def test_images_come_as_an_array_or_as_files(digits_run: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    raw = (np.arange(5 * 64).reshape(5, 8, 8) * 7 % 256).astype(np.uint8)
    (tmp_path / "images").mkdir()
    for number, each in enumerate(raw):
        image.fromarray(each).save(tmp_path / "images" / f"{number}.png")
    np.save(tmp_path / "images.npy", raw)
    np.savez(tmp_path / "images.npz", inputs=raw, labels=np.zeros(5, int))
    for data in ("images", "images.npy", "images.npz"):
        command([str(digits_run), "--client", "0", "--data", str(tmp_path / data),
                 "--out", str(tmp_path / f"{data}.csv"), "--batch", "2"])  # fmt: skip
    files, arrays = _read(tmp_path / "images.csv"), _read(tmp_path / "images.npy.csv")
    assert [row["row"] for row in arrays] == list("01234")
    assert _read(tmp_path / "images.npz.csv") == arrays
    assert files[3]["row"].endswith("images/3.png")
    assert [row["prediction"] for row in files] == [row["prediction"] for row in arrays]


@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 8), (1, 1, 8, 8)])
def test_a_lone_sample_needs_no_axis(
    shape: tuple[int, ...], digits_run: Path, tmp_path: Path
) -> None:
    raw = np.arange(64, dtype=np.uint8)
    np.save(tmp_path / "one.npy", raw.reshape(shape))
    _predict(digits_run, tmp_path / "one.npy", tmp_path / "one.csv")
    np.save(tmp_path / "two.npy", np.stack([raw, raw]).reshape(2, 8, 8))
    _predict(digits_run, tmp_path / "two.npy", tmp_path / "two.csv")
    (one,), (first, _) = _read(tmp_path / "one.csv"), _read(tmp_path / "two.csv")
    assert one["row"] == "0"
    assert one["prediction"] == first["prediction"]


def test_numbers_without_an_axis_of_samples_are_one(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros((2, 3)))
    ((names, inputs),) = batches(Numbers((2, 3), whole=False), tmp_path / "one.npy", 1)
    assert (names, inputs.shape) == (["0"], (1, 2, 3))


def test_clusters_and_numbers_are_predicted_too(tmp_path: Path) -> None:
    small = ["population=iid", "population.clients=2", "rounds=1", *QUICK]
    run(["strategy=kmeans", "network=centroids", *small], tmp_path / "k")
    np.save(tmp_path / "x.npy", np.zeros((2, 8, 8), np.uint8))
    _predict(tmp_path / "k", tmp_path / "x.npy", tmp_path / "k.csv")
    assert list(_read(tmp_path / "k.csv")[0]) == ["row", "cluster", "distance"]
    (tmp_path / "t.csv").write_text("a,b\n" + "\n".join(f"{n},{2 * n}.5" for n in range(40)))
    run(["data=table", f"data.root={tmp_path}", "data.file=t.csv", "data.label=b",
         "data.target=regression", "task=regression", "network=mlp", "strategy=fedavg",
         "client.learning_rate=0.0001", *small], tmp_path / "n")  # fmt: skip
    _predict(tmp_path / "n", tmp_path / "t.csv", tmp_path / "n.csv")
    assert np.isfinite([float(row["prediction"]) for row in _read(tmp_path / "n.csv")]).all()


def _predict(folder: Path, data: Path, out: Path) -> None:
    command([str(folder), "--client", "0", "--data", str(data), "--out", str(out)])


def test_tokens_without_an_embedding_are_told_with_their_sample() -> None:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Embedding(5, 2))
    check_tokens(model, torch.tensor([[0, 4]]))
    for token in (5, -1):
        wrong = torch.tensor([[0, 4], [token, 1]])
        with pytest.raises(ValueError, match=rf"must be 0\.\.4 for .*got {token} in sample 1;"):
            answers(load_run, model, wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="in sample 501;"):
            check_tokens(model, wrong, ["500", "501"])


def test_hidden_files_are_no_samples_and_others_are_told(
    digits_run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    image = pytest.importorskip("PIL.Image")
    for name in (".trash/a", "3"):
        (tmp_path / name).mkdir(parents=True)
        image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / name / "x.png")
    (tmp_path / "3" / "._x.png").write_bytes(b"of another system")
    (tmp_path / "3" / "y.svg").write_bytes(b"")
    assert [names for names, _ in batches(load_run(digits_run).preprocess, tmp_path, 9)] == [
        [str(tmp_path / "3" / "x.png")]
    ]
    assert "has files that are not read: 1 .svg" in caplog.text
    assert len(labelled(load_run(digits_run), tmp_path)[1]) == 1


def test_wrong_data_and_arguments_are_told(digits_run: Path, tmp_path: Path) -> None:
    table = tmp_path / "x.csv"
    table.write_text("a\n1\n")
    with pytest.raises(ValueError, match=r"must be images or a \.npy file of them, got .*x\.csv"):
        _predict(digits_run, table, tmp_path / "y.csv")
    with pytest.raises(ValueError, match="which is not there"):
        _predict(digits_run, tmp_path / "none.npy", tmp_path / "y.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="at least one sample, got none"):
        _predict(digits_run, tmp_path / "empty", tmp_path / "y.csv")
    with pytest.raises(ConfigError, match="argument --batch: must be a number of at least 1"):
        command([str(digits_run), "--client", "0", "--data", "x", "--out", "y", "--batch", "0"])
    with pytest.raises(ConfigError, match="argument --out: must be a file, got -; write one"):
        command([str(digits_run), "--client", "0", "--data", "x", "--out", "-"])
    for name, content in (("damaged", b"abc"), ("single", None)):
        path = tmp_path / f"{name}.npy"
        np.save(path, 3) if content is None else path.write_bytes(content)
        with pytest.raises(ValueError, match=f"{name}.npy must be"):
            _predict(digits_run, path, tmp_path / "y.csv")
    for out, told in ((table, "which is the samples"), (tmp_path, "which is a folder")):
        with pytest.raises(ValueError, match=f"a file beside the samples, got {out}, {told}; give"):
            _predict(digits_run, table, out)
    assert table.read_text() == "a\n1\n"
    assert not (tmp_path / "y.csv").exists()
