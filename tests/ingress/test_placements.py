"""Placements: one loss for each model that a newcomer was asked about, or rejected."""

import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from flwr.common import Code, EvaluateRes, Status
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import rules
from hostile import SENDABLE
from lies import lie_of_evaluation

from fl_app.ingress.placements import LOSSES, PlacementQuestion, read_placement

QUESTION = PlacementQuestion(client_id=4, models=3)
LARGEST = 1e30


def _honest(**changes: object) -> EvaluateRes:
    told = np.array([0.5, 0.25, 2.0], "<f4").tobytes()
    return EvaluateRes(Status(Code.OK, ""), 0.0, 30, {LOSSES: told} | changes)


def test_an_honest_answer_has_the_loss_of_each_model() -> None:
    answer = read_placement(_honest(), QUESTION)
    assert answer.client_id == 4
    assert answer.losses.tolist() == [0.5, 0.25, 2.0]


def test_a_lie_is_rejected_or_has_finite_losses_of_the_asked_client() -> None:
    outcomes = set()

    @settings(max_examples=500, deadline=None)
    @given(draw=st.randoms(use_true_random=False))
    def lie(draw: Random) -> None:
        change = draw.random() < 0.5
        changed = {LOSSES: draw.choice(list(SENDABLE.values()))(draw)} if change else {}
        _, told = lie_of_evaluation(draw, _honest(**changed))
        answer, _ = rules.answered(read_placement, told, QUESTION)
        outcomes.add(answer is not None)
        if answer is not None:
            assert answer.client_id == 4
            assert answer.losses.shape == (3,)
            assert np.isfinite(answer.losses).all()

    lie()
    assert outcomes == {True, False}


@settings(max_examples=500, deadline=None)
@given(draw=st.randoms(use_true_random=False))
def test_mutated_bytes_are_the_losses_that_they_encode_or_rejected(draw: Random) -> None:
    data = bytearray(_honest().metrics[LOSSES])  # type: ignore[arg-type]
    for _ in range(draw.randint(1, 4)):
        data[draw.randrange(len(data))] = draw.randrange(256)
    if draw.random() < 0.3:
        data = data[: draw.randrange(len(data))]
    numbers = np.frombuffer(bytes(data[: len(data) // 4 * 4]), "<f4")
    valid = len(data) == 12 and bool((np.abs(numbers) <= np.float32(LARGEST)).all())
    answer, _ = rules.answered(read_placement, _honest(**{LOSSES: bytes(data)}), QUESTION)
    assert (answer is not None) == valid


@pytest.mark.parametrize(("least", "taken"), [(0.0, False), (-LARGEST, True)])
def test_a_loss_below_the_least_is_rejected(least: float, taken: bool) -> None:
    reply = _honest(**{LOSSES: np.array([0.5, -0.25, 0.0], "<f4").tobytes()})
    answer, _ = rules.answered(read_placement, reply, replace(QUESTION, least_loss=least))
    assert (answer is not None) == taken


@pytest.mark.parametrize("missing", ["losses", "metrics"])
def test_a_reply_without_losses_is_rejected(missing: str) -> None:
    reply = _honest()
    if missing == "metrics":
        reply.metrics = None  # type: ignore[assignment]
    else:
        del reply.metrics[LOSSES]
    answer, _ = rules.answered(read_placement, reply, QUESTION)
    assert answer is None
