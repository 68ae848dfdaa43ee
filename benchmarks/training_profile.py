"""What the processor time of a client's training is spent on, in the cells beside pfl-research.

    .venv/bin/python benchmarks/training_profile.py --data <folder>

torch's profiler, which slows down each operation a little, so that only the shares count.
"""

from collections import Counter
from pathlib import Path

import torch
from against_stock import WORKS, Work
from table import arguments, header, row, write_section
from torch.profiler import ProfilerActivity, profile

from fl_app.client_wiring import client
from fl_app.config import load
from fl_app.one_run import override
from fl_app.wiring import initial_model

TIMES, FIRST = 30, 3
KINDS = {
    "convolutions": ("aten::mkldnn_convolution", "aten::convolution_backward"),
    "dense layers": ("aten::addmm_", "aten::addmm", "aten::mm", "mkldnn::_linear_pointwise",
                     "aten::add_"),
    "pooling": ("aten::max_pool2d_with_indices", "aten::max_pool2d_with_indices_backward"),
    "ReLU": ("aten::clamp_min", "aten::clamp_min_", "aten::relu", "aten::threshold_backward"),
    "copies and zeros": ("aten::copy_", "aten::fill_", "aten::zero_"),
}  # fmt: skip
"""Operations of torch by what they are for; all other operations are one row."""


def shares(work: Work, data: Path) -> dict[str, float]:
    """Return the share of each kind of operation in the processor time of trainings."""
    words = ["data=mnist", override("data.root", str(data)), "network=mcmahan_cnn",
             "population=iid", f"population.clients={work.clients}",
             f"population.train_samples={work.samples}", f"client.epochs={work.epochs}",
             f"client.batch_size={work.batch_size}"]  # fmt: skip
    config = load(words)
    trained, start = client(config, 0), initial_model(config)[1]
    for now in range(FIRST):
        trained.fit(start, server_round=now + 1)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for now in range(TIMES):
            trained.fit(start, server_round=now + 1)
    spent: Counter[str] = Counter()
    for event in found.key_averages():
        kind = next((kind for kind, names in KINDS.items() if event.key in names), "all others")
        spent[kind] += event.self_cpu_time_total
    return {kind: time / spent.total() for kind, time in spent.items()}


def main() -> None:
    """Profile both cells and write the section."""
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data.resolve()
    torch.set_num_threads(1)
    found = {name: shares(WORKS[name], data) for name in ("small", "light")}
    lines = [
        f"Shares of the processor time of {TIMES} trainings of one client in one thread, with",
        "what the profiler itself takes. Those of dense layers include their steps.",
        "",
        *header("operations", *(f"{name}: B={WORKS[name].batch_size}" for name in found)),
    ]
    for kind in [*KINDS, "all others"]:
        lines.append(row(kind, *(f"{each.get(kind, 0.0):.0%}" for each in found.values())))
    write_section("What a client's training is spent on", "benchmarks/training_profile.py", lines)


if __name__ == "__main__":
    main()
