"""Communities under DP-SGD on MNIST; writes docs/results/private_communities.md.

    .venv/bin/python benchmarks/private_communities.py --data <folder with MNIST>

Runs of `experiment=private_communities` with other methods, budgets and samples.
docs/results/private_communities.jsonl has one line per result; what is there is not measured
again. `--minutes` is the time after which no run is started, `--measured` writes the page alone.
"""

import shutil
import warnings
from pathlib import Path

from results import Found, by_case, write_page
from runs import run
from table import REPO, header, row

from fl_app.client_app import app

PAGE = REPO / "docs" / "results" / "private_communities.md"
SEEDS, EPSILON, SAMPLES = 5, 2.0, 4500
EPSILONS, SIZES = (0.5, 2.0, 10.0, float("inf")), (100, 1000, 4500)
METHODS = {
    "flic, contrast": (),
    "flic": ("graph.contrast=false",),
    "cfl_clusters, contrast": ("strategy=cfl_clusters", "strategy.gap_above=null"),
    "cfl_clusters": ("strategy=cfl_clusters", "graph.contrast=false"),
    "communities": ("strategy=communities", "graph.contrast=false"),
    "dcfl": ("strategy=dcfl", "graph.contrast=false"),
    "ifca": ("strategy=ifca", "graph.contrast=false"),
}
CLAIM = "flic, contrast"
HEAD = """# Communities under DP-SGD

Written by `benchmarks/private_communities.py --data <data>`, from runs of
`experiment=private_communities`: MNIST, 12 clients in three groups that swap two digits each, one
hidden layer of 32 units, 20 rounds in which all clients train, DP-SGD with batches of a tenth of a
client's samples. Epsilon is that of the whole run of each client at delta 1e-5. FLIC clusters after
round 10; `contrast` is `graph.contrast=true`. Accuracy is the mean over the clients.
"""
THEORY = """
## Why it works, and where it must stop

By theory, not measured here. In a round of T steps with batches of B samples, a client's update has
a signal of at most `learning rate * T * clip` and noise of norm `learning rate * sigma * clip *
sqrt(T d) / B` with d parameters and noise multiplier sigma. After r rounds the summed signal is r
times, the summed noise `sqrt(r)` times that of one round. Two clients of one group then have the
mean cosine `c = r s^2 / (r s^2 + n^2)`, with s and n the norms of one round's signal and noise. The
cosine of clients without a common signal varies by about `1 / sqrt(d)`. Groups appear once `c` is
several times this. Where noise is most of an update, `c sqrt(d)` is about
`r T (B / sigma)^2 / sqrt(d)` times the share of the signal:

- Samples help with their square: 45 times fewer make it 2,000 times smaller.
- Fewer parameters help, with their square root.
- For a fixed epsilon of the run, sigma grows with `sqrt(r T)`: more rounds gain nothing. Only their
  sum matters, so a graph of one round has 1 / r of it.
"""


def cells() -> list[tuple[str, float, int, int]]:
    """Return the method, epsilon, samples and seed of what is measured, first the main table."""
    found = [(CLAIM, EPSILON, SAMPLES, seed) for seed in range(SEEDS)]
    pairs = [(EPSILON, SAMPLES), *((each, SAMPLES) for each in EPSILONS if each != EPSILON)]
    pairs += [(EPSILON, each) for each in SIZES if each != SAMPLES]
    for seed in (0, 1):
        found += [(method, *pair, seed) for pair in pairs for method in METHODS]
    return list(dict.fromkeys(found))


def measure(
    method: str, epsilon: float, samples: int, seed: int, *, data: Path, out: Path
) -> Found:
    """Run one federation and return its communities and accuracy."""
    words = ["experiment=private_communities", *METHODS[method], f"seed={seed}"]
    words += [f"population.train_samples={samples}", f"client.batch_size={samples // 10}"]
    words += [f"privacy.epsilon={epsilon}", f"data.root={data}", "strategy.participation=1.0"]
    if "flic" not in method:
        words.append("~strategy.cluster_round")
    folder = out / "run"
    shutil.rmtree(folder, ignore_errors=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        records = run(words, folder, app)
    scored = [each["accuracy"]["mean"] for each in records if each["accuracy"]]
    last = records[-1]["communities"] or {"count": 1, "ari": None}
    return {
        "count": last["count"],
        "ari": last["ari"],
        "before": scored[0] if len(scored) > 1 else None,
        "accuracy": scored[-1] if scored else None,
    }


def _number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def page(found: list[Found]) -> list[str]:
    """Return the main table, the table of all methods, and what is not measured."""
    known = by_case(found)
    lines = [HEAD, f"## Epsilon {EPSILON:g} for the run, {SAMPLES:,} samples a client", ""]
    lines += header("seed", "communities", "ARI", "accuracy before", "accuracy after")
    for seed in range(SEEDS):
        if each := known.get((CLAIM, EPSILON, SAMPLES, seed)):
            scores = _number(each["before"]), _number(each["accuracy"])
            lines.append(row(seed, each["count"], _number(each["ari"], 2), *scores))
    lines += ["", "## Methods, budgets and samples", ""]
    lines += header("epsilon", "samples", "method", "seeds", "communities", "ARI", "accuracy")
    groups = dict.fromkeys(case[:3] for case in cells())
    for method, epsilon, samples in groups:
        some = [each for case, each in known.items() if case[:3] == (method, epsilon, samples)]
        if not some:
            continue
        lines.append(row(
            f"{epsilon:g}", samples, method, ", ".join(str(each["case"][3]) for each in some),
            ", ".join(str(each["count"]) for each in some),
            ", ".join(_number(each["ari"], 2) for each in some),
            ", ".join(_number(each["accuracy"]) for each in some),
        ))  # fmt: skip
    return [*lines, "", *_missing([case for case in cells() if case not in known]), THEORY]


def _missing(cases: list[tuple[str, float, int, int]]) -> list[str]:
    """Return a line for every budget and number of samples with cells that are not measured."""
    by_pair: dict[tuple[float, int], dict[int, list[str]]] = {}
    for method, epsilon, samples, seed in cases:
        by_pair.setdefault((epsilon, samples), {}).setdefault(seed, []).append(method)
    lines = ["Not measured yet:", ""] if by_pair else []
    for (epsilon, samples), by_seed in by_pair.items():
        seeds = (
            f"seed {seed}: {'all' if len(names) == len(METHODS) else '; '.join(names)}"
            for seed, names in by_seed.items()
        )
        lines.append(f"- epsilon {epsilon:g}, {samples:,} samples: {', '.join(seeds)}")
    return lines


def main() -> None:
    """Run what is missing and write the page."""
    write_page(str(__doc__), PAGE, cells, measure, page, data=True)


if __name__ == "__main__":
    main()
