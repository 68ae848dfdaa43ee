"""What a client answers when it was asked to train: trusted field by field, or rejected."""

import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from flwr.common import Code, FitRes, Parameters, Status
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import rules
from lies import lie_of_fit

from fl_app.ingress.fits import FitQuestion, read_fit
from fl_app.ingress.rejection import RejectionError
from fl_app.ingress.sent import Sent
from fl_app.learner_reports import Report
from fl_app.params import to_bytes

SENT = Sent(np.repeat(np.arange(8, dtype=np.float32)[:, None], 6, axis=1))

REPORTS = {
    "norm": Report(length=None, low=0, high=10),
    "losses": Report(length=3, low=-1, high=1e20),
}
QUESTION = FitQuestion(client_id=4, rows=(7, 2), samples=30, reports=REPORTS)
ASKED = {name: (each.length, each.low, each.high) for name, each in REPORTS.items()}


def _honest() -> FitRes:
    model = Parameters([to_bytes(np.ones(6, np.float32))], "numpy.ndarray")
    metrics = {"loss": 0.5, "train_s": 0.1, "choice": 1, "fitting": 1.0}
    metrics |= {"report.norm": 2.5, "report.losses": np.array([0, 0.5, 7], "<f4").tobytes()}
    return FitRes(Status(Code.OK, ""), model, 30, metrics)


def test_an_honest_answer_is_that_of_its_question() -> None:
    answer = read_fit(_honest(), QUESTION, SENT)
    assert (answer.client_id, answer.row, answer.samples) == (4, 2, 30)
    assert (answer.loss, answer.seconds, dict(answer.metrics)) == (0.5, 0.1, {"fitting": 1.0})
    np.testing.assert_array_equal(answer.model, np.ones(6))
    assert answer.norm == pytest.approx(6**0.5)  # of ones beside row 2, which has twos
    assert answer.reports["norm"] == 2.5
    np.testing.assert_array_equal(answer.reports["losses"], [0, 0.5, 7])


def test_a_lie_is_rejected_unless_it_keeps_every_rule() -> None:
    outcomes = set()

    @settings(max_examples=1000, deadline=None)
    @given(draw=st.randoms(use_true_random=False))
    def lie(draw: Random) -> None:
        _, told = lie_of_fit(draw, _honest())
        valid = rules.is_fit(told, size=6, rows=2, samples=30, asked=ASKED)
        answer, _ = rules.answered(read_fit, told, QUESTION, SENT)
        assert (answer is not None) == valid
        outcomes.add(valid)
        if answer is not None:
            assert 1 <= answer.samples <= 30
            assert answer.row in QUESTION.rows
            assert 0 <= answer.reports["norm"] <= 10
            assert answer.reports["losses"].shape == (3,)
            assert ((answer.reports["losses"] >= -1) & (answer.reports["losses"] <= 1e20)).all()

    lie()
    assert outcomes == {True, False}


@pytest.mark.parametrize(
    ("samples", "valid"), [(0, False), (1, True), (30, True), (31, False), (30.0, False)]
)
def test_samples_are_at_most_those_of_the_introduction(samples: object, valid: bool) -> None:
    told = _honest()
    told.num_examples = samples
    if valid:
        assert read_fit(told, QUESTION, SENT).samples == samples
        return
    with pytest.raises(RejectionError, match=r"num_examples must be an integer in 1\.\.30, got"):
        read_fit(told, QUESTION, SENT)


@pytest.mark.parametrize("start", [0.0, 2.0, -3.0])
def test_a_negative_variance_is_named_unless_it_was_received(start: float) -> None:
    told, model = _honest(), np.array([-1, -1, 1, 0, -12, 1], np.float32)
    told.parameters = Parameters([to_bytes(model)], "numpy.ndarray")
    sent = Sent(np.full((8, 6), start, np.float32), {"norm.running_var": slice(2, 6)})
    if start < 0:
        assert read_fit(told, QUESTION, sent).model.tolist() == model.tolist()
        return
    rule = r"^model\.norm\.running_var must be at least 0, got -12\.0$"
    with pytest.raises(RejectionError, match=rule):
        read_fit(told, QUESTION, sent)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 2e18, 3e38])
@pytest.mark.parametrize("start", [0.0, 1e17, 3e38])
def test_no_start_hides_numbers_that_are_not_finite_or_too_large(
    wrong: float, start: float
) -> None:
    told = _honest()
    model = np.array([start] * 5 + [wrong], np.float32)
    told.parameters = Parameters([to_bytes(model)], "numpy.ndarray")
    with pytest.raises(RejectionError, match="finite, its norm below 1e"):
        read_fit(told, QUESTION, Sent(np.full((8, 6), start, np.float32)))


@pytest.mark.parametrize(("least", "valid"), [(0.0, False), (-1e30, True)])
def test_a_negative_loss_is_named_where_there_is_none(least: float, valid: bool) -> None:
    told = _honest()
    told.metrics["loss"] = -5.0
    asked = replace(QUESTION, least_loss=least)
    if valid:
        assert read_fit(told, asked, SENT).loss == -5
    else:
        with pytest.raises(RejectionError, match=r"loss must be a number in 0\.\.1e\+30, got -5"):
            read_fit(told, asked, SENT)
    told.metrics["loss"] = -0.0
    assert read_fit(told, asked, SENT).loss == 0
