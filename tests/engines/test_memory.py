"""What is promised: pages stay with the process, so that a second use faults none in."""

import gc
import platform
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fl_app.engines.memory import keep_objects

SCRIPT = """
import resource
from fl_app.engines.memory import keep_freed_pages
kept = keep_freed_pages()
model = b"." * 8_000_000
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    models = [model + b"." for _ in range(10)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(int(kept), faults())
"""


def test_freed_pages_are_kept_where_the_c_library_can() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert not done.returncode, done.stderr
    kept, faults = map(int, done.stdout.split())
    assert bool(kept) == (platform.libc_ver()[0] == "glibc")
    pages = 10 * 8_000_000 // resource.getpagesize()
    assert not kept or faults < pages / 10


def test_objects_that_stay_are_left_out_of_collection_until_the_end() -> None:
    with keep_objects():
        assert gc.get_freeze_count() > 1000
    assert gc.get_freeze_count() == 0


def test_a_run_that_fails_hands_them_back_to_collection() -> None:
    with pytest.raises(KeyError), keep_objects():
        raise KeyError
    assert gc.get_freeze_count() == 0
