"""Replies of clients: decoded, and what is wrong with a bad one, named."""

from dataclasses import dataclass
from math import isfinite

import numpy as np
from flwr.common import EvaluateRes, FitRes, Parameters

from fl_app.params import from_bytes, square_norm, to_bytes
from fl_app.types import Labels, Vector, Vectors, Weights

LARGEST = 1e36
"""Squared norm that a model must stay below: float32 ends at 3e38, and differences square too."""


@dataclass(frozen=True)
class Replies:
    """The valid replies of a round, sorted by client id.

    `models` (n, d) as returned, valid until the next round; `starts` (n,) row of the model
    each client received; `samples` (n,) training samples; `losses` (n,) mean training loss.
    """

    client_ids: Labels
    models: Vectors
    starts: Labels
    samples: Weights
    losses: Weights

    @property
    def loss(self) -> float:
        """Training loss over all samples of the cohort."""
        return float(np.average(self.losses, weights=self.samples))


class TooFewRepliesError(RuntimeError):
    """A round brought fewer valid replies than `engine.min_success`."""


class ClientFailure(Exception):  # noqa: N818  (Flower's name for it: results and failures)
    """A client that raised or did not answer, with its id."""

    def __init__(self, client_id: int, reason: str) -> None:
        super().__init__(f"client {client_id}: {reason}")
        self.client_id = client_id
        self.reason = reason


def encode(*vectors: Vector) -> Parameters:
    """Return models as Flower parameters: one flat float32 array each."""
    return Parameters([to_bytes(vector) for vector in vectors], "numpy.ndarray")


def decode(parameters: Parameters) -> Vector:
    """Return the model in Flower parameters; raises ValueError when it is not one vector."""
    if len(parameters.tensors) != 1:
        raise ValueError(f"expected one flat array, got {len(parameters.tensors)} arrays")
    return from_bytes(parameters.tensors[0])


def decode_fit(reply: FitRes, size: int) -> tuple[Vector, int, float]:
    """Return model, samples and loss of a reply; raises ValueError with what is wrong."""
    model = decode(reply.parameters)
    if model.shape != (size,):
        raise ValueError(f"expected {size} parameters, got {model.shape[0]}")
    if not square_norm(model) < LARGEST:  # one pass for what is nearly always sound
        bad = np.count_nonzero(~np.isfinite(model))
        if bad:
            raise ValueError(f"{bad} parameters are not finite")
        raise ValueError(f"norm above {LARGEST**0.5:.0e}: lengths and cosines would overflow")
    if "loss" not in reply.metrics:
        raise ValueError("field 'loss' is missing from the metrics")
    loss = float(reply.metrics["loss"])
    if not isfinite(loss):
        raise ValueError(f"training loss is {loss}")
    if reply.num_examples < 1:
        raise ValueError(f"num_examples must be positive, got {reply.num_examples}")
    return model, reply.num_examples, loss


def decode_choice(reply: FitRes, offered: int) -> int:
    """Return which of the models it was offered a client trained; raises ValueError."""
    choice = int(reply.metrics.get("choice", 0))
    if not 0 <= choice < offered:
        raise ValueError(f"choice must be in 0..{offered - 1}, got {choice}")
    return choice


def decode_score(reply: EvaluateRes) -> tuple[int, float, int, float] | None:
    """Return (client id, loss to choose by, community, accuracy), or None if malformed."""
    try:
        metrics = reply.metrics
        numbers = float(metrics["choice_loss"]), float(metrics["accuracy"])
        client_id, community = int(metrics["client_id"]), int(metrics["community"])
    except (KeyError, TypeError, ValueError):
        return None
    if not all(map(isfinite, numbers)):
        return None
    return client_id, numbers[0], community, numbers[1]
