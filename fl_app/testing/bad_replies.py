"""Replies that every method must reject, and what the rejection says."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.common import Code, FitRes, Parameters, Status

from fl_app.testing.toy import SIZE, reply
from fl_app.types import Vector


def raw(tensors: list[Any]) -> FitRes:
    return FitRes(Status(Code.OK, ""), Parameters(tensors, "numpy.ndarray"), 10, {"loss": 0.5})


def _npy(array: Vector) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def _with(value: float) -> Vector:
    model = np.zeros(SIZE, np.float32)
    model[2] = value
    return model


def _fit(samples: Any = 10, **metrics: Any) -> FitRes:
    answer = reply(_with(0.0))
    answer.num_examples = samples
    answer.metrics = answer.metrics | metrics
    return answer


FORM = f"model must be a flat float32 vector of {SIZE} parameters"
BAD: dict[str, tuple[Callable[[], FitRes], str]] = {
    "nan": (lambda: reply(_with(np.nan)), "1 parameters are not finite"),
    "infinity": (lambda: reply(_with(np.inf)), "1 parameters are not finite"),
    "too large": (lambda: reply(_with(1e20)), "its norm below 1e+18, got norm 1e+20"),
    "shape": (lambda: reply(np.zeros(SIZE + 1, np.float32)), f"{FORM} in 152 bytes, got 156 bytes"),
    "rank": (lambda: raw([_npy(np.zeros((2, 3), np.float32))]), f"{FORM}, got other bytes"),
    "dtype": (lambda: raw([_npy(np.zeros(SIZE))]), f"{FORM} in 152 bytes, got 176 bytes"),
    "same length": (lambda: raw([_npy(np.zeros(SIZE, np.int32))]), f"{FORM}, got other bytes"),
    "garbage": (lambda: raw([b"not an array"]), f"{FORM} in 152 bytes, got 12 bytes"),
    "nothing": (lambda: raw([]), "model must be one flat array, got 0 arrays"),
    "two": (lambda: raw([_npy(_with(0.0))] * 2), "model must be one flat array, got 2 arrays"),
    "no bytes": (lambda: raw([None]), f"{FORM} in 152 bytes, got None"),
    "loss": (
        lambda: reply(_with(0.0), loss=float("nan")),
        "loss must be a number in -1e+30..1e+30",
    ),
    "loss text": (lambda: _fit(loss="low"), "loss must be a number in -1e+30..1e+30, got 'low'"),
    "samples": (lambda: _fit(0), "num_examples must be an integer in 1.."),
    "samples nan": (lambda: _fit(float("nan")), "num_examples must be an integer in 1.."),
    "samples float": (lambda: _fit(1e308), "num_examples must be an integer in 1.."),
    "samples beyond": (lambda: _fit(10**9), "num_examples must be an integer in 1.."),
    "samples endless": (lambda: _fit(10**30_000), "got an integer of 99658 bits"),
    "samples truth": (lambda: _fit(True), "num_examples must be an integer in 1.."),
    "choice": (lambda: _fit(choice=float("inf")), "choice must be an integer in 0.."),
    "choice beyond": (lambda: _fit(choice=99), "choice must be an integer in 0.."),
    "seconds": (lambda: _fit(train_s="abc"), "train_s must be a number in 0..1e+09, got 'abc'"),
    "seconds back": (lambda: _fit(train_s=-1.0), "train_s must be a number in 0..1e+09, got -1.0"),
    "fitting": (lambda: _fit(fitting=b"x"), "fitting must be a number in"),
}
