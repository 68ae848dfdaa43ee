"""Reads the introduction of a node."""

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from fl_app.ingress.fields import MOST_SAMPLES, integer
from fl_app.ingress.rejection import RejectionError, shown

MOST_GROUPS = 2**31
_VERSION = re.compile(r"\d{1,4}\.\d{1,4}[\w.+-]{0,30}", re.ASCII)


class BeyondError(RejectionError):
    """A node introduces itself as a client beyond those of the run."""


@dataclass(frozen=True)
class Identity:
    """The introduction of a client: id, planted group (-1: unknown) and training samples.

    `malicious`: the run plants its attack in this client, which only metrics use. `flower` is the
    version of Flower on its machine; "": unknown.
    """

    client_id: int
    group: int
    samples: int
    malicious: bool = False
    flower: str = ""


def read_introduction(
    properties: Mapping[str, Any],
    clients: int,
    expected: int | None = None,
    planted: Set[int] = frozenset(),
) -> Identity:
    """Return the identity of a node in a run of `clients`; raises RejectionError.

    It is a BeyondError if the run has too few clients for this one, and `expected` is no other.
    `expected` is its client id, if the engine knows it; `planted` are the clients in which the run
    plants its attack.
    """
    if not isinstance(properties, Mapping):
        raise RejectionError("properties", "fields by name", shown(properties))
    told = properties.get("client_id")
    if type(told) is int and told >= clients and expected in (None, told):
        raise BeyondError("client_id", f"an integer in 0..{clients - 1}", shown(told))
    client_id = integer(properties, "client_id", 0, clients - 1)
    if expected is not None and client_id != expected:
        raise RejectionError("client_id", f"{expected}, the client of this node", shown(client_id))
    malicious = properties.get("malicious", False)
    if type(malicious) is not bool:
        raise RejectionError("malicious", "true or false", shown(malicious))
    if malicious and client_id not in planted:
        raise RejectionError("malicious", "false for a client without a planted attack", "true")
    flower = properties.get("flower", "")
    if flower != "" and (type(flower) is not str or _VERSION.fullmatch(flower) is None):
        raise RejectionError("flower", "a version such as 1.39.0", shown(flower))
    return Identity(
        client_id=client_id,
        group=integer(properties, "group", -1, MOST_GROUPS),
        samples=integer(properties, "samples", 0, MOST_SAMPLES),
        malicious=malicious,
        flower=flower,
    )
