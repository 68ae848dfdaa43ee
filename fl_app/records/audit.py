"""An append-only log of who did what in a federation; each line is chained to the one before.

A line holds the SHA-256 of the line before it and of its own content. A line that was changed,
removed or inserted later breaks the chain at its place. The chain cannot show that lines at the end
are missing: note the last hash elsewhere, and compare it with `check(..., last=...)`.
"""

import fcntl
import getpass
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from io import FileIO
from logging import getLogger
from pathlib import Path
from typing import Any

log = getLogger(__name__)
FILE = "audit.jsonl"
FIRST = "0" * 64
"""Stands for the hash before the first line."""
TORN = "torn line"
"""Event that names a line which a crash cut short."""
_TRIES, _PAUSE_S = 100, 0.02
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Chain:
    """What `check` found: the number of lines, the last hash, and each problem as a sentence."""

    lines: int
    last: str
    problems: tuple[str, ...]


class AuditLog:
    """Appends events to the audit log of a folder; each is on the disk when `append` returns.

    A log that cannot be written is an error in the ordinary log, and the run continues.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._lines, self._last, self._size = 0, FIRST, 0

    def append(self, event: str, **details: Any) -> None:
        """Add an event with its details, which are JSON values."""
        try:
            with _opened(self.path) as file:
                self._catch_up(file)
                self._add(file, event, details)
        except OSError as error:
            log.error("the audit log %s could not be written (%s): %s", self.path, event, error)

    def _catch_up(self, file: FileIO) -> None:
        """Find the last line if other processes wrote some, and end one that a crash cut short."""
        if os.fstat(file.fileno()).st_size == self._size:
            return
        file.seek(0)
        *whole, torn = file.readall().split(b"\n")
        self._lines, self._last = len(whole), _hash_in(whole[-1]) if whole else FIRST
        if torn:
            self._size = _write(file, b"\n")
            self._lines, self._last = self._lines + 1, _hash_in(torn)
            self._add(file, TORN, {"torn": self._lines})

    def _add(self, file: FileIO, event: str, details: Mapping[str, Any]) -> None:
        entry = {
            "line": self._lines + 1,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "event": event,
            **details,
            "before": self._last,
        }
        entry["hash"] = _digest(_canonical(entry))
        self._size = _write(file, _canonical(entry) + b"\n")
        self._lines, self._last = self._lines + 1, str(entry["hash"])


def check(path: Path, *, last: str | None = None) -> Chain:
    """Check the chain of an audit log; `last` is the hash that its last line must have.

    Raises OSError for a file that cannot be read.
    """
    before, lines, problems = FIRST, 0, list[str]()
    torn: int | None = None
    for lines, line in enumerate(_lines(path.read_bytes()), 1):
        if torn is not None and not _names_torn(line, torn):
            problems.append(f"line {torn} must be an object with a hash, got other text")
        torn = None
        if (entry := _entry(line)) is None:
            torn, before = lines, _digest(line)
            continue
        if line != _canonical(entry):
            problems.append(f"line {lines} must have the text that was written; it was changed")
        problems += [f"line {lines} {problem}" for problem in _faults(entry, lines, before)]
        before = str(entry["hash"])
    if torn is not None:
        problems.append(f"line {torn} must be an object with a hash, got other text")
    if last is not None and before != last:
        problems.append(f"the last hash must be {last}, got {before}: lines are missing or new")
    return Chain(lines, before, tuple(problems))


def actor() -> str:
    """Return the user whose process this is."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"user id {os.getuid()}"


def fingerprint(public_key: Path) -> str:
    """Return the SHA-256 of the text of a public key."""
    return f"SHA256:{_digest(public_key.read_bytes().strip())}"


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _faults(entry: Mapping[str, Any], line: int, before: str) -> list[str]:
    found = []
    content = {name: value for name, value in entry.items() if name != "hash"}
    if entry["hash"] != _digest(_canonical(content)):
        found.append("must have the hash of its content; it was changed")
    if entry.get("before") != before:
        found.append("must name the hash of the line before; a line was changed, removed or added")
    if entry.get("line") != line:
        found.append(f"must say its number {line}, got {entry.get('line')!r}")
    return found


def _names_torn(line: bytes, torn: int) -> bool:
    entry = _entry(line) or {}
    return entry.get("event") == TORN and entry.get("torn") == torn


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
        known = isinstance(found, dict) and _HASH.fullmatch(found.get("hash") or "")
        _canonical(found)  # an entry can be written again
    except (ValueError, TypeError, RecursionError):
        return None
    return found if known else None


def _lines(text: bytes) -> list[bytes]:
    """Return the lines; a line feed alone ends one, so that no other sign goes unnoticed."""
    return text.removesuffix(b"\n").split(b"\n") if text else []


def _hash_in(line: bytes) -> str:
    entry = _entry(line)
    return _digest(line) if entry is None else str(entry["hash"])


def _canonical(entry: Mapping[str, Any]) -> bytes:
    """Return the one text of an entry; half a surrogate pair, which UTF-8 lacks, is escaped."""
    text = json.dumps(entry, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="backslashreplace")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def _opened(path: Path) -> Iterator[FileIO]:
    """Open a log and lock it, so that what several processes write is one chain.

    The lock is waited for only briefly: a process that stands still must not stop the others.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        for _ in range(_TRIES):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_PAUSE_S)
            except OSError:  # a file system without locks
                break
            else:
                break
        yield file


def _write(file: FileIO, line: bytes) -> int:
    """Write a line to the disk and return the size of the log."""
    size = os.fstat(file.fileno()).st_size
    try:
        rest = line
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    except OSError:
        file.truncate(size)  # the next line must not continue a part of this one
        raise
    return size + len(line)
