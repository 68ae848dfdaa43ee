"""Which scores of clients are received, and what is said of the others."""

from math import nan

import numpy as np
import pytest
from flwr.common import Code, EvaluateRes, Status

from fl_app.strategies.model_evaluation import ModelEvaluation
from fl_app.strategies.rejections import Rejections
from fl_app.testing import toy


@pytest.mark.parametrize(
    ("losses", "remark"),
    [
        ([nan, nan, nan, 0.5], "; 3 of 4 clients with this model say so, which is likely at fault"),
        ([nan, nan, 0.5, 0.5], ""),
        ([nan], ""),
    ],
)
def test_a_model_without_finite_losses_is_named_as_likely_at_fault(
    losses: list[float], remark: str
) -> None:
    rejections, known = Rejections(), toy.roster(len(losses))
    evaluation = ModelEvaluation(rejections, chose=lambda rows: None)
    offers = [(client, (0,)) for client in range(len(losses))]
    evaluation.ask(1, np.zeros((1, toy.SIZE), np.float32), offers, known, None)
    evaluation.receive(
        [
            (
                known.proxy(client),
                EvaluateRes(
                    Status(Code.OK, ""), loss, 5,
                    {"community": 0, "accuracy": 1.0, "choice_loss": 0.5},
                ),
            )
            for client, loss in enumerate(losses)
        ],
        [],
    )  # fmt: skip
    why = f"evaluation: loss must be a number in -1e+30..1e+30, got nan{remark}"
    assert rejections.by_client == {c: why for c, loss in enumerate(losses) if loss != 0.5}
