"""The JSON state of a checkpoint, which is either restored exactly or rejected."""

import json
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any


def encode(state: Mapping[str, Any]) -> bytes:
    """Return `state` as strict JSON.

    Raises ValueError for a key that is not a string, for a number that is not finite (with its
    path), and for a value that JSON cannot represent.
    """
    for mapping in _mappings(state):
        strange = [key for key in mapping if not isinstance(key, str)]
        if strange:
            # json.dumps would silently turn 3 into "3", and the resumed run would look for 3.
            raise ValueError(
                f"keys of the state must be strings, got {strange[0]!r}; convert them with str"
            )
    try:
        return json.dumps(state, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        _must_be_finite(state)
        raise ValueError(
            f"the state must be JSON: {error}; put arrays into `arrays` and convert the rest"
        ) from error


def decode(data: bytes) -> dict[str, Any]:
    """Return the state that `encode` was given; raises ValueError for other input."""
    state: dict[str, Any] = json.loads(data, parse_constant=_refuse)
    return state


def _refuse(word: str) -> None:
    raise ValueError(f"a number of the state must be finite, got {word}")


def _mappings(value: Any) -> Iterator[Mapping[Any, Any]]:
    if isinstance(value, Mapping):
        yield value
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            if isinstance(item, Mapping | list | tuple):
                yield from _mappings(item)


def _must_be_finite(state: Mapping[str, Any]) -> None:
    for path, value in _numbers(state, ""):
        if not isfinite(value):
            raise ValueError(
                f"{path} of the state must be finite, got {value}; store null for an unknown value"
            )


def _numbers(value: Any, path: str) -> Iterator[tuple[str, float]]:
    """Yield the floats of a state, each with the keys that lead to it."""
    if isinstance(value, float):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _numbers(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _numbers(item, f"{path}[{place}]")
