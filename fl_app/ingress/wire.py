"""Reads a model from bytes, which must have the one form that its layout allows."""

import numpy as np
from flwr.common import Parameters

from fl_app.ingress.rejection import RejectionError, shown
from fl_app.params import from_bytes, square_norm, wire_size
from fl_app.types import Vector

LARGEST = 1e36
"""Limit of a model's squared norm, so that squares of differences are below 3e38 (float32)."""


def read_model(parameters: Parameters, size: int) -> Vector:
    """Return the read-only model (d,) with d = `size`.

    Raises RejectionError for bytes of another length or with another header, and for a model that
    is not finite or whose norm is so large that distances would overflow.
    """
    tensors = parameters.tensors
    if len(tensors) != 1:
        raise RejectionError("model", "one flat array", f"{len(tensors)} arrays")
    data, form = tensors[0], f"a flat float32 vector of {size} parameters"
    if type(data) is not bytes or len(data) != wire_size(size):
        raise RejectionError("model", f"{form} in {wire_size(size)} bytes", shown(data))
    try:
        model = from_bytes(data)
    except ValueError as error:
        raise RejectionError("model", form, f"other bytes at its start: {shown(error)}") from error
    if not square_norm(model) < LARGEST:  # false for NaN too
        raise RejectionError("model", f"finite, its norm below {LARGEST**0.5:g}", _fault(model))
    return model


def _fault(model: Vector) -> str:
    bad = int(np.count_nonzero(~np.isfinite(model)))
    if bad:
        return f"a model of which {bad} parameters are not finite"
    return f"norm {np.linalg.norm(model.astype(np.float64)):.3g}"
