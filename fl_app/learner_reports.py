"""Reports: numbers and vectors that a learner sends with its model, by name.

A strategy asks for them, the message of a round carries their names and lengths to the client, and
its reply carries the values. Below, `task` is what the client receives with a model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, prod
from typing import Any, Literal

import numpy as np

from fl_app.types import Vector

PREFIX = "report."
"""Prefix of the names of reports in messages."""
LARGEST = 1e30
"""Larger values could overflow in squares or sums."""
LONGEST = 2**24
HELD_OUT, HELD_OUT_PARTS = "held_out_losses", 4
"""The report that each client can make: the losses of the model that it trains, and of another one
sent after it, on parts of its training samples that it does not train on in this round."""
WRONG_ADDS = "wrong_answers_add"
"""Name in the messages: whether wrong answers add to these losses, where there are any and no
privacy is: `fl_app.client.held_out.penalised`."""
OFFERED = "offered_losses"
"""The report that each client can make: the losses of all models that it receives to train one of,
on the samples that it trains on, before it does."""
HOLDS_OUT = "holds_out"
"""Name in the messages: whether a client leaves out those samples, although it is asked for no
losses on them yet. It neither trains on them nor chooses a model by them."""
Size = Literal["classes", "inputs"]
"""A number that only the data have: of their classes, or of the numbers in one sample."""
Told = float | Vector
"""A number, or a vector (length,)."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a strategy asks for: values in [low, high], one, or a vector of `length`.

    `length` None: one number; `classes`: one per class of the data. `per` multiplies a length by
    sizes of the data: with `per=("inputs",)`, 3 means three vectors of the length of a sample.
    Raises ValueError for bounds that are not finite or in the wrong order, or for another length.
    """

    length: int | Literal["classes"] | None
    low: float
    high: float
    per: tuple[Size, ...] = ()

    def __post_init__(self) -> None:
        """Check the values."""
        bounds = self.low, self.high
        if not all(map(isfinite, bounds)) or not -LARGEST <= self.low <= self.high <= LARGEST:
            raise ValueError(
                f"low and high of a Report must be in order and in {-LARGEST:g}..{LARGEST:g}, got "
                f"{self.low} and {self.high}; give the range that a sound client can report"
            )
        length = self.length
        if length not in (None, "classes") and not (type(length) is int and 1 <= length <= LONGEST):
            raise ValueError(
                f"length of a Report must be None, classes, or in 1..{LONGEST}, got {length!r}; "
                "use None for one number"
            )

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The sizes of the data that the length depends on."""
        return (*self.per, "classes") if self.length == "classes" else self.per

    def sized(self, classes: int | None, inputs: int | None = None) -> "Report":
        """Return the report with a length that is a number, or None for one number."""
        if not self.sizes:
            return self
        known = {"classes": classes, "inputs": inputs}
        for name in self.sizes:
            if not known[name]:
                raise ValueError(
                    f"length of a Report must be a number where no {name} are known, got {name}; "
                    "give the length"
                )
        once = self.length if type(self.length) is int else 1
        return replace(self, length=once * prod(known[name] or 0 for name in self.sizes), per=())


def of_losses(asks: Mapping[str, Report], least: float) -> Mapping[str, Report]:
    """Return what is asked for with no loss of whole models below `least`."""
    return {
        name: replace(each, low=max(each.low, least)) if name in (HELD_OUT, OFFERED) else each
        for name, each in asks.items()
    }


def request(asks: Mapping[str, Report]) -> dict[str, int]:
    """Return the entries of `task` that ask for these reports: lengths, 0 for one number."""
    return {f"{PREFIX}{name}": int(report.length or 0) for name, report in asks.items()}


def asked(task: Mapping[str, Any]) -> dict[str, int | None]:
    """Return the reports that `task` asks for by name: the length, None for one number."""
    return {
        name.removeprefix(PREFIX): int(length) or None
        for name, length in task.items()
        if name.startswith(PREFIX)
    }


def without_reports(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a training of which nothing is told, on all samples."""
    ours = (HOLDS_OUT, WRONG_ADDS)
    return {k: v for k, v in task.items() if k not in ours and not k.startswith(PREFIX)}


def holds_out(task: Mapping[str, Any]) -> bool:
    """Whether a client leaves some of its training samples out in this round."""
    return bool(task.get(HOLDS_OUT)) or HELD_OUT in asked(task)


def packed(task: Mapping[str, Any], reports: Mapping[str, Told]) -> dict[str, float | bytes]:
    """Return the fields of a reply: the reports that `task` asks for.

    A vector is sent as little-endian float32. If a requested report is missing, the server rejects
    the reply.
    """
    wanted = asked(task)
    return {f"{PREFIX}{name}": _packed(value) for name, value in reports.items() if name in wanted}


def _packed(value: Told) -> float | bytes:
    if np.ndim(value) == 0:
        return float(value)
    with np.errstate(over="ignore"):  # the server rejects an infinite value by its name
        return np.ascontiguousarray(value, "<f4").tobytes()


def sendable(losses: Sequence[float]) -> Vector:
    """Return losses (k,) that can be sent: at most LARGEST, also if one is not finite."""
    found = np.nan_to_num(losses, nan=LARGEST, posinf=LARGEST)
    limited: Vector = np.minimum(found, LARGEST).astype(np.float32)
    return limited
