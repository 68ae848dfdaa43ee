"""Reads what a client sends in a secure sum: all that can be checked of a reply under masks.

The content of a masked vector is hidden, so only its length is checked here, and the sums of all
clients later: see `masking.slots`.
"""

from collections.abc import Sequence

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from fl_app.ingress.extent import check_extent
from fl_app.ingress.rejection import RejectionError, shown
from fl_app.masking.keys import KEY_SHARE_BYTES, PUBLIC_BYTES, SEED_SHARE_BYTES, check_public
from fl_app.masking.stages import (
    BOXES,
    CIPHER_KEYS,
    IDS,
    KEYS,
    MASK_KEYS,
    MASKED,
    RECORD,
    REFUSED,
    SEEDS,
    SKETCH,
)
from fl_app.types import Integers, Sketch

BOX_BYTES = 268
"""Length of the encrypted shares of a seed and a key."""


def read_public(content: RecordDict, taken: set[bytes]) -> tuple[bytes, bytes]:
    """Return a client's public keys for masks and for ciphers, and add them to those `taken`.

    Raises RejectionError, also for a key that is taken: with it no client would share secrets.
    """
    record = _record(content)
    keys = tuple(_exactly(record, name, PUBLIC_BYTES) for name in (MASK_KEYS, CIPHER_KEYS))
    for key in keys:
        try:
            check_public(key)
        except ValueError as error:
            raise RejectionError("a public key", "a point of the curve", shown(key)) from error
    if len(taken.union(keys)) < len(taken) + len(keys):
        raise RejectionError("a public key", "one that nobody sent before", "one again")
    taken.update(keys)
    return keys[0], keys[1]


def read_boxes(content: RecordDict, neighbours: Sequence[int]) -> dict[int, bytes]:
    """Return a client's encrypted shares by its neighbours; raises RejectionError."""
    record = _record(content)
    if record.get(IDS) != sorted(neighbours):
        raise RejectionError(IDS, "the neighbours in order", shown(record.get(IDS)))
    boxes = _all_of(record, BOXES, len(neighbours), BOX_BYTES)
    return dict(zip(sorted(neighbours), boxes, strict=True))


def read_vector(
    content: RecordDict, length: int, neighbours: Sequence[int]
) -> tuple[Integers, list[int]]:
    """Return a masked vector (length,), and the neighbours whose shares were refused.

    Raises RejectionError for a vector of another length and for others than neighbours.
    """
    record = _record(content)
    vector = np.frombuffer(_exactly(record, MASKED, 4 * length), "<u4")
    refused = record.get(REFUSED)
    if not isinstance(refused, list) or len(refused) > len(neighbours):
        raise RejectionError(REFUSED, "neighbours, each once", shown(refused))
    found = [each for each in refused if type(each) is int and each in neighbours]
    if not len(refused) == len(found) == len({*found}):
        raise RejectionError(REFUSED, "neighbours, each once", shown(refused))
    return vector, found


def read_revealed(
    content: RecordDict, survivors: int, dropped: int
) -> tuple[list[bytes], list[bytes]]:
    """Return shares of seeds and of keys, as many as were asked for; raises RejectionError."""
    record = _record(content)
    seeds = _all_of(record, SEEDS, survivors, SEED_SHARE_BYTES)
    return seeds, _all_of(record, KEYS, dropped, KEY_SHARE_BYTES)


def read_sketch(content: RecordDict, dimension: int, largest: float, longest: float) -> Sketch:
    """Return a sketch (q,) of numbers up to `largest` with a norm up to `longest`.

    Raises RejectionError for another one.
    """
    found = np.frombuffer(_exactly(_record(content), SKETCH, 4 * dimension), "<f4")
    if not (np.abs(found) <= largest).all():  # false for NaN
        rule = f"numbers of at most {largest:.3g}"
        raise RejectionError(SKETCH, rule, shown(float(np.abs(found).max())))
    length = float(np.linalg.norm(found.astype(np.float64)))
    if length > longest:
        raise RejectionError(SKETCH, f"of a norm of at most {longest:.3g}", f"{length:.3g}")
    return found.astype(np.float32)


def _record(content: RecordDict) -> ConfigRecord:
    check_extent(content, arrays=None)
    found = content.config_records.get(RECORD)
    if found is None or len(content) != 1:
        raise RejectionError("the reply", f"one record {RECORD}", shown(sorted(content)))
    return found


def _exactly(record: ConfigRecord, name: str, size: int) -> bytes:
    value = record.get(name)
    if type(value) is not bytes or len(value) != size:
        raise RejectionError(name, f"{size} bytes", shown(value))
    return value


def _all_of(record: ConfigRecord, name: str, count: int, size: int) -> list[bytes]:
    values = record.get(name)
    rule = f"{count} values of {size} bytes"
    if not isinstance(values, list) or len(values) != count:
        raise RejectionError(name, rule, shown(values))
    found = [each for each in values if isinstance(each, bytes) and len(each) == size]
    if len(found) != count:
        raise RejectionError(name, rule, shown(values))
    return found
