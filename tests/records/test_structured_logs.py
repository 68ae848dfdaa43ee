"""Log lines as objects, also by Flower's own handler."""

import io
import json
import logging

import pytest
from flwr.common.logger import ConsoleHandler

from fl_app.records.structured_logs import FIELDS, structured


@pytest.mark.parametrize("kind", [logging.StreamHandler, ConsoleHandler])
def test_each_line_of_a_handler_is_an_object(kind: type[logging.StreamHandler]) -> None:
    logger, out = logging.Logger("of a test"), io.StringIO()
    logger.addHandler(kind(stream=out))
    structured(logger)
    logger.info("round %d is done", 3, extra={FIELDS: {"accuracy": 0.5}})
    told = json.loads(out.getvalue())
    assert (told["level"], told["message"], told["accuracy"]) == ("info", "round 3 is done", 0.5)


def test_a_logger_without_a_handler_gets_one() -> None:
    logger = logging.Logger("of a test")
    structured(logger)
    (handler,) = logger.handlers
    record = logger.makeRecord(logger.name, logging.WARNING, "here", 1, "a line", (), None)
    assert json.loads(handler.format(record))["message"] == "a line"
