"""What is promised: pages stay with the process, so that a second use faults none in."""

import platform
import resource
import subprocess
import sys
from pathlib import Path

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
