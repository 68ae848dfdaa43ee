"""Rejected replies and their reasons."""

import reprlib
from collections.abc import Callable
from typing import Any, TypeVar

Read = TypeVar("Read")
LONGEST = 80
"""Characters of a received value that a message shows."""
LONGEST_REASON = 4000
"""Characters of a node's error message that are written to the log and to the records."""
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = LONGEST


class RejectionError(ValueError):
    """A reply that breaks a rule: the field, the rule, and the received value as `shown`."""

    def __init__(self, field: str, rule: str, got: str) -> None:
        super().__init__(f"{field} must be {rule}, got {got}")
        self.field, self.rule = field, rule


def trusted(read: Callable[..., Read], *arguments: Any) -> Read:
    """Return `read(*arguments)`; exceptions other than KeyboardInterrupt become RejectionError.

    A KeyError is that of a record or field that the reply does not have.
    """
    try:
        return read(*arguments)
    except (RejectionError, KeyboardInterrupt):
        raise
    except KeyError as error:
        raise RejectionError(_missing(error), "present", "nothing") from error
    except BaseException as error:  # includes a SystemExit that the reply causes
        found = f"{type(error).__name__}: {shown(error)}"
        raise RejectionError("the reply", "readable", found) from error


def shown(value: Any) -> str:
    """Return a received value as short text, even if it is long or has no text."""
    try:
        return printable(_text(value), LONGEST)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return f"a value of type {type(value).__name__}"


def printable(text: str, longest: int) -> str:
    """Return the first `longest` characters of a text, with `?` for unprintable ones."""
    clean = "".join(letter if letter.isprintable() else "?" for letter in text[: longest + 1])
    return clean if len(clean) <= longest else f"{clean[:longest]}..."


def _missing(error: KeyError) -> str:
    name = error.args[0] if error.args else None
    return printable(name, LONGEST) if isinstance(name, str) else "a field"


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if type(value) is int and value.bit_length() > LONGEST:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, BaseException | float):
        return str(value)
    return _SHORT.repr(value)
