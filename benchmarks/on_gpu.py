"""Rounds of clients on a GPU, alone and as a cohort, beside the same rounds on the CPU.

    .venv/bin/python benchmarks/on_gpu.py --data <folder with MNIST>

Each side is a run of its own, one after another, on a machine with CUDA.
"""

from pathlib import Path

import torch
from against_stock import WORKS, ours, told
from table import arguments, write_section

SIDES = {
    "CPU": ["client.device=cpu"],
    "CUDA, one by one": ["client.cohort=single", "engine.workers=1"],
    "CUDA, four threads": ["client.cohort=single", "engine.workers=4"],
    "CUDA, cohort": ["client.cohort=fused"],
    "CUDA, cohort, bf16": ["client.cohort=fused", "client.precision=bf16"],
}
KINDS = {"light": "a few larger clients", "small": "many small clients"}


def main() -> None:
    """Measure both kinds of work and write a section for each."""
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data.resolve()
    if not torch.cuda.is_available():
        raise SystemExit("no GPU: torch.cuda.is_available() is false; use a machine with CUDA")
    for name, kind in KINDS.items():
        work = WORKS[name]
        sides = {
            label: ours(work, data, [*words, "engine=inprocess", "strategy=fedavg"])
            for label, words in SIDES.items()
        }
        command = "benchmarks/on_gpu.py --data <data>"
        write_section(f"On a GPU: {kind}", command, told(work, sides, "the CPU"))


if __name__ == "__main__":
    main()
