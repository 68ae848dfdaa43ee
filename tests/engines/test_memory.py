"""What is promised: pages stay with the process, so that a second use faults none in."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import resource
from fl_app.engines.memory import keep_freed_pages
if {keep} and not keep_freed_pages():
    raise SystemExit("no glibc")
model = b"." * 8_000_000
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    models = [model + b"." for _ in range(10)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def _faults(keep: bool) -> int:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(keep=keep)],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    if "no glibc" in done.stderr:
        pytest.skip("the C library is not glibc")
    assert not done.returncode, done.stderr
    return int(done.stdout)


def test_freed_pages_are_kept() -> None:
    pages = 10 * 8_000_000 // resource.getpagesize()
    assert _faults(keep=True) < pages / 10
