"""Reads files of an output folder, and names the one that is damaged."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from safetensors import SafetensorError

from fl_app.records.names import CLIENT_NAMES, CONFIG, OVERRIDES

_DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError,
           SafetensorError)  # fmt: skip


@contextmanager
def readable(path: Path, what: str) -> Iterator[None]:
    """Raise ValueError with the name of the file if it cannot be read as `what` in this block."""
    try:
        yield
    except _DAMAGE as error:
        reason = error.strerror if isinstance(error, OSError) else None
        words = " ".join(str(reason or error).split())
        raise ValueError(
            f"{path} must be {what}, but is damaged ({words}); copy the folder again, resume the "
            "run, or repeat it"
        ) from error


def json_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; raises ValueError with its name for any other content."""
    with readable(path, "a JSON object"):
        found: dict[str, Any] = _object(json.loads(path.read_text(encoding="utf-8")))
    return found


def read_config(folder: Path) -> dict[str, Any]:
    """Return the resolved configuration of a run, empty without the file; raises ValueError."""
    path = folder / CONFIG
    if not path.exists():
        return {}
    with readable(path, "the configuration of a run"):
        return _object(yaml.safe_load(path.read_text(encoding="utf-8")))


def read_overrides(folder: Path) -> list[str] | None:
    """Return the overrides that the user gave, None without the file; raises ValueError."""
    path = folder / OVERRIDES
    if not path.exists():
        return None
    with readable(path, "a list of overrides"):
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise ValueError(f"got {found!r:.40}")
    return found


def read_names(folder: Path) -> list[str]:
    """Return the clients' names by id, empty if the data give none; raises ValueError."""
    path = folder / CLIENT_NAMES
    if not path.exists():
        return []
    with readable(path, "a list of names"):
        return [str(each) for each in json.loads(path.read_text(encoding="utf-8"))]


def check_names(folder: Path, names: Sequence[str]) -> None:
    """Raise ValueError if the names (n,) by id give the id of a client of `folder` to another."""
    for client, (former, name) in enumerate(zip(read_names(folder), names, strict=False)):
        if former != name:
            raise ValueError(
                f"client {client} of a resumed run must stay {former}, got {name}, to which the "
                "data now give its id; continue with fl-app resume=, which keeps the ids"
            )


def _object(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ValueError(f"got {found!r:.40}")
    return found
