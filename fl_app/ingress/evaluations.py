"""Reads the reply of a client that evaluated a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr.common import EvaluateRes

from fl_app.ingress.fields import MOST_SAMPLES, integer, number
from fl_app.ingress.fits import check_status
from fl_app.ingress.rejection import RejectionError, shown


@dataclass(frozen=True)
class EvaluationQuestion:
    """The asked client, the community of the model, and the samples of its introduction."""

    client_id: int
    community: int
    samples: int


ATTACK_SUCCESS = "attack_success"


@dataclass(frozen=True)
class EvaluationAnswer:
    """A validated score; client and community are those of the question.

    `accuracy` in [0, 1]; `choice_loss` is the loss for the choice of a model; `attack_success`
    in [0, 1], if an attack is tested; `samples` is the number of evaluated
    samples and `introduced` that of training samples, both as the client reports them; `table` is
    the packed contingency table of a client with points.
    """

    client_id: int
    community: int
    accuracy: float
    choice_loss: float
    loss: float
    samples: int
    introduced: int
    attack_success: float | None
    table: bytes | None


def read_evaluation(reply: EvaluateRes, question: EvaluationQuestion) -> EvaluationAnswer:
    """Return the answer to `question`; raises RejectionError for a field that breaks its rule."""
    check_status(reply.status.code)
    metrics = reply.metrics
    if not isinstance(metrics, Mapping):
        raise RejectionError("metrics", "fields by name", shown(metrics))
    given: Mapping[str, Any] = {"num_examples": reply.num_examples, "loss": reply.loss}
    table = metrics.get("table")
    if table is not None and type(table) is not bytes:
        raise RejectionError("table", "bytes", shown(table))
    return EvaluationAnswer(
        client_id=question.client_id,
        community=question.community,
        accuracy=number(metrics, "accuracy", 0, 1),
        choice_loss=number(metrics, "choice_loss"),
        loss=number(given, "loss"),
        samples=integer(given, "num_examples", 0, MOST_SAMPLES),
        introduced=question.samples,
        attack_success=number(metrics, ATTACK_SUCCESS, 0, 1) if ATTACK_SUCCESS in metrics else None,
        table=table,
    )
