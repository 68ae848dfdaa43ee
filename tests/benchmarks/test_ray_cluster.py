"""The benchmark on a Ray cluster leaves nothing behind when it is stopped."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import ray_cluster


def test_a_run_ends_with_the_benchmark_that_is_interrupted() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(300)"]
    interrupted = ray_cluster.ending(command, dict(os.environ))
    process = interrupted.__enter__()
    assert process.poll() is None
    assert not interrupted.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert process.returncode is not None
