"""Reads the introduction of a node."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fl_app.ingress.fields import MOST_SAMPLES, integer
from fl_app.ingress.rejection import RejectionError, shown

MOST_GROUPS = 2**31


@dataclass(frozen=True)
class Identity:
    """The introduction of a client: id, planted group (-1: unknown) and training samples.

    Only simulations set `malicious`, and only metrics use it.
    """

    client_id: int
    group: int
    samples: int
    malicious: bool = False


def read_introduction(
    properties: Mapping[str, Any], clients: int, expected: int | None = None
) -> Identity:
    """Return the identity of a node in a federation of `clients`; raises RejectionError.

    `expected` is its client id, if the engine knows it.
    """
    if not isinstance(properties, Mapping):
        raise RejectionError("properties", "fields by name", shown(properties))
    low, high = (0, clients - 1) if expected is None else (expected, expected)
    malicious = properties.get("malicious", False)
    if type(malicious) is not bool:
        raise RejectionError("malicious", "true or false", shown(malicious))
    return Identity(
        client_id=integer(properties, "client_id", low, high),
        group=integer(properties, "group", -1, MOST_GROUPS),
        samples=integer(properties, "samples", 0, MOST_SAMPLES),
        malicious=malicious,
    )
