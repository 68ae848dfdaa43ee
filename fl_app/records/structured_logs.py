"""Log lines as JSON objects, for log collectors."""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fl_app.records.rounding import number

TEXT = "%(asctime)s %(name)s %(levelname)s %(message)s"
FIELDS = "fields"
"""Attribute of a log record with further fields of its object: `extra={FIELDS: {...}}`."""


class JsonLines(logging.Formatter):
    """Formats a record as one object: time, level, logger, message, fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object as one line."""
        found = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, ensure_ascii=False, default=str)


class Once(logging.Filter):
    """Lets a warning through once; the checks of a run, and each thread and client, repeat it."""

    def __init__(self) -> None:
        super().__init__()
        self.told: set[tuple[str, str]] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is no warning, or one with a new text."""
        if record.levelno != logging.WARNING:
            return True
        text = record.name, record.getMessage()
        new = text not in self.told
        self.told.add(text)
        return new


ONCE = Once()
"""The filter of the terminal of this process."""


def words(fields: Mapping[str, Any]) -> str:
    """Return `name=value` for each field that is known, floats with three decimals or more."""
    known = {name: value for name, value in fields.items() if value is not None}
    texts = {n: number(v) if isinstance(v, float) else str(v) for n, v in known.items()}
    return " ".join(f"{name}={text}" for name, text in texts.items())


def beside(logger: logging.Logger, other: logging.Logger) -> None:
    """Let a logger write its information too, with the handlers of another one."""
    for handler in other.handlers:
        if handler not in logger.handlers:
            logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def structured(logger: logging.Logger) -> None:
    """Let all handlers of a logger write JSON lines; one without handlers gets one."""
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())
        logger.setLevel(logging.INFO)
        logger.propagate = False
    lines = JsonLines()
    for handler in logger.handlers:
        handler.setFormatter(lines)
        handler.format = lines.format  # type: ignore[method-assign]  # Flower's has one of its own
