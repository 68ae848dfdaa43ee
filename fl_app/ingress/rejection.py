"""A reply that is not trusted, and why."""

from collections.abc import Callable
from typing import Any, TypeVar

Read = TypeVar("Read")
LONGEST = 80
"""Characters of a sent value that a message shows."""


class RejectionError(ValueError):
    """A reply that breaks a rule: the field, the rule, and what was sent, as `shown`."""

    def __init__(self, field: str, rule: str, got: str) -> None:
        super().__init__(f"{field} must be {rule}, got {got}")
        self.field, self.rule = field, rule


def trusted(read: Callable[..., Read], *arguments: Any) -> Read:
    """Return `read(*arguments)`; whatever it raises, of any type, becomes a RejectionError."""
    try:
        return read(*arguments)
    except RejectionError:
        raise
    except Exception as error:
        found = f"{type(error).__name__}: {shown(error)}"
        raise RejectionError("the reply", "readable", found) from error


def shown(value: Any) -> str:
    """Return a sent value as short text; the text of a hostile value may fail or be long."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if type(value) is int and value.bit_length() > LONGEST:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = str(value) if isinstance(value, Exception | float) else repr(value)
    except Exception:
        return f"a value of type {type(value).__name__}"
    text = "".join(letter if letter.isprintable() else "?" for letter in text[: LONGEST + 1])
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
