"""A second, slow and plain implementation of the rules of ingress/."""

import io
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.common import Code, EvaluateRes, FitRes

from fl_app.ingress.rejection import RejectionError, trusted

MOST = 2**40
LARGEST = 1e30


def answered(read: Callable[..., Any], *arguments: Any) -> tuple[Any, str]:
    """Return what `read` accepts, or None and the reason of the rejection on one short line."""
    try:
        return trusted(read, *arguments), ""
    except RejectionError as error:
        words = str(error)
    assert len(words) < 400
    assert words.isprintable()
    return None, words


def whole(value: object, low: int, high: int) -> bool:
    """Whether a value is a plain integer in [low, high]."""
    return type(value) is int and low <= value <= high


def real(value: object, low: float = -LARGEST, high: float = LARGEST) -> bool:
    """Whether a value is a plain finite number in [low, high]."""
    if type(value) is int:
        return low <= value <= high
    return type(value) is float and math.isfinite(value) and low <= value <= high


def _holds(rule: Callable[[], bool]) -> bool:
    try:
        return bool(rule())
    except BaseException:
        return False


def is_model(data: object, size: int) -> bool:
    """Whether bytes are what NumPy saves for a finite float32 vector of this size, not too long."""
    if type(data) is not bytes:
        return False
    stream = io.BytesIO()
    np.save(stream, np.zeros(size, np.float32))
    start = stream.getvalue()[: -4 * size]
    if len(data) != len(start) + 4 * size or data[: len(start)] != start:
        return False
    numbers = np.frombuffer(data[len(start) :], "<f4").astype(np.float64)
    return bool(np.isfinite(numbers).all()) and float((numbers**2).sum()) < 1e36


Asked = Mapping[str, tuple[int | None, float, float]]
"""The requested reports: the length, None for a number, and the range."""


def is_vector(data: object, length: int, low: float, high: float) -> bool:
    """Whether bytes are so many finite float32 numbers in [low, high], as float32 rounds it."""
    if type(data) is not bytes or len(data) != 4 * length:
        return False
    numbers = [struct.unpack_from("<f", data, 4 * place)[0] for place in range(length)]
    least, most = (struct.unpack("<f", struct.pack("<f", each))[0] for each in (low, high))
    return all(math.isfinite(each) and least <= each <= most for each in numbers)


def tells(metrics: Mapping[str, Any], asked: Asked) -> bool:
    """Whether a reply has the requested reports and no others."""
    told = {name for name in metrics if str(name).startswith("report.")}
    return told == {f"report.{name}" for name in asked} and all(
        real(metrics[f"report.{name}"], low, high)
        if length is None
        else is_vector(metrics[f"report.{name}"], length, low, high)
        for name, (length, low, high) in asked.items()
    )


def is_fit(
    reply: object, *, size: int, rows: int, samples: int, asked: Asked | None = None
) -> bool:
    """Whether a reply to training by a client with so many samples and offers is valid."""

    def rule() -> bool:
        assert isinstance(reply, FitRes)
        metrics, tensors = reply.metrics, reply.parameters.tensors
        return (
            isinstance(metrics, Mapping)
            and reply.status.code is Code.OK
            and len(tensors) == 1
            and is_model(tensors[0], size)
            and whole(reply.num_examples, 1, samples)
            and real(metrics["loss"])
            and ("choice" not in metrics or whole(metrics["choice"], 0, rows - 1))
            and ("train_s" not in metrics or real(metrics["train_s"], 0, 1e9))
            and ("fitting" not in metrics or real(metrics["fitting"]))
            and tells(metrics, asked or {})
        )

    return _holds(rule)


def is_score(reply: object, metrics_of_task: Sequence[str] = ()) -> bool:
    """Whether a reply to an evaluation is valid, for a task with these metrics."""

    def rule() -> bool:
        assert isinstance(reply, EvaluateRes)
        metrics = reply.metrics
        return (
            isinstance(metrics, Mapping)
            and reply.status.code is Code.OK
            and (whole(reply.num_examples, 0, 0) or real(metrics["accuracy"], 0, 1))
            and real(metrics["choice_loss"])
            and real(reply.loss)
            and whole(reply.num_examples, 0, MOST)
            and ("attack_success" not in metrics or real(metrics["attack_success"], 0, 1))
            and (metrics.get("table") is None or type(metrics["table"]) is bytes)
            and all(
                name.removeprefix("metric.") in metrics_of_task and real(value)
                for name, value in metrics.items()
                if name.startswith("metric.")
            )
        )

    return _holds(rule)


def is_table(reply: EvaluateRes, *, rows: int, classes: int, samples: int) -> bool:
    """Whether a score has a table (rows, classes) that counts its points, or no points."""

    def rule() -> bool:
        points, packed = reply.num_examples, reply.metrics.get("table")
        if points == 0:
            return True
        counts = np.frombuffer(packed, "<i8").astype(object)
        return (
            points <= samples
            and len(counts) == rows * classes
            and all(0 <= count <= points for count in counts)
            and sum(counts) == points
            and reply.loss >= 0
        )

    return _holds(rule)


def is_introduction(properties: object, *, clients: int, expected: int | None) -> bool:
    """Whether an introduction is valid in a federation of so many clients without an attack."""

    def rule() -> bool:
        assert isinstance(properties, Mapping)
        client = properties["client_id"]
        return (
            whole(client, 0, clients - 1)
            and (expected is None or client == expected)
            and whole(properties["group"], -1, 2**31)
            and whole(properties["samples"], 0, MOST)
            and properties.get("malicious", False) is False
        )

    return _holds(rule)


def too_long(
    models: Sequence[np.ndarray], starts: Sequence[np.ndarray], *, multiple: float
) -> list[int]:
    """Return the places of updates that are too long, by the rule of ingress/screen.py."""
    pairs = list(zip(models, starts, strict=True))
    norms = [float(np.linalg.norm(m.astype(np.float64) - s)) for m, s in pairs]
    received = [float(np.linalg.norm(start.astype(np.float64))) for start in starts]
    found = []
    for place, norm in enumerate(norms):
        own = max(_middle(norms), 0.01 * received[place]) or _middle([n for n in norms if n > 0])
        if len(norms) < 3:
            own = received[place]
        if own > 0 and norm > multiple * own:
            found.append(place)
    return found


def _middle(norms: Sequence[float]) -> float:
    return sorted(norms)[(len(norms) - 1) // 2] if norms else 0.0
