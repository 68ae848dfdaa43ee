"""Encoding of models for messages: one flat float32 array each."""

from flwr.common import Parameters

from fl_app.params import to_bytes
from fl_app.types import Vector


def encode(*vectors: Vector) -> Parameters:
    """Return models (d,) as Flower parameters."""
    return Parameters([to_bytes(vector) for vector in vectors], "numpy.ndarray")
