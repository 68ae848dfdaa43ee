"""Reads the reply of a client that trained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flwr.common import Code, FitRes

from fl_app.ingress.fields import LONGEST_TRAINING_S, integer, number
from fl_app.ingress.rejection import RejectionError, shown
from fl_app.ingress.reports import read_reports
from fl_app.ingress.screen import update_norm
from fl_app.ingress.sent import Sent
from fl_app.ingress.wire import check_numbers, check_signs, read_model
from fl_app.learner_reports import LARGEST, Report, Told
from fl_app.types import Vector

OPTIONAL = ("fitting",)
"""Names of numbers that a client may send with its model."""


@dataclass(frozen=True)
class FitQuestion:
    """The asked client, the rows of its offered models, and the samples of its introduction.

    `reports` are what it is asked to tell beside its model, by name; `tells_loss`: whether it is
    asked for its training loss, which clients without privacy always tell; `least_loss`: the least
    that an honest client can have.
    """

    client_id: int
    rows: Sequence[int]
    samples: int
    reports: Mapping[str, Report] = field(default_factory=dict)
    tells_loss: bool = True
    least_loss: float = -LARGEST


@dataclass(frozen=True)
class FitAnswer:
    """A validated reply: `model` (d,) trained from the model of `row`, and the norm of its update.

    `samples` is at most the number in the introduction; `loss` None: not asked for; `metrics` are
    further numbers by name; `reports` are those of the question, numbers or vectors.
    """

    client_id: int
    row: int
    model: Vector
    norm: float
    samples: int
    loss: float | None
    seconds: float
    metrics: Mapping[str, float]
    reports: Mapping[str, Told]


def read_fit(reply: FitRes, question: FitQuestion, sent: Sent) -> FitAnswer:
    """Return the answer to `question`, which offered models of those that were `sent`.

    Raises RejectionError for the first field that breaks its rule.
    """
    check_status(reply.status.code)
    model = read_model(reply.parameters, sent.size)
    given = {"num_examples": reply.num_examples}
    metrics = reply.metrics
    if not isinstance(metrics, Mapping):
        raise RejectionError("metrics", "fields by name", shown(metrics))
    choice = integer(metrics, "choice", 0, len(question.rows) - 1) if "choice" in metrics else 0
    row = question.rows[choice]
    norm = update_norm(model, sent.models[row])
    check_numbers(model, sent.norm(row) + norm)
    check_signs(model, sent.models[row], sent.non_negative)
    return FitAnswer(
        client_id=question.client_id,
        row=row,
        model=model,
        norm=norm,
        samples=integer(given, "num_examples", 1, question.samples),
        loss=number(metrics, "loss", question.least_loss) if question.tells_loss else None,
        seconds=number(metrics, "train_s", 0, LONGEST_TRAINING_S) if "train_s" in metrics else 0.0,
        metrics={name: number(metrics, name) for name in OPTIONAL if name in metrics},
        reports=read_reports(metrics, question.reports),
    )


def check_status(code: object) -> None:
    """Raise RejectionError unless the status of the reply is OK."""
    if code is not Code.OK:
        raise RejectionError("status", "OK", shown(code))
