"""Tasks: labels, losses and metrics, from the configuration to the records."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.common import EvaluateIns, Parameters
from sklearn.metrics import (
    average_precision_score,
    label_ranking_average_precision_score,
    roc_auc_score,
)
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parent))  # where user_tasks is
from fl_app import client_wiring, wiring
from fl_app.client.scoring import build_metric, evaluate_task, for_metric, value
from fl_app.client.task import Classification, Regression, Task, Tokens
from fl_app.client_app import FederatedClient
from fl_app.compatibility import problems
from fl_app.composition import choices
from fl_app.config import ConfigError, load
from fl_app.data.datasets import Dataset
from fl_app.ingress.evaluations import EvaluationQuestion, read_evaluation
from fl_app.one_run import run
from fl_app.params import to_bytes
from fl_app.report.compare.page import compare
from fl_app.strategies.model_evaluation import ModelEvaluation
from fl_app.strategies.rejections import Rejections
from fl_app.task_checks import check_task
from fl_app.wiring import made

F1 = "+task.metrics.f1={_target_: torchmetrics.classification.MulticlassF1Score, average: macro}"
AUC = "+task.metrics.auc._target_=torchmetrics.classification.BinaryAUROC"
SMALL = ["population=iid", "population.clients=3", "strategy=fedavg", "strategy.participation=1",
         "rounds=6", "client.epochs=3", "client.learning_rate=0.2", "network=mcmahan_cnn",
         "network._target_=user_tasks.dense", "~data.test_share", "~data.standardise",
         "client.cohort=single"]  # fmt: skip
TWO = ["network._target_=user_tasks.two_numbers", "task.loss._target_=user_tasks.Gaussian"]
QUIET = ["records.figures=false", "tracking=none"]


def _given(data: str, *overrides: str) -> list[str]:
    return [*SMALL, f"data._target_=user_tasks.{data}", *overrides]


def _run(folder: Path, data: str, *overrides: str) -> tuple[dict[str, Any], dict[str, Any]]:
    run([*_given(data, *overrides), *QUIET], folder)
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    return json.loads((folder / "summary.json").read_text()), json.loads(lines[-1])


def test_regression_learns_a_line_and_has_no_accuracy(tmp_path: Path) -> None:
    summary, last = _run(tmp_path, "numbers", "task=regression", "client.learning_rate=0.05")
    assert summary["status"] == "completed"
    assert summary["accuracy"] == {"mean": None, "std": None, "before_clustering": None}
    assert last["accuracy"] is None
    assert summary["metrics"]["r2"]["mean"] > 0.95
    assert set(last["metrics"]["mae"]) == {"mean", "std", "clients"}
    assert set(last["metrics"]["mae"]["clients"]) == {"0", "1", "2"}
    page = (tmp_path / "report.html").read_text()
    assert "Metrics: mae 0." in page
    assert "Accuracy has not been measured" not in page
    assert "not its value on the test data of all clients together" in page


@pytest.mark.parametrize(
    ("data", "overrides"),
    [
        ("labels", ["task=multilabel", "task.class_weights=balanced"]),
        ("words", ["task=tokens", "network._target_=user_tasks.next_word", "client.epochs=20", F1,
                   "client/optimizer=adam", "client.learning_rate=0.05",
                   "client.optimizer.lr=0.01"]),
        ("rare", [F1, AUC]),
    ],
)  # fmt: skip
def test_a_task_is_learnt_and_its_metrics_recorded(
    data: str, overrides: list[str], tmp_path: Path
) -> None:
    summary, last = _run(tmp_path, data, *overrides)
    assert summary["clients"]["failed"] == summary["clients"]["rejected"] == 0
    assert summary["accuracy"]["mean"] > 0.85
    for name, spread in summary["metrics"].items():
        assert spread == {part: last["metrics"][name][part] for part in ("mean", "std")}
        assert 0.5 < spread["mean"] <= 1


def test_metrics_are_in_the_table_the_csv_and_tensorboard(tmp_path: Path) -> None:
    for seed in (0, 1):
        folder = tmp_path / str(seed)
        run([*_given("rare", F1, f"seed={seed}", "rounds=2"), "records.figures=false",
             "records.report=false"], folder)  # fmt: skip
    compare([str(tmp_path), f"to={tmp_path / 'both'}"])
    assert "f1, mean over clients" in (tmp_path / "both" / "compare.html").read_text()
    assert "metric.f1_mean" in (tmp_path / "both" / "compare.csv").read_text()
    assert any(b"metrics/f1/mean" in file.read_bytes()
               for file in (tmp_path / "0" / "tensorboard").iterdir())  # fmt: skip


def test_a_metric_that_remembers_other_clients_is_told(caplog: pytest.LogCaptureFixture) -> None:
    given = ["+task.metrics.own._target_=user_tasks.Kept"]
    load(_given("rare", *given), also=problems)
    (told,) = caplog.messages
    assert told.startswith("task.metrics.own gives another value for the same samples")


def test_a_metric_without_a_value_on_any_client_is_told(tmp_path: Path) -> None:
    given = "+task.metrics.own._target_=user_tasks.Nowhere"
    summary, _ = _run(tmp_path / "run", "rare", given, "rounds=1")
    assert summary["metrics"] == {}
    told = (tmp_path / "run" / "run.log").read_text()
    assert "task.metrics.own has no value on any client" in told


def test_a_metric_that_is_undefined_on_the_tried_samples_is_told_and_not_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    load(_given("rare", "+task.metrics.own._target_=user_tasks.OfMany"), also=problems)
    (told,) = caplog.messages
    assert told.startswith("task.metrics.own has no value on 16 samples that were tried: ValueErr")


def test_balanced_weights_find_a_rare_class(tmp_path: Path) -> None:
    recall = "+task.metrics.recall._target_=torchmetrics.classification.BinaryRecall"
    found = {}
    for weights in ("null", "balanced"):
        folder = tmp_path / weights
        summary, _ = _run(folder, "blurred", recall, f"task.class_weights={weights}", "rounds=2",
                          "client.epochs=1", "records.report=false")  # fmt: skip
        found[weights] = summary["metrics"]["recall"]["mean"]
    assert found["balanced"] > found["null"] + 0.1


@pytest.mark.parametrize(
    ("data", "overrides", "said"),
    [
        ("cut_off", [], "cut off"),
        ("signed", [], "-1"),
        ("labels", [], "task must be multilabel with data whose labels are of"),
        ("rare", ["task=multilabel"], "give task=classification, or other data"),
        ("words", ["task=tokens", "network._target_=user_tasks.next_word",
                   "task.loss.ignore_index=0"], "ignore_index must be -100"),
        ("numbers", ["task=regression", "task.class_weights=balanced"], "weights must be null"),
        ("numbers", ["task=regression", "records.central_test=true"], "central_test must be false"),
        ("numbers", ["task=regression", "attack=label_flip"], "attack must be one without labels"),
        ("numbers", ["task=regression", "privacy=sample_dp"], "plain SGD, which has no task.loss"),
        ("rare", ["task.loss._target_=torch.nn.NoLoss"],
         "task.loss._target_ must name a class that can be imported, got 'torch.nn.NoLoss': "),
        ("rare", ["+task.loss.reduction=none"], "task.loss must give one number"),
        ("rare", ["task.loss._target_=user_tasks.Weighted"], "loss must have no trainable param"),
        ("rare", ["task.loss._target_=torch.nn.NLLLoss"], "task.loss must have a smallest value, "),
        ("rare", ["task.loss._target_=user_tasks.Mistakes"], "task.loss must have a gradient"),
        ("rare", ["+task.metrics.f1._target_=torchmetrics.F2"],
         "task.metrics.f1._target_ must name a class .*; correct it, or remove it"),
        ("rare", [F1.replace("macro", "none")], "task.metrics.f1 must give one number"),
        ("rare", ["+task.metrics.own._target_=user_tasks.Both"],
         "task.metrics.own must give one number, got .* with <class 'dict'>.* a metric for each"),
        ("rare", ["+task.metrics.own._target_=user_tasks.Relabels"],
         "task.metrics.own must leave predictions and labels as they are, got .*; let it change"),
        ("rare", ["+task.metrics.f-1._target_=torchmetrics.F1Score"], "got 'f-1'; rename"),
        ("rare", ["network._target_=user_tasks.one_score"], r"scores \(16, 2\), .*shape \(16, 1\)"),
        ("rare", ["network._target_=user_tasks.pair"], "tensor of 16 rows, got tuple"),
        ("labels", ["task=multilabel", "network._target_=user_tasks.one_score"],
         r"task.loss must be .*answers \(16, 1\) and labels \(16, 3\)"),
        ("rare", ["+task.colour=red"], "task.colour is not a setting here"),
        ("rare", ["+task.loss.weight=[1,2]", "task.class_weights=balanced"],
         "task.loss.weight must not be given with task.class_weights=balanced"),
        ("rare", ["+task.loss.weight=[0,0]"], "task.loss.weight must be above 0 for some class"),
        ("rare", ["+task.loss.ignore_index=1"], "ignore_index must not be a class of a classific"),
        ("labels", ["task=multilabel", "network._target_=user_tasks.with_sigmoid",
                    "task.loss._target_=torch.nn.BCELoss"], "must take scores .*BCEWithLogitsLoss"),
        ("numbers", ["task=regression", "task.loss._target_=user_tasks.Shifts"],
         "must leave answers and labels as they are, got .*user_tasks.Shifts"),
        ("rare", ["task.loss._target_=user_tasks.Rounds"],
         "must leave answers and labels as they are, got .*user_tasks.Rounds"),
        ("words", ["task=tokens", "network._target_=user_tasks.next_word",
                   "task.loss._target_=user_tasks.OfAll"], r"argument \(~task.loss.ignore_index\)"),
        ("words", ["task=tokens", "network._target_=user_tasks.next_word",
                   "task.loss._target_=user_tasks.OfAll", "~task.loss.ignore_index"],
         r"with answers \(80, 12\) and labels \(80,\): ValueError: not enough"),
        ("words", ["task=tokens", "network._target_=user_tasks.first_word"],
         "scores .16, 5, 12., one for each"),
        ("words", ["task=tokens", "network._target_=user_tasks.classes_first"],
         r"the class last, got shape \(16, 12, 5\); return scores.flatten\(2\).transpose\(1, 2\)"),
        ("numbers", ["task=regression", "network._target_=user_tasks.two_numbers"],
         r"numbers of shape \(16,\) for .*, got shape \(16, 2\); .*, or name a loss of your own"),
        ("numbers", ["task=regression", *TWO], "task.metrics.mae must be .*; change .*~task.metri"),
        *(("rare", ["network._target_=user_tasks.ways", f"+network.way={way}"], said)
          for way, said in (
              ("pair", r"as in evaluation mode, with a tensor of shape \(16, 2\), got tuple"),
              ("detached", "must have answers with a gradient"),
              ("in place", "must train on some samples with .*, got RuntimeError: .*inplace"),
              ("writes", "must leave its inputs as they are"),
          )),
        ("words", ["task=tokens", "network._target_=user_tasks.sparse_words",
                   "client/optimizer=adam"], "got RuntimeError: Adam does not support sparse"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_a_configuration_error(
    data: str, overrides: list[str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        load(_given(data, *overrides), also=problems)


def test_a_client_checks_its_labels_too() -> None:
    with pytest.raises(ValueError, match="task must be regression with data"):
        wiring.shared_population(load(_given("numbers")))


@pytest.mark.parametrize("name", choices("task"))
def test_every_task_scores_as_worked_by_hand(name: str) -> None:
    # two samples; a module that returns its input as it is
    answers = {
        "classification": ([[2.0, 0.0], [0.0, 1.0]], [0, 0], 0.5),
        "tokens": (
            [[[2.0, 0.0], [0.0, 1.0]], [[5.0, 0.0], [3.0, 0.0]]], [[0, 0], [1, -100]], 1 / 3,
        ),
        "multilabel": ([[2.0, -1.0], [0.5, 1.0]], [[1, 0], [0, 1]], 0.75),
        "regression": ([[1.0], [3.0]], [2.0, 5.0], None),
    }  # fmt: skip
    given, wanted, accuracy = answers[name]
    task: Task = made(f"task={name}", metrics={})
    x, y = torch.tensor(given), torch.tensor(wanted)
    score = evaluate_task(torch.nn.Identity(), x, y, task, classes=2, precision="fp32")
    assert score.accuracy == (None if accuracy is None else pytest.approx(accuracy))
    expected = {
        "classification": np.mean([np.log(1 + np.exp(-2)), np.log(1 + np.e)]),
        "tokens": np.mean([np.log(1 + np.exp(-2)), np.log(1 + np.e), np.log(1 + np.exp(5))]),
        "multilabel": functional.binary_cross_entropy_with_logits(x, y.float()).item()
        if name == "multilabel" else 0.0,
        "regression": (1 + 4) / 2,
    }[name]  # fmt: skip
    assert score.loss == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize(
    ("data", "overrides"),
    [
        ("rare", ["task.loss._target_=user_tasks.Pairs"]),
        ("in_order", ["task.loss._target_=user_tasks.Ranks"]),
        ("rare", ["+task.loss.weight=[1,3.5]"]),
        ("rare", ["network._target_=user_tasks.log_likely",
                  "task.loss._target_=torch.nn.NLLLoss"]),
        ("words", ["task=tokens", "network._target_=user_tasks.sparse_words"]),
        ("numbers", ["task=regression", *TWO, "~task.metrics.mae", "~task.metrics.r2"]),
        ("labels", ["task=multilabel",
                    "+task.metrics.b._target_=torchmetrics.classification.BinaryF1Score"]),
    ],
)  # fmt: skip
def test_what_fits_is_accepted(data: str, overrides: list[str]) -> None:
    load(_given(data, *overrides), also=problems)


@pytest.mark.parametrize(
    "given", ["+task.loss.reduction=sum", "task.loss._target_=user_tasks.Summed"]
)
def test_a_loss_that_is_a_sum_is_told(given: str, caplog: pytest.LogCaptureFixture) -> None:
    load(_given("rare", given), also=problems)
    assert [each for each in caplog.messages if "is a sum over samples" in each]
    caplog.clear()
    load(_given("rare", "task.loss._target_=user_tasks.Pairs"), also=problems)
    assert not caplog.messages


@pytest.mark.parametrize(
    ("data", "overrides", "told"),
    [
        ("labels", ["task=multilabel", "network._target_=user_tasks.with_sigmoid"], "the sigmoid"),
        ("rare", ["network._target_=user_tasks.likely"], "the softmax"),
        ("numbers", ["task=regression", "task.loss._target_=torch.nn.PoissonNLLLoss"], "Softplus"),
        ("numbers", ["task=regression", "task.loss._target_=torch.nn.PoissonNLLLoss",
                     "+task.loss.log_input=false", "network._target_=user_tasks.with_sigmoid"], ""),
        ("labels", ["task=multilabel"], ""),
        ("rare", [], ""),
    ],
)  # fmt: skip
def test_answers_on_another_scale_than_the_task_has_are_told(
    data: str, overrides: list[str], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    load(_given(data, *overrides), also=problems)
    assert len(caplog.messages) == (told != "")
    assert told in caplog.text


def test_a_loss_of_ones_own_gets_other_answers_than_labels() -> None:
    loss = {"_target_": "user_tasks.Gaussian"}
    task: Regression = made("task=regression", metrics={}, loss=loss)
    answers, labels = torch.tensor([[1.0, 0.0], [2.0, np.log(4)]]), torch.tensor([3.0, 2.0])
    score = evaluate_task(torch.nn.Identity(), answers, labels, task, classes=1, precision="fp32")
    assert score.loss == pytest.approx((4 / 2 + np.log(4) / 2) / 2)  # variances 1 and 4


@pytest.mark.parametrize(
    ("task_of", "loss", "weights"),
    [
        ("classification", "CrossEntropyLoss", {"weight": [1, 3.5]}),
        ("multilabel", "BCEWithLogitsLoss", {"pos_weight": [2, 5]}),
    ],
)
def test_weights_of_classes_are_numbers_of_the_configuration(
    task_of: str, loss: str, weights: dict[str, list[float]]
) -> None:
    given: Task = made(f"task={task_of}", loss={"_target_": f"torch.nn.{loss}", **weights})
    answers, labels = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([[0, 1], [1, 0]])
    labels = labels[0] if task_of == "classification" else labels
    tensors: Any = {name: torch.tensor(value) for name, value in weights.items()}
    wanted = getattr(torch.nn, loss)(**tensors)
    expected = wanted(answers, labels if labels.dim() == 1 else labels.float())
    assert given.loss_of(None, 2)(answers, labels).item() == pytest.approx(expected.item())


def test_a_batch_of_padding_alone_teaches_nothing(tmp_path: Path) -> None:
    summary, last = _run(tmp_path, "all_padding", "task=tokens", "client.batch_size=2",
                         "network._target_=user_tasks.next_word", "rounds=2")  # fmt: skip
    assert summary["clients"]["rejected"] == 0
    assert np.isfinite(last["train_loss"])


@pytest.mark.parametrize(("client_id", "samples"), [(0, 0), (1, 20)])
def test_a_client_of_padding_alone_is_unscored_and_no_liar(client_id: int, samples: int) -> None:
    words = ["population=by_column", "task=tokens", "network._target_=user_tasks.next_word"]
    config = load(_given("one_padded", *words))
    client = FederatedClient(client_wiring.client(config, client_id))
    model = Parameters([to_bytes(wiring.initial_model(config)[1])], "numpy.ndarray")
    reply = client.evaluate(EvaluateIns(model, {"round": 1, "choose": True}))
    answer = read_evaluation(reply, EvaluationQuestion(client_id, 0, 60))
    assert (answer.samples, answer.accuracy is None) == (samples, samples == 0)
    measured = ModelEvaluation(Rejections(), has_accuracy=False, chose=lambda *_: None)._measured
    used = measured({client_id: answer})
    assert (client_id in used["test_loss"]) == (samples > 0)


def test_labels_that_do_not_count_have_no_score() -> None:
    labels = torch.full((3, 2), -100)
    task: Tokens = made("task=tokens", metrics={"f1": {"_target_": "no.metric_is_built"}})
    score = evaluate_task(
        torch.nn.Identity(), torch.zeros(3, 2, 2), labels, task, classes=2, precision="fp32"
    )
    assert (score.samples, score.accuracy, score.metrics) == (0, None, {})


def test_a_batch_of_labels_without_weight_teaches_nothing() -> None:
    task: Classification = made("task=classification", loss={
        "_target_": "torch.nn.CrossEntropyLoss", "weight": [0.0, 1.0]})  # fmt: skip
    answers = torch.zeros(3, 2, requires_grad=True)
    loss = task.loss_of(None, 2)(answers, torch.zeros(3, dtype=torch.long))
    loss.backward()
    assert answers.grad is not None
    assert loss.item() == 0.0 == float(answers.grad.abs().sum())


def test_a_loss_of_tokens_is_a_mean_over_all_tokens_not_over_batches() -> None:
    # 500 sequences of a batch with one token each, then one sequence with two
    answers = torch.zeros(501, 2, 2)
    answers[500] = torch.tensor([[0.0, 5.0], [0.0, 5.0]])
    labels = torch.zeros(501, 2, dtype=torch.long)
    labels[:500, 1] = -100
    task: Tokens = made("task=tokens", metrics={})
    score = evaluate_task(torch.nn.Identity(), answers, labels, task, classes=2, precision="fp32")
    expected = (500 * np.log(2) + 2 * np.log(1 + np.exp(5))) / 502
    assert score.loss == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("kind", ["classification", "tokens"])
def test_a_weighted_loss_is_a_mean_by_weights_however_labels_are_sorted(kind: str) -> None:
    draw = torch.Generator().manual_seed(0)
    labels = (torch.arange(700) >= 600).long()
    answers = torch.randn(700, 2, generator=draw)
    given = {"_target_": "torch.nn.CrossEntropyLoss", "weight": [1.0, 9.0]}
    expected = torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 9.0]))(answers, labels)
    if kind == "tokens":
        answers, labels = answers[:, None], labels[:, None]
    task: Task = made(f"task={kind}", loss=given, metrics={})
    score = evaluate_task(torch.nn.Identity(), answers, labels, task, classes=2, precision="fp32")
    assert score.loss == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize(
    "name",
    ["SpearmanCorrCoef", "R2Score", "RelativeSquaredError", "ExplainedVariance", "PearsonCorrCoef",
     "classification.BinaryEER", "classification.BinaryLogAUC", "classification.BinaryCohenKappa",
     "classification.MulticlassMatthewsCorrCoef"],
)  # fmt: skip
def test_a_metric_of_differences_is_undefined_for_equal_labels(name: str) -> None:
    metric = build_metric({"_target_": f"torchmetrics.{name}"}, 2)
    chances = torch.tensor([0.1, 0.7, 0.4])
    if "." in name:
        labels = torch.tensor([0, 0, 0])
        both = torch.stack([1 - chances, chances], 1)
        metric.update(both if "Multiclass" in name else chances, labels)
    else:
        labels = torch.ones(3)
        metric.update(chances, labels)
    assert value(metric, labels) is None  # torchmetrics says 0, 1 or 10 ** 8


@pytest.mark.parametrize("name", ["R2Score", "RelativeSquaredError", "ExplainedVariance"])
@pytest.mark.parametrize(("unit", "origin"), [(1e-9, 0.0), (1e9, 0.0), (1.0, 1e5)])
def test_a_share_of_variance_is_the_same_in_any_unit(name: str, unit: float, origin: float) -> None:
    # torchmetrics says an R2 of 1 for the smallest, and 0.99 in place of 0.94 around 1e5
    measure = {"found": {"_target_": f"torchmetrics.regression.{name}"}}
    task: Regression = made("task=regression", metrics=measure)
    labels = torch.arange(40.0)
    answers = labels + 4 * torch.sin(labels)
    found = [
        evaluate_task(torch.nn.Identity(), a * answers + b, a * labels + b, task, classes=1,
                      precision="fp32").metrics["found"]
        for a, b in ((1.0, 0.0), (unit, origin))
    ]  # fmt: skip
    assert 0.01 < found[0] < 0.99
    assert found[1] == pytest.approx(found[0], rel=1e-2)


@pytest.mark.parametrize(("deviation", "warned"), [(1e-9, True), (1.0, False), (1e9, True)])
def test_numbers_in_an_unusual_unit_are_told(
    deviation: float, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    rows = np.zeros((20, 3), np.float32)
    numbers = deviation * (-1.0) ** np.arange(20)
    data = Dataset("rows", 1, rows, numbers, rows, numbers, target="regression")
    check_task(made("task=regression", metrics={}), torch.nn.Linear(3, 1), data)
    assert ["of rows have a deviation of" in each for each in caplog.messages] == [True] * warned


@pytest.mark.parametrize(("mean", "warned"), [(0.0, False), (50.0, False), (2000.0, True)])
def test_numbers_far_from_0_are_told(
    mean: float, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    rows = np.zeros((20, 3), np.float32)
    numbers = mean + 2 * (-1.0) ** np.arange(20)  # such as years
    data = Dataset("rows", 1, rows, numbers, rows, numbers, target="regression")
    check_task(made("task=regression", metrics={}), torch.nn.Linear(3, 1), data)
    found = ["about 2000 with a deviation of 2, " in each for each in caplog.messages]
    assert found == [True] * warned


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    from sklearn.utils.class_weight import compute_class_weight

    task: Classification = made("task=classification", class_weights="balanced")
    labels = torch.tensor([0, 0, 0, 2])
    weights = task._weights(labels, 3)["weight"]
    expected = compute_class_weight("balanced", classes=np.array([0, 2]), y=labels.numpy())
    assert weights.tolist() == pytest.approx([expected[0], 0.0, expected[1]])
    tokens: Tokens = made("task=tokens", class_weights="balanced")
    padded = torch.tensor([[0, 0, -100], [0, 2, -100]])
    assert tokens._weights(padded, 3)["weight"].tolist() == pytest.approx(weights.tolist())


class BinaryR2Score:
    """A metric of a user's own, named as two of torchmetrics, that keeps what it gets."""

    def update(self, predicted: torch.Tensor, labels: torch.Tensor) -> None:
        """Keep a batch."""
        self.predicted, self.labels = predicted, labels

    def compute(self) -> float:
        """Return how many predictions there are, and the sum of the labels as a fraction."""
        return self.predicted.numel() + float(self.labels.sum()) / 100


