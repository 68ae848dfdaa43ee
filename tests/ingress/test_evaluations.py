"""Scores: of the client and community that were asked for, in their ranges, or rejected."""

import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from flwr.common import Code, EvaluateRes, Status
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import rules
from lies import lie_of_evaluation

from fl_app.ingress.evaluations import EvaluationQuestion, read_evaluation
from fl_app.ingress.rejection import RejectionError

QUESTION = EvaluationQuestion(client_id=4, community=2, samples=30, metrics=("f1", "auc"))


def _honest(**changes: object) -> EvaluateRes:
    metrics = {
        "accuracy": 0.5,
        "choice_loss": 1.0,
        "attack_success": 0.1,
        "table": b"\x01" + bytes(15),
        "metric.f1": 0.25,
    }
    return EvaluateRes(Status(Code.OK, ""), 0.5, 30, metrics | {"community": 2} | changes)


def test_a_lie_is_rejected_unless_it_keeps_every_rule() -> None:
    outcomes = set()

    @settings(max_examples=1000, deadline=None)
    @given(draw=st.randoms(use_true_random=False))
    def lie(draw: Random) -> None:
        _, told = lie_of_evaluation(draw, _honest())
        valid = rules.is_score(told, ("f1", "auc"))
        answer, _ = rules.answered(read_evaluation, told, QUESTION)
        assert (answer is not None) == valid
        outcomes.add(valid)
        if answer is not None:
            assert answer.samples == 0 or 0 <= answer.accuracy <= 1

    lie()
    assert outcomes == {True, False}


@pytest.mark.parametrize("claimed", [99, -5, 2**40, float("inf"), "2", None])
def test_client_and_community_are_those_of_the_question(claimed: object) -> None:
    answer = read_evaluation(_honest(community=claimed, client_id=claimed), QUESTION)
    assert (answer.client_id, answer.community) == (4, 2)


@pytest.mark.parametrize("accuracy", [7, -3, 1.0000001, float("nan"), True, "0.5"])
def test_an_accuracy_that_is_none_is_named(accuracy: object) -> None:
    with pytest.raises(RejectionError, match=r"accuracy must be a number in 0\.\.1, got"):
        read_evaluation(_honest(accuracy=accuracy), QUESTION)


@pytest.mark.parametrize("f1", [float("nan"), float("inf"), True, "0.5", 1e31, None])
def test_a_metric_that_is_no_finite_number_is_named(f1: object) -> None:
    with pytest.raises(RejectionError, match=r"metric\.f1 must be a number in .*, got"):
        read_evaluation(_honest(**{"metric.f1": f1}), QUESTION)


def test_a_metric_that_nobody_asked_for_is_named() -> None:
    with pytest.raises(RejectionError, match=r"'metric\.mae' must be a metric of the task, got 1"):
        read_evaluation(_honest(**{"metric.mae": 1.0}), QUESTION)


def test_a_metric_without_value_is_absent() -> None:
    assert read_evaluation(_honest(), QUESTION).metrics == {"f1": 0.25}


def test_a_client_without_test_samples_has_no_accuracy_and_no_metric() -> None:
    told = {"choice_loss": 1.0, "accuracy": 1.0, "metric.f1": 0.9}
    reply = EvaluateRes(Status(Code.OK, ""), 0.0, 0, told)
    answer = read_evaluation(reply, QUESTION)
    assert (answer.accuracy, answer.samples, answer.choice_loss) == (None, 0, 1.0)
    assert answer.metrics == {}


def test_a_task_without_accuracy_has_none() -> None:
    question = EvaluationQuestion(4, 2, 30, has_accuracy=False, metrics=("f1",))
    reply = _honest()
    del reply.metrics["accuracy"]
    assert read_evaluation(reply, question).accuracy is None
    with pytest.raises(RejectionError, match="accuracy must be present"):
        read_evaluation(reply, QUESTION)


def test_a_negative_loss_is_named_where_there_is_none() -> None:
    asked = replace(QUESTION, least_loss=0.0)
    assert read_evaluation(_honest(), asked).loss == 0.5
    with pytest.raises(
        RejectionError, match=r"choice_loss must be a number in 0\.\.1e\+30, got -1"
    ):
        read_evaluation(_honest(choice_loss=-1.0), asked)
    told = _honest()
    told.loss = -1.0
    assert read_evaluation(told, QUESTION).loss == -1
    with pytest.raises(RejectionError, match=r"loss must be a number in 0\.\.1e\+30, got -1"):
        read_evaluation(told, asked)
