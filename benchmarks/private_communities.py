"""Communities under DP-SGD; writes docs/results/private_communities.md and a figure.

    .venv/bin/python benchmarks/private_communities.py --data <folder with MNIST and the others>

Runs of `experiment=private_communities` with other methods, budgets, samples, splits and data.
`--data` also has Fashion-MNIST, and CIFAR-10 as benchmarks/problems.py takes it.
docs/results/private_communities.jsonl has one line per result; what is there is not measured
again. `--minutes` is the time after which no run is started, `--measured` writes the page alone.
"""

from math import inf
from pathlib import Path

import numpy as np
from private_cells import CLAIM, cells, group_share, words
from private_page import page
from problems import ARCHIVE, FOLDER, unpack
from results import Found, write_page
from runs import run
from safetensors.numpy import load_file
from table import REPO

from fl_app.client_app import app
from fl_app.schema import ConfigError

PAGE = REPO / "docs" / "results" / "private_communities.md"


def measure(
    setting: str, method: str, epsilon: float, samples: int, seed: int, *, data: Path, out: Path
) -> Found:
    """Run one federation and return its communities, accuracy, noise and, without it, signal."""
    folder = out / "run"
    root = _images(data, out) if setting == "CIFAR-10" else data
    given = [*words(setting, method, epsilon, samples, seed), f"data.root={root}"]
    try:
        records = run(given, folder, app)
    except ConfigError as error:
        return {"refused": " ".join(str(error).split()), "ari": None, "accuracy": None}
    scored = [each["accuracy"]["mean"] for each in records if each["accuracy"]]
    last = records[-1]["communities"] or {"count": 1, "ari": None}
    found = {
        "count": last["count"],
        "ari": last["ari"],
        "before": scored[0] if len(scored) > 1 else None,
        "accuracy": scored[-1] if scored else None,
        "noise": records[-1]["privacy"]["noise_multiplier"],
    }
    if method == CLAIM and epsilon == inf:
        found["share"] = group_share(_summed(folder))
    return found


def _summed(folder: Path) -> np.ndarray:
    """Return the clients' updates (n, d), summed up to the clustering, in order of their ids."""
    state = load_file(folder / "checkpoint" / "checkpoint.safetensors")
    return state["graph.stored.vectors"][np.argsort(state["graph.ids"])].astype(np.float64)


def _images(data: Path, out: Path) -> Path:
    if not (out / FOLDER).exists():
        unpack(data / ARCHIVE, out)
    return out / FOLDER


if __name__ == "__main__":
    write_page(__doc__, PAGE, cells, measure, page, data=True)