def test_the_name_of_a_metric_of_ones_own_means_nothing() -> None:
    named = {"_target_": f"{__name__}.BinaryR2Score"}
    task: Classification = made("task=classification", metrics={"own": named})
    labels, answers = torch.tensor([1, 1, 1]), torch.zeros(3, 2)
    score = evaluate_task(torch.nn.Identity(), answers, labels, task, classes=2, precision="fp32")
    assert score.metrics["own"] == pytest.approx(6.03), "two per sample, and labels of one value"


def test_a_metric_derived_from_one_of_torchmetrics_is_one() -> None:
    from torchmetrics.classification import BinaryAccuracy

    class Mine(BinaryAccuracy):
        """Has a name of its own."""

    scores, labels = torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 1])
    assert for_metric(Mine(), scores, labels).tolist() == pytest.approx([0.1, 0.8])


def test_an_undefined_metric_has_no_value() -> None:
    recall = build_metric({"_target_": "torchmetrics.classification.BinaryRecall"}, 2)
    recall.update(torch.tensor([0.2, 0.3]), torch.tensor([0, 0]))
    assert value(recall, torch.tensor([0, 0])) is None  # torchmetrics says 0
    auc = build_metric({"_target_": "torchmetrics.classification.MulticlassAUROC"}, 3)
    labels = torch.tensor([0, 1, 1])
    auc.update(torch.eye(3), labels)
    assert value(auc, labels) is None  # torchmetrics says 0 for the class without samples
    label = torch.tensor([[1, 0], [0, 0], [1, 0]])
    guess = torch.tensor([[0.9, 0.1], [0.2, 0.2], [0.1, 0.8]])
    for name, expected in (("Recall", 0.5), ("F1Score", 2 / 3), ("AUROC", 0.5)):
        over = build_metric({"_target_": f"torchmetrics.classification.Multilabel{name}"}, 2)
        over.update(guess, label)
        assert value(over, label) == pytest.approx(expected)  # of the first label alone
    task: Regression = made("task=regression")
    one = evaluate_task(torch.nn.Identity(), torch.ones(1, 1), torch.ones(1), task, classes=1,
                        precision="fp32")  # fmt: skip
    assert set(one.metrics) == {"mae"}  # R2 needs two samples


