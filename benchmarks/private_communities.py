"""Communities under DP-SGD on MNIST; writes docs/results/private_communities.md.

    .venv/bin/python benchmarks/private_communities.py --data <folder with MNIST>

Runs of `experiment=private_communities` with other methods, budgets and samples. The output folder
has one line per result; existing results are not measured again. `--at-most` limits the number of
new results, and `--measured` writes the page without new ones.
"""

import argparse
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

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
Found = dict[str, Any]


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
        "case": [method, epsilon, samples, seed],
        "count": last["count"],
        "ari": last["ari"],
        "before": scored[0] if len(scored) > 1 else None,
        "accuracy": scored[-1] if scored else None,
    }


def read(log: Path) -> list[Found]:
    """Return the results in the output folder."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def measure_all(data: Path, out: Path, at_most: int | None) -> None:
    """Measure what is missing, at most this number of results."""
    out.mkdir(parents=True, exist_ok=True)
    log = out / "results.jsonl"
    done = [each["case"] for each in read(log)]
    missing = [case for case in cells() if list(case) not in done]
    for case in missing[:at_most]:
        line = json.dumps(measure(*case, data=data, out=out))
        with log.open("a") as file:
            file.write(line + "\n")
        print(line, flush=True)


def _number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def page(found: list[Found]) -> list[str]:
    """Return the main table, the table of all methods, and what is not measured."""
    by_case = {tuple(each["case"]): each for each in found}
    lines = [HEAD, f"## Epsilon {EPSILON:g} for the run, {SAMPLES:,} samples a client", ""]
    lines += header("seed", "communities", "ARI", "accuracy before", "accuracy after")
    for seed in range(SEEDS):
        if each := by_case.get((CLAIM, EPSILON, SAMPLES, seed)):
            scores = _number(each["before"]), _number(each["accuracy"])
            lines.append(row(seed, each["count"], _number(each["ari"], 2), *scores))
    lines += ["", "## Methods, budgets and samples", ""]
    lines += header("epsilon", "samples", "method", "seeds", "communities", "ARI", "accuracy")
    groups = dict.fromkeys(case[:3] for case in cells())
    for method, epsilon, samples in groups:
        some = [each for case, each in by_case.items() if case[:3] == (method, epsilon, samples)]
        if not some:
            continue
        lines.append(row(
            f"{epsilon:g}", samples, method, ", ".join(str(each["case"][3]) for each in some),
            ", ".join(str(each["count"]) for each in some),
            ", ".join(_number(each["ari"], 2) for each in some),
            ", ".join(_number(each["accuracy"]) for each in some),
        ))  # fmt: skip
    return [*lines, "", *_missing([case for case in cells() if case not in by_case]), THEORY]


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=REPO / "outputs" / "private_communities")
    parser.add_argument("--at-most", type=int, help="number of new results; default: all")
    parser.add_argument("--measured", action="store_true", help="write what there is, run nothing")
    options = parser.parse_args()
    if not options.measured:
        if options.data is None:
            parser.error("give --data, the folder with MNIST, or --measured")
        measure_all(options.data.resolve(), options.out, options.at_most)
    PAGE.write_text("\n".join(page(read(options.out / "results.jsonl"))).rstrip("\n") + "\n")


if __name__ == "__main__":
    main()
