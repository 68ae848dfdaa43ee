"""Reads the reply of a newcomer that was asked which of the communities' models suits it."""

from collections.abc import Mapping
from dataclasses import dataclass

from flwr.common import EvaluateRes

from fl_app.ingress.fields import vector
from fl_app.ingress.fits import check_status
from fl_app.ingress.rejection import RejectionError, shown
from fl_app.learner_reports import LARGEST
from fl_app.types import Vector

PLACE = "place"
"""Marks the question in its settings: all models come at once, and one answer is for all."""
LOSSES = "losses"
"""The field of the reply."""


@dataclass(frozen=True)
class PlacementQuestion:
    """The asked client, the number of models that it got, and the least loss of an honest one."""

    client_id: int
    models: int
    least_loss: float = -LARGEST


@dataclass(frozen=True)
class PlacementAnswer:
    """The training loss (k,) of a client for each of the models; it holds that of the least."""

    client_id: int
    losses: Vector


def read_placement(reply: EvaluateRes, question: PlacementQuestion) -> PlacementAnswer:
    """Return the answer to `question`; raises RejectionError for a field that breaks its rule."""
    check_status(reply.status.code)
    if not isinstance(reply.metrics, Mapping):
        raise RejectionError("metrics", "fields by name", shown(reply.metrics))
    losses = vector(reply.metrics, LOSSES, question.models, question.least_loss, LARGEST)
    return PlacementAnswer(question.client_id, losses)
