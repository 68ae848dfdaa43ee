"""Reads the reply of a client that evaluated a model."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from flwr.common import EvaluateRes

from fl_app.ingress.fields import MOST_SAMPLES, integer, number
from fl_app.ingress.fits import check_status
from fl_app.ingress.rejection import RejectionError, shown
from fl_app.learner_reports import LARGEST


@dataclass(frozen=True)
class EvaluationQuestion:
    """The asked client, the community of the model, and the samples of its introduction.

    `metrics` are the names of the task's metrics; `has_accuracy`: whether it has an accuracy;
    `tells_choice_loss`: whether it tells a loss by which its model is chosen, as without privacy;
    `least_loss`: the least loss that an honest client can have.
    """

    client_id: int
    community: int
    samples: int
    metrics: Collection[str] = ()
    has_accuracy: bool = True
    tells_choice_loss: bool = True
    least_loss: float = -LARGEST


ATTACK_SUCCESS = "attack_success"
METRIC = "metric."
"""Prefix of the names of the task's metrics in a reply."""


@dataclass(frozen=True)
class EvaluationAnswer:
    """A validated score; client and community are those of the question.

    `accuracy` in [0, 1], None for a task without it or without test samples; `metrics` of the
    task by name, without those that are undefined on the client's samples; `choice_loss` is the
    loss for the choice of a model, that on test data where none is told; `attack_success` in
    [0, 1], if an attack is tested; `samples` is the number of evaluated samples and
    `introduced` that of training samples, both as the client reports them; `table` is the
    packed contingency table of a client with points.
    """

    client_id: int
    community: int
    accuracy: float | None
    choice_loss: float
    loss: float
    samples: int
    introduced: int
    attack_success: float | None
    table: bytes | None
    metrics: Mapping[str, float]


def read_evaluation(reply: EvaluateRes, question: EvaluationQuestion) -> EvaluationAnswer:
    """Return the answer to `question`; raises RejectionError for a field that breaks its rule."""
    check_status(reply.status.code)
    metrics = reply.metrics
    if not isinstance(metrics, Mapping):
        raise RejectionError("metrics", "fields by name", shown(metrics))
    given: Mapping[str, Any] = {"num_examples": reply.num_examples, "loss": reply.loss}
    table, loss = metrics.get("table"), number(given, "loss", question.least_loss)
    samples = integer(given, "num_examples", 0, MOST_SAMPLES)
    if table is not None and type(table) is not bytes:
        raise RejectionError("table", "bytes", shown(table))
    of_task = _of_task(metrics, question.metrics)
    return EvaluationAnswer(
        client_id=question.client_id,
        community=question.community,
        accuracy=number(metrics, "accuracy", 0, 1) if question.has_accuracy and samples else None,
        choice_loss=number(metrics, "choice_loss", question.least_loss)
        if question.tells_choice_loss
        else loss,
        loss=loss,
        samples=samples,
        introduced=question.samples,
        attack_success=number(metrics, ATTACK_SUCCESS, 0, 1) if ATTACK_SUCCESS in metrics else None,
        table=table,
        metrics=of_task if samples else {},
    )


def _of_task(given: Mapping[str, Any], names: Collection[str]) -> Mapping[str, float]:
    """Return the task's metrics in a reply; raises RejectionError for an unknown or wrong one."""
    unknown = sorted(
        name for name in given if name.startswith(METRIC) and name[len(METRIC) :] not in names
    )
    if unknown:
        raise RejectionError(shown(unknown[0]), "a metric of the task", shown(given[unknown[0]]))
    found = {name: f"{METRIC}{name}" for name in names}
    return {name: number(given, field) for name, field in found.items() if field in given}
