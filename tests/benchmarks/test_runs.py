"""Runs of the benchmarks leave the process as they found it."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from runs import silenced

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


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


LOADING = """
import importlib, pathlib, sys, traceback

folder = pathlib.Path(sys.argv[1])
files = sorted(folder.glob("*.py"))
path = [str(folder), *sys.path]
for file in files:
    sys.path[:] = path
    try:
        importlib.import_module(file.stem)
    except Exception:
        print(file.name, traceback.format_exc())
    for other in files:  # some use helpers of the tests, with the same names
        found = sys.modules.get(other.stem)
        if found is not None and pathlib.Path(found.__file__) != other:
            del sys.modules[other.stem]
"""


def test_every_benchmark_can_be_loaded() -> None:
    """Most take too long to be run here; a name that has moved must not wait for their next run."""
    command = [sys.executable, "-W", "ignore", "-c", LOADING, str(BENCHMARKS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr
