"""Values that no honest client sends, drawn from a `random.Random`."""

from collections.abc import Callable
from random import Random

import numpy as np


def _raise(*_: object, **__: object) -> None:
    raise RuntimeError("a value that answers nothing")


def _exit(*_: object, **__: object) -> None:
    raise SystemExit(3)


def _object(name: str, base: type, **methods: object) -> type:
    return type(name, (base,), methods)


RAISED = ("__repr__", "__str__", "__float__", "__int__", "__index__", "__len__", "__eq__", "__lt__",
          "__le__", "__gt__", "__ge__", "__bool__", "__iter__", "__getitem__", "__contains__",
          "__format__")  # fmt: skip
Raising = _object("Raising", object, **dict.fromkeys(RAISED, _raise), __hash__=lambda _: 1)
Exiting = _object("Exiting", object, **dict.fromkeys(RAISED, _exit), __hash__=lambda _: 2)
RaisingBytes = _object("RaisingBytes", bytes, **dict.fromkeys(("__len__", "__repr__"), _raise))
RaisingText = _object("RaisingText", str, **dict.fromkeys(RAISED, _raise), __hash__=lambda _: 3)
RaisingNumber = _object("RaisingNumber", float, **dict.fromkeys(RAISED, _raise))
RaisingFields = _object("RaisingFields", dict, get=_raise, **dict.fromkeys(RAISED, _raise))
TRUE = dict.fromkeys(("__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__"),
                     lambda *_: True)  # fmt: skip
Agreeing = _object("Agreeing", object, **TRUE, __hash__=lambda _: 4, __float__=lambda _: 0.5)
AgreeingInt = _object("AgreeingInt", int, **TRUE, __hash__=lambda _: 5)
AgreeingFloat = _object("AgreeingFloat", float, **TRUE, __hash__=lambda _: 6)
Posing = _object("Posing", object, __class__=property(lambda _: int), __float__=lambda _: 1.0)
LongText = _object("LongText", object, __repr__=lambda _: "x" * 100_000)


def _nested(draw: Random) -> object:
    value: object = 1
    for _ in range(draw.choice((1, 5, 2000))):
        value = [value]
    return value


NUMBERS: dict[str, Callable[[Random], object]] = {
    "nan": lambda _: float("nan"),
    "infinity": lambda draw: draw.choice((float("inf"), float("-inf"))),
    "huge float": lambda draw: draw.choice((-1, 1)) * draw.choice((1e31, 1e200, 1e308)),
    "huge integer": lambda draw: draw.choice((-1, 1)) << draw.choice((41, 63, 64, 300, 5000)),
    "integer": lambda draw: draw.choice((-5, -1, 0, 1, 7, 99, 10**9, 2**31, 2**40)),
    "float": lambda draw: draw.choice((-3.0, -0.0, 0.5, 1.0, 7.0, 1e-320, 1e9, 1e29)),
    "truth": lambda draw: draw.choice((True, False)),
}
SENDABLE: dict[str, Callable[[Random], object]] = NUMBERS | {
    "text": lambda draw: draw.choice(("", "abc", "1", "nan", "\x00\n\x1b[31m", "x" * 10_000)),
    "bytes": lambda draw: draw.randbytes(draw.choice((0, 1, 8, 500))),
    "list": lambda draw: draw.choice(([], [1], [0.5] * 100, ["a"])),
}
"""What Flower's records can carry."""
VALUES: dict[str, Callable[[Random], object]] = SENDABLE | {
    "nothing": lambda _: None,
    "nested list": _nested,
    "mapping": lambda draw: draw.choice(({}, {"a": 1}, {1: [2]})),
    "NumPy scalar": lambda draw: draw.choice(
        (np.int64(5), np.float32(0.5), np.float64("nan"), np.bool_(True), np.datetime64("nat"))
    ),
    "array": lambda draw: np.full(draw.choice((0, 1, 3)), 0.5),
    "raising object": lambda _: Raising(),
    "exiting object": lambda _: Exiting(),
    "raising bytes": lambda _: RaisingBytes(b"abc"),
    "raising text": lambda _: RaisingText("abc"),
    "raising number": lambda _: RaisingNumber(0.5),
    "raising mapping": lambda _: RaisingFields(loss=0.5, accuracy=0.5, community=0),
    "agreeing object": lambda _: Agreeing(),
    "agreeing integer": lambda _: AgreeingInt(7),
    "agreeing float": lambda _: AgreeingFloat("nan"),
    "posing object": lambda _: Posing(),
    "long text": lambda _: LongText(),
    "class": lambda _: int,
    "function": lambda _: _raise,
    "complex": lambda _: 1j,
}


def value(draw: Random, *, sendable: bool = False) -> object:
    """Return a hostile value; with `sendable` one that can travel as a Flower record."""
    kinds = SENDABLE if sendable else VALUES
    return kinds[draw.choice(tuple(kinds))](draw)
