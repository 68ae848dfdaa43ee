"""Seconds and modules of the imports of a client process, compared with torch and Flower alone.

    .venv/bin/python benchmarks/client_import.py [--times 7]

New processes alternate, so that both sides see the same load of the machine. The first of each
fills the file cache and is not counted.
"""

import os
import subprocess
import sys

from table import REPO, arguments, header, row, write_section

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
    """Return seconds, processor seconds and modules of a new process."""
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    done = subprocess.run(
        [sys.executable, "-c", TOLD.format(imports=imports)],
        env=environment, cwd=REPO, capture_output=True, text=True, check=True,
    )  # fmt: skip
    wall, processor, modules = done.stdout.split()
    return float(wall), float(processor), int(modules)


def main() -> None:
    """Measure both sides alternately and write the section."""
    parser = arguments(__doc__)
    parser.add_argument("--times", type=int, default=7)
    times = parser.parse_args().times
    found: dict[str, list[tuple[float, float, int]]] = {side: [] for side in SIDES}
    for turn in range(times + 1):
        for side, imports in SIDES.items():
            one = measure(imports)
            found[side] += [one] if turn else []
    lines = [
        f"Each side has {times} new processes, which alternate; the smallest numbers are shown.",
        "Other work on the machine affects processor seconds less than wall-clock seconds.",
        "",
        *header("side", "seconds", "ratio", "processor seconds", "ratio", "modules"),
    ]
    least = {side: [min(part) for part in zip(*each, strict=True)] for side, each in found.items()}
    base = next(iter(least.values()))
    for side, (wall, processor, modules) in least.items():
        ratios = f"{wall / base[0]:.2f}", f"{processor / base[1]:.2f}"
        lines.append(row(side, f"{wall:.2f}", ratios[0], f"{processor:.2f}", ratios[1], modules))
    write_section("Starting a client", "benchmarks/client_import.py", lines)


if __name__ == "__main__":
    main()