def test_an_average_is_undefined_only_where_its_own_definition_is() -> None:
    """The third label is never 1, and the third class never occurs."""
    labels = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 1, 0]])
    guess = torch.tensor([[0.7, 0.6, 0.1], [0.4, 0.9, 0.2], [0.5, 0.3, 0.3], [0.3, 0.2, 0.8]])
    for name, expected in (
        ("AUROC", roc_auc_score(labels.ravel(), guess.ravel())),
        ("AveragePrecision", average_precision_score(labels.ravel(), guess.ravel())),
        ("RankingAveragePrecision", label_ranking_average_precision_score(labels, guess)),
    ):
        given = {} if "Ranking" in name else {"average": "micro"}
        found = build_metric(
            {"_target_": f"torchmetrics.classification.Multilabel{name}"} | given, 3
        )
        found.update(guess, labels)
        assert value(found, labels) == pytest.approx(expected), name
        found.reset()
        found.update(guess[2:3], labels[2:3])
        assert (value(found, labels[2:3]) is None) == ("Ranking" not in name)
    target = "torchmetrics.classification.MultilabelAUROC"
    weighted = build_metric({"_target_": target, "average": "weighted"}, 3)
    always = torch.cat([labels[:, :2], torch.ones(4, 1, dtype=torch.int64)], 1)
    weighted.update(guess, always)
    both = roc_auc_score(labels[:, :2], guess[:, :2], average="weighted")
    assert value(weighted, always) == pytest.approx(both), "the third label has no 0"
    classes = torch.tensor([0, 1, 1, 0])
    for name, score in (("AUROC", roc_auc_score), ("AveragePrecision", average_precision_score)):
        target = f"torchmetrics.classification.Multiclass{name}"
        found = build_metric({"_target_": target, "average": "weighted"}, 3)
        found.update(guess, classes)
        expected = score(torch.eye(3)[classes][:, :2], guess[:, :2], average="weighted")
        assert value(found, classes) == pytest.approx(expected)
        assert value(found, torch.zeros(4, dtype=torch.int64)) is None


def test_a_metric_of_a_user_that_divides_by_zero_has_no_value() -> None:
    for labels, expected in (([0, 0], None), ([0, 1], 1.0)):
        found = build_metric({"_target_": "user_tasks.Found"}, 2)
        found.update(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor(labels))
        assert value(found, torch.tensor(labels)) == expected
