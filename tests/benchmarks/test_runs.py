"""Runs of the benchmarks leave the process as they found it."""

import logging
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from runs import silenced


def _fails(logger: logging.Logger) -> None:
    with silenced("fl_app"):
        logger.error("unseen")
        raise ValueError("lost")


def test_loggers_write_again_after_a_run(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("fl_app.of_this_test")
    with pytest.raises(ValueError, match="lost"):
        _fails(logger)
    logger.error("seen")
    assert [record.message for record in caplog.records] == ["seen"]
