"""What a client's process loads before it reads a message, beside torch and Flower alone.

    .venv/bin/python benchmarks/client_import.py [--times 7]

Fresh processes by turns, so that both sides meet the same load of the machine; the first of each
warms the file cache and is left out.
"""

import argparse
import os
import subprocess
import sys
from statistics import median

from table import REPO, header, row, write_section

SIDES = {
    "`import torch, flwr`": "import torch, flwr.app, flwr.client, flwr.clientapp, flwr.common",
    "`import fl_app.client_app`": "import fl_app.client_app",
}
TOLD = """
import sys, time
began = time.perf_counter()
{imports}
print(time.perf_counter() - began, time.process_time(), len(sys.modules))
"""


def measure(imports: str) -> tuple[float, float, int]:
    """Return seconds, seconds of the processor and modules of a fresh process."""
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    done = subprocess.run(
        [sys.executable, "-c", TOLD.format(imports=imports)],
        env=environment, cwd=REPO, capture_output=True, text=True, check=True,
    )  # fmt: skip
    wall, processor, modules = done.stdout.split()
    return float(wall), float(processor), int(modules)


def main() -> None:
    """Measure both sides by turns and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=7)
    times = parser.parse_args().times
    found: dict[str, list[tuple[float, float, int]]] = {side: [] for side in SIDES}
    for turn in range(times + 1):
        for side, imports in SIDES.items():
            one = measure(imports)
            found[side] += [one] if turn else []
    least = {side: min(wall for wall, _, _ in each) for side, each in found.items()}
    base = next(iter(least.values()))
    lines = [
        f"{times} fresh processes each, by turns; the ratio is of the least.",
        "",
        *header("side", "least s", "median s", "processor s", "modules", "times torch and flwr"),
    ]
    for side, each in found.items():
        middle, busy = median(wall for wall, _, _ in each), min(cpu for _, cpu, _ in each)
        cells = f"{least[side]:.2f}", f"{middle:.2f}", f"{busy:.2f}", each[0][2]
        lines.append(row(side, *cells, f"{least[side] / base:.2f}"))
    write_section("Starting a client", "benchmarks/client_import.py", lines)


if __name__ == "__main__":
    main()
