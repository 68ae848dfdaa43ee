"""Scores: of the client and community that were asked for, in their ranges, or rejected."""

import sys
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

QUESTION = EvaluationQuestion(client_id=4, community=2, samples=30)


def _honest(**changes: object) -> EvaluateRes:
    metrics = {
        "accuracy": 0.5,
        "choice_loss": 1.0,
        "attack_success": 0.1,
        "table": b"\x01" + bytes(15),
    }
    return EvaluateRes(Status(Code.OK, ""), 0.5, 30, metrics | {"community": 2} | changes)


@settings(max_examples=1000, deadline=None)
@given(draw=st.randoms(use_true_random=False))
def test_a_lie_is_rejected_unless_it_keeps_every_rule(draw: Random) -> None:
    _, told = lie_of_evaluation(draw, _honest())
    valid = rules.is_score(told)
    answer, _ = rules.answered(read_evaluation, told, QUESTION)
    assert (answer is not None) == valid
    if not valid:
        return
    assert 0 <= answer.accuracy <= 1


@pytest.mark.parametrize("claimed", [99, -5, 2**40, float("inf"), "2", None])
def test_client_and_community_are_those_of_the_question(claimed: object) -> None:
    answer = read_evaluation(_honest(community=claimed, client_id=claimed), QUESTION)
    assert (answer.client_id, answer.community) == (4, 2)


@pytest.mark.parametrize("accuracy", [7, -3, 1.0000001, float("nan"), True, "0.5"])
def test_an_accuracy_that_is_none_is_named(accuracy: object) -> None:
    with pytest.raises(RejectionError, match=r"accuracy must be a number in 0\.\.1, got"):
        read_evaluation(_honest(accuracy=accuracy), QUESTION)
