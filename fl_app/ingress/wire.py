"""Reads a model from bytes, which must have the one form that its layout allows."""

from collections.abc import Mapping
from math import inf

import numpy as np
from flwr.common import Parameters

from fl_app.ingress.rejection import RejectionError, shown
from fl_app.params import from_bytes, square_norm, wire_size
from fl_app.types import Vector

LARGEST = 1e36
"""Limit of a model's squared norm, so that squares of differences are below 3e38 (float32)."""
SAFE = 0.9 * LARGEST**0.5
"""A norm that is below the limit even if it was computed with rounding."""

BOUNDED = "finite, its norm below"
"""Begins the rule that the model of a client breaks whose training diverges."""


def read_model(parameters: Parameters, size: int) -> Vector:
    """Return the read-only model (d,) with d = `size`; `check_numbers` must follow.

    Raises RejectionError for bytes of another length or with another header.
    """
    tensors = parameters.tensors
    if len(tensors) != 1:
        raise RejectionError("model", "one flat array", f"{len(tensors)} arrays")
    data, form = tensors[0], f"a flat float32 vector of {size} parameters"
    if type(data) is not bytes or len(data) != wire_size(size):
        raise RejectionError("model", f"{form} in {wire_size(size)} bytes", shown(data))
    try:
        return from_bytes(data)
    except ValueError as error:
        raise RejectionError("model", form, f"other bytes at its start: {shown(error)}") from error


def check_numbers(model: Vector, norm: float = inf) -> None:
    """Raise RejectionError unless a model (d,) is finite and distances to it do not overflow.

    `norm` is a bound of its norm that is already known, infinite or NaN if there is none: with one
    below SAFE the numbers need not be read again.
    """
    if norm < SAFE or square_norm(model) < LARGEST:
        return
    raise RejectionError("model", f"{BOUNDED} {LARGEST**0.5:g}", _fault(model))


def check_signs(model: Vector, start: Vector, parts: Mapping[str, slice]) -> None:
    """Raise RejectionError for a negative number in `parts` of a model (d,), such as variances.

    One that its `start` (d,) already had is not the fault of the client.
    """
    for name, part in parts.items():
        wrong = model[part][(model[part] < 0) & (start[part] >= 0)]
        if len(wrong):
            raise RejectionError(f"model.{name}", "at least 0", shown(float(wrong.min())))


def _fault(model: Vector) -> str:
    bad = int(np.count_nonzero(~np.isfinite(model)))
    if bad:
        return f"a model of which {bad} parameters are not finite"
    return f"norm {np.linalg.norm(model.astype(np.float64)):.3g}"
