"""The least loss that a client can have: replies with less are rejected."""

from pathlib import Path

import pytest

from fl_app.client.task import Task
from fl_app.config import load
from fl_app.learner_reports import HELD_OUT, LARGEST, Report, of_losses
from fl_app.server_wiring import strategy
from fl_app.wiring import made


@pytest.mark.parametrize(
    ("words", "least"),
    [
        ([], 0.0),
        (["strategy=ifca"], 0.0),
        (["privacy=sample_dp"], -LARGEST),  # its losses have noise
        (["client.learner=least_learner.Own"], -LARGEST),
        (["task._target_=least_learner.Signs"], -LARGEST),
        (["strategy=fedem", "network=mixture"], -LARGEST),
        (["strategy=kmeans", "network=centroids"], -LARGEST),
    ],
)
def test_a_method_knows_of_its_clients_losses_what_is_sure(
    words: list[str], least: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = (
        "from fl_app.client.sgd import SgdLearner\n"
        "from fl_app.client.task import Classification\n"
        "class Own(SgdLearner): pass\n"
        "class Signs(Classification): pass\n"
    )
    (tmp_path / "least_learner.py").write_text(own)
    monkeypatch.syspath_prepend(tmp_path)
    assert strategy(load(words)).context.least_loss == least


@pytest.mark.parametrize(
    ("task", "loss", "least"),
    [
        ("classification", {"_target_": "torch.nn.CrossEntropyLoss", "weight": [1, 2]}, 0.0),
        ("classification", {"_target_": "torch.nn.CrossEntropyLoss", "weight": [1, -2]}, None),
        ("classification", {"_target_": "torch.nn.NLLLoss"}, None),
        ("multilabel", {"_target_": "torch.nn.BCEWithLogitsLoss"}, 0.0),
        ("regression", {"_target_": "torch.nn.MSELoss"}, 0.0),
        ("regression", {"_target_": "torch.nn.GaussianNLLLoss"}, None),
        ("regression", {"_target_": "torch.nn.BCEWithLogitsLoss"}, None),  # of labels above 1
        ("tokens", {"_target_": "mine.Loss"}, None),
    ],
)
def test_only_known_losses_are_never_negative(
    task: str, loss: dict[str, object], least: float | None
) -> None:
    built: Task = made(f"task={task}", loss=loss, metrics={})
    assert built.least_loss == least


def test_losses_of_whole_models_are_bounded_and_other_reports_are_not() -> None:
    wide = Report(length=2, low=-1, high=1)
    found = of_losses({HELD_OUT: wide, "subspace": wide}, 0.0)
    assert (found[HELD_OUT].low, found["subspace"].low) == (0, -1)
    assert of_losses({HELD_OUT: wide}, -LARGEST)[HELD_OUT].low == -1
