"""Log lines as objects, also by Flower's own handler."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
from flwr.common.logger import ConsoleHandler

from fl_app.records.structured_logs import FIELDS, structured


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """Return a logger that nothing else has."""
    found = logging.getLogger("structured of a test")
    found.propagate = False
    found.setLevel(logging.INFO)
    yield found
    found.handlers.clear()


@pytest.mark.parametrize("kind", [logging.StreamHandler, ConsoleHandler])
def test_each_line_of_a_handler_is_an_object(
    logger: logging.Logger, kind: type[logging.StreamHandler]
) -> None:
    out = io.StringIO()
    logger.addHandler(kind(stream=out))
    structured(logger)
    logger.info("round %d is done", 3, extra={FIELDS: {"accuracy": 0.5}})
    told = json.loads(out.getvalue())
    assert (told["level"], told["message"], told["accuracy"]) == ("info", "round 3 is done", 0.5)


def test_a_logger_without_a_handler_gets_one(logger: logging.Logger) -> None:
    structured(logger)
    (handler,) = logger.handlers
    record = logger.makeRecord(logger.name, logging.WARNING, "here", 1, "a line", (), None)
    assert json.loads(handler.format(record))["message"] == "a line"
