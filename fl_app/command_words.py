"""How a setting is typed on a command line, so that the shell and Hydra read what is meant."""

import re
import shlex

_PLAIN = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
_NOT_TEXT = ("true", "false", "null", "nan", "inf")
_KEY = re.compile(r"[A-Za-z_][\w-]*|\d+", re.ASCII)
_CHANGED = re.compile(r'["$`!]|\\\\|\\$')
"""What the shell changes in double quotes; they leave the backslash of `it\\'s`."""
_UNQUOTED = re.compile(r"[\w@%+=:,./~\[\]{}-]+", re.ASCII)


def as_value(text: str) -> str:
    """Return a text as a value of Hydra's overrides, in single quotes where it needs them."""
    if _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT:
        return text
    escaped = re.sub(r"(\\*)('|$)", lambda m: 2 * m[1] + ("\\'" if m[2] else ""), text)
    return f"'{escaped}'"


def is_key(text: str) -> bool:
    """Return whether Hydra reads a text as one part of a key, such as `width`."""
    return _KEY.fullmatch(text) is not None


def in_shell(word: str) -> str:
    """Return a word as it is typed in a shell."""
    if _UNQUOTED.fullmatch(word):
        return word
    return shlex.quote(word) if _CHANGED.search(word) else f'"{word}"'


def list_of(key: str, name: str) -> str:
    """Return the override of a list with one name, such as `data.exclude=[age]`."""
    return in_shell(override(key, [name]))


def flwr_command(overrides: list[str], connection: str = "") -> str:
    """Return Flower's own command for a run with these overrides; "" is the default connection."""
    given = shlex.quote(f'overrides="{shlex.join(overrides)}"')
    return f"flwr run . {connection}--stream" + (f" --run-config {given}" if overrides else "")


def override(key: str, value: str | list[str]) -> str:
    """Return a Hydra override for the literal `value`: see `as_value`."""
    if isinstance(value, list):
        return f"{key}=[{','.join(map(as_value, value))}]"
    return f"{key}={as_value(value)}"
